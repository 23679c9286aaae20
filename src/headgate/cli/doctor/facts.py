"""What there is to judge: everything that the server says of itself, as far as the token allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from headgate import clock
from headgate.cli.asking import listed

if TYPE_CHECKING:
    from headgate.client.app import Headgate

Record: TypeAlias = Mapping[str, Any]
T = TypeVar("T")

_MOST: Final = 1_000
"""So many queues and keys are looked at."""
_MOST_ASKED_ABOUT: Final = 20
"""Queues whose consumers are asked for one by one."""
_PATIENCE_S: Final = 10.0
_NEWEST_DEAD: Final = 100


@dataclass
class Facts:
    """What is None was not to be seen; `unseen` says what that was, and why."""

    url: str
    token: bool
    now_ms: int
    health: Record
    answered_ms: float
    """How long the server took to say how it is."""
    manifest: Record = field(default_factory=dict)
    clock_off_ms: int | None = None
    """How far the server's clock is ahead of the one here; what the answer took is not known better than by half."""
    system: Record | None = None
    queues: list[dict[str, Any]] | None = None
    consumers: dict[str, int] = field(default_factory=dict)
    """Of queues that have jobs and no worker that names them."""
    workers: list[dict[str, Any]] | None = None
    keys: list[dict[str, Any]] | None = None
    pools: list[dict[str, Any]] | None = None
    dead_letters: Record | None = None
    newest_dead: list[dict[str, Any]] = field(default_factory=list)
    unseen: dict[str, str] = field(default_factory=dict)


def gathered(client: Headgate) -> Facts:
    """Raises OjsError when the server cannot be reached at all."""
    facts = _health(client)
    facts.manifest = _try(facts, "manifest", client.admin.manifest, {})
    facts.clock_off_ms = _try(facts, "clock", lambda: _clock_off(client), None)
    facts.system = _try(
        facts, "settings", lambda: client.admin.request("GET", "/admin/system/config"), None
    )
    facts.queues = _try(
        facts, "queues", lambda: listed(client, "/admin/queues", None, _MOST)[0], None
    )
    facts.workers = _try(
        facts, "workers", lambda: listed(client, "/admin/workers", None, _MOST)[0], None
    )
    facts.keys = _try(facts, "keys", lambda: listed(client, "/rate-limits", None, _MOST)[0], None)
    facts.pools = _try(facts, "pools", lambda: listed(client, "/admin/pools")[0], None)
    facts.dead_letters = _try(
        facts, "dead letters", lambda: client.admin.request("GET", "/dead-letter/stats"), None
    )
    if facts.dead_letters and facts.dead_letters["total"]:
        facts.newest_dead = _try(
            facts,
            "dead letters",
            lambda: listed(client, "/admin/dead-letter", None, _NEWEST_DEAD)[0],
            [],
        )
    for name in _without_workers(facts)[:_MOST_ASKED_ABOUT]:
        found = _try(facts, "consumers", lambda name=name: _consumers(client, name), None)  # type: ignore[misc]
        if found is not None:
            facts.consumers[name] = found
    return facts  # fmt: skip


def _try(facts: Facts, part: str, ask: Callable[[], T], otherwise: T) -> T:
    from headgate.client.errors import OjsError

    try:
        return ask()
    except OjsError as error:
        facts.unseen[part] = error.message
        return otherwise


def _health(client: Headgate) -> Facts:
    """The answer about the health counts whatever its status: a server that is unwell says so with 503."""
    from msgspec import DecodeError, json

    from headgate.client.errors import BackendError, from_answer
    from headgate.client.sides import background
    from headgate.client.transport.http import HttpTransport

    transport = client.parts.core.transport
    begun_s = clock.elapsed_s()
    answer = background().run(transport.send("GET", "/ojs/v1/health", timeout_s=_PATIENCE_S))
    took_ms = (clock.elapsed_s() - begun_s) * 1000
    try:
        health = json.decode(answer.body)
    except DecodeError:
        health = None
    if not isinstance(health, dict) or "status" not in health:
        if answer.status >= 400:
            raise from_answer(answer.status, health, answer.headers)
        raise BackendError("what answers there is no job server")
    http = transport if isinstance(transport, HttpTransport) else None
    return Facts(
        url=http.url if http else "",
        token=bool(http and http.token),
        now_ms=clock.wall_ms(),
        health=health,
        answered_ms=took_ms,
    )


def _clock_off(client: Headgate) -> int:
    """The queue `default` is always there, and its numbers say when they were taken."""
    from headgate.core.times import instant_ms

    before_ms = clock.wall_ms()
    found = client.admin.request("GET", "/queues/default/stats")
    after_ms = clock.wall_ms()
    return instant_ms(found["computed_at"]) - (before_ms + after_ms) // 2


def _without_workers(facts: Facts) -> list[str]:
    """Queues that give out jobs to nobody whom the server would name; whether somebody fetches all the same must be asked."""
    if facts.queues is None or facts.workers is None:
        return []
    alive = [worker for worker in facts.workers if worker["state"] != "stale"]
    served = {queue for worker in alive for queue in worker["queues"]}
    return [
        queue["name"]
        for queue in facts.queues
        if queue["counts"]["available"] and not queue["paused"] and queue["name"] not in served
    ]


def _consumers(client: Headgate, queue: str) -> int | None:
    """Workers and fetches that serve the queue, as an explanation of one of its jobs counts them."""
    jobs, _ = listed(client, "/admin/jobs", {"queue": queue, "state": "available"}, 1)
    return int(client.explain(jobs[0]["id"])["consumers"]) if jobs else None
