"""Jobs of one kind: when they come, how they look, how long they take."""

from __future__ import annotations

from typing import Final

from msgspec import json

from headgate import ids
from headgate.core.envelope import Envelope
from headgate.core.gates import LimitsChange
from headgate.core.limits import Use, change_from, check_key
from headgate.core.queues import check_name
from headgate.core.retry import DEFAULT, policy_from
from headgate.core.tenants import check_tenant
from headgate.core.times import DAY_MS
from headgate.simulation.arrivals import Arrival, arrivals
from headgate.simulation.lengths import lengths
from headgate.simulation.scenario import Jobs, Scenario, rates_in, us_of

FOREVER_MS: Final = 3650 * DAY_MS


class Source:
    """Jobs of one kind: how they look, how long they take, how they end."""

    def __init__(
        self, jobs: Jobs, number: int, scenario: Scenario, boosts: dict[str, int], seed: int
    ) -> None:
        path = f"jobs[{number}]"
        self.jobs = jobs
        # Each has dice of its own: what is changed about one leaves the others as they were.
        self.dice = ids.dice(seed * 1_000_003 + number)
        self.length = lengths(jobs.service, self.dice, f"{path}.service")
        self.timeout_us = 0
        self.expires_ms = 0
        if jobs.timeout is not None:
            self.timeout_us = us_of(jobs.timeout, f"{path}.timeout")
        if jobs.expires is not None:
            self.expires_ms = -(-us_of(jobs.expires, f"{path}.expires") // 1000)
        self.boosts = boosts
        self.traced: dict[str, int] = {}
        """Lengths that a trace gives, by job."""
        self._retry = None
        if jobs.retry is not None:
            policy_from(jobs.retry, DEFAULT, path=f"{path}.retry")
            self._retry = json.encode(jobs.retry)
        self._tenants = list(jobs.tenants)
        self._shares = list(jobs.tenants.values())
        self._changes = {
            key: change_from(rates_in(scenario.limits[key], f"limits.{key}"), f"limits.{key}")
            for key in jobs.keys
            if key in scenario.limits
        }
        self._made: dict[tuple[str, str], Envelope] = {}
        self._dull = not jobs.tenants and jobs.values == 1
        check_name(jobs.queue, field=f"{path}.queue")
        for key in jobs.keys:
            check_key(key.replace("{value}", "0"), field=f"{path}.keys")
        for tenant in (*jobs.tenants, *((jobs.tenant,) if jobs.tenant else ())):
            check_tenant(tenant, field=f"{path}.tenants")
        streams = jobs.arrivals if isinstance(jobs.arrivals, list) else [jobs.arrivals]
        self.streams = [
            arrivals(one, self.dice, f"{path}.arrivals[{n}]", scenario.folder, scenario.duration_us)
            for n, one in enumerate(streams)
        ]

    def envelope(self, arrival: Arrival) -> Envelope:
        """What such a job looks like; those that look alike share one."""
        tenant, value = arrival.tenant or self.jobs.tenant, arrival.value
        if not self._dull:
            if self._tenants and not arrival.tenant:
                (tenant,) = self.dice.choices(self._tenants, self._shares)
            if not value and self.jobs.values > 1:
                value = str(int(self.dice.random() * self.jobs.values))
        found = self._made.get((tenant, value))
        if found is None:
            found = self._made[tenant, value] = self._make(tenant, value or "0")
        return found

    def _make(self, tenant: str, value: str) -> Envelope:
        jobs = self.jobs
        found = Envelope(jobs.type, b'"args":[],"meta":{}', b"[]", queue=jobs.queue)
        found.priority = jobs.priority
        found.tenant = tenant
        found.visibility_ms = FOREVER_MS
        found.timeout_ms = -(-self.timeout_us // 1000)
        found.retry = self._retry
        found.uses = tuple(
            Use(
                check_key(key.replace("{value}", value)),
                "global",
                jobs.on_limit,
                self._changes.get(key, LimitsChange()),
            )
            for key in jobs.keys
        )
        return found
