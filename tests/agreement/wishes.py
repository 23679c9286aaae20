"""What the stories ask for, in a form that reads well when a story fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, cast

import msgspec
from hypothesis import strategies as st
from msgspec import UNSET

from headgate.core.gates import Limits, LimitsChange, Override, Rate
from headgate.core.job import Job, More
from headgate.core.limits import Use, change_json, full_key
from headgate.core.order import Strategy
from headgate.core.pools import Pool, Starvation
from headgate.core.retry import Failure, RetryPolicy
from headgate.core.tenants import Fairness, TenantLimits
from headgate.core.unique import UniquePolicy
from headgate.engines.contract import Draft, Fetch, Page, Query

QUEUES = ("a", "b", "default")
TYPES = ("mail.send", "mail.read", "sum")
WORKERS = ("w1", "w2", "")
PRIORITIES = (0, 5, -5)
TENANTS = ("t1", "t2")
KEYS = ("k1", "k2", "k3")
STATES = (
    "available", "scheduled", "pending", "active", "retryable", "completed", "cancelled", "discarded",
)  # fmt: skip

POLICIES = {
    "three": RetryPolicy(initial_ms=1_000),
    "once": RetryPolicy(max_attempts=1),
    "never": RetryPolicy(max_attempts=0),
    "buried": RetryPolicy(max_attempts=2, jitter=False, on_exhaustion="dead_letter"),
    "picky": RetryPolicy(max_attempts=9, initial_ms=5, non_retryable=("Fatal.*",)),
}

FAILURES = {
    "plain": Failure("handler_error", "boom"),
    "fatal": Failure("handler_error", "boom", type="Fatal.disk"),
    "final": Failure("handler_error", "boom", retryable=False),
    "discard": Failure("DISCARD", "no more"),
    "bury": Failure("handler_error", "boom", details={"directive": "DEAD_LETTER"}),
    "requeue": Failure("handler_error", "later", requeue=True),
    "snooze": Failure("snoozed", "later", requeue=True, retry_after_ms=700, deferred=True),
    "defer": Failure("rate_limited", "later", requeue=True, deferred=True),
    "after": Failure("handler_error", "boom", retry_after_ms=2_500),
    "at once": Failure("handler_error", "boom", retry_after_ms=0),
}

SECOND = 1_000_000
LIMITS = {
    "": LimitsChange(),
    "one": LimitsChange(concurrency=1),
    "two": LimitsChange(concurrency=2),
    "nobody": LimitsChange(concurrency=0),
    "1/s": LimitsChange(rate=Rate(1, SECOND)),
    "2/5s": LimitsChange(rate=Rate(2, 5 * SECOND)),
    "3/100ms": LimitsChange(rate=Rate(3, SECOND // 10)),
    "each 1s": LimitsChange(throttle=Rate(1, SECOND)),
    "each 333ms": LimitsChange(throttle=Rate(3, SECOND)),
    "each 500us": LimitsChange(throttle=Rate(2_000, SECOND)),
    "two, 3/5s": LimitsChange(concurrency=2, rate=Rate(3, 5 * SECOND)),
    "one, each 1s": LimitsChange(concurrency=1, throttle=Rate(1, SECOND)),
    "anything": LimitsChange(concurrency=None, rate=None, throttle=None),
}
"""What may be said of a key."""


class Key(NamedTuple):
    """A key that a job is to pass, what is said of it, and what happens where it is closed."""

    name: str
    limits: str = ""
    on_limit: str = "wait"
    scope: str = "global"

    def __repr__(self) -> str:
        unusual = [repr(v) for v in self[:2]]
        unusual += [f"{n}={v!r}" for n, v in zip(self._fields[2:], self[2:], strict=True)]
        usual = ("on_limit='wait'", "scope='global'")
        return f"Key({', '.join(part for part in unusual if part not in usual)})"

    def use(self) -> Use:
        scope = cast("Literal['global', 'tenant']", self.scope)
        on_limit = cast("Literal['wait', 'reschedule', 'drop']", self.on_limit)
        return Use(self.name, scope, on_limit, LIMITS[self.limits])

    def wire(self) -> dict[str, Any]:
        """As its producer wrote it."""
        said = {"key": self.name, "on_limit": self.on_limit, "scope": self.scope}
        return said | change_json(LIMITS[self.limits])


class Wish(NamedTuple):
    """A job that somebody wants to push; shows only what is unusual about it."""

    id: str
    queue: str = "a"
    keys: tuple[Key, ...] = ()
    type: str = "mail.send"
    priority: int = 0
    start: str = "now"
    """now, pending, or how many ms later"""
    expires_in: int = 0
    ttl: int = 0
    """Like expires_in, under another name."""
    total: int = 0
    timeout_ms: int = 1_800_000
    visibility_ms: int = 0
    stall_ms: int = 0
    retry: str = "three"
    unique: str = ""
    conflict: str = "reject"
    period_ms: int = 0
    states: tuple[str, ...] = ()
    tenant: str = ""
    parent: str = ""

    def __repr__(self) -> str:
        unusual = [
            f"{name}={value!r}"
            for name, value in self._asdict().items()
            if value != self._field_defaults.get(name, ...)
        ]
        return f"Wish({', '.join(unusual)})"

    def draft(self, now: int) -> Draft:
        later = 0 if self.start in {"now", "pending"} else int(self.start)
        state = "scheduled" if later else "pending" if self.start == "pending" else "available"
        policy = POLICIES[self.retry]
        meta = f'"meta":{{"tenant_id":"{self.tenant}"}}' if self.tenant else '"meta":{}'
        more = None
        if self.ttl or self.total or self.stall_ms:
            more = More(
                errors=[],
                give_up_at=now + self.total if self.total else 0,
                expires_as="enqueue_ttl_expired" if self.ttl else "",
                stall_ms=self.stall_ms,
            )
        lifetime = self.ttl or self.expires_in
        if self.parent:
            meta += f',"parent_id":"{self.parent}","root_id":"j1"'
        uses = tuple(key.use() for key in self.keys)
        limits = b',"rate_limit":' + msgspec.json.encode([key.wire() for key in self.keys])
        job = Job(
            self.id,
            self.type,
            self.queue,
            self.priority,
            f'"specversion":"1.0","args":["{self.id}"],{meta}'.encode() + (limits if uses else b""),
            now,
            max_attempts=policy.max_attempts,
            timeout_ms=self.timeout_ms,
            visibility_ms=self.visibility_ms,
            expires_at=now + lifetime if lifetime else 0,
            retry=policy,
            unique=self.unique or None,
            tenant=self.tenant,
            keys=tuple((full_key(use.key, use.scope, self.tenant), use.on_limit) for use in uses),
            state=state,
            due_at=now + later if later else 0,
            more=more,
        )
        return Draft(job, self._policy(), uses=uses)

    def _policy(self) -> UniquePolicy | None:
        if not self.unique:
            return None
        given: dict[str, Any] = {"on_conflict": self.conflict, "period_ms": self.period_ms or None}
        if self.states:
            given["states"] = frozenset(self.states)
        return UniquePolicy(**given)


def rarely(usual: Any, *unusual: Any) -> st.SearchStrategy[Any]:
    """Mostly the usual, which is also what a failing story is simplified to."""
    return st.sampled_from([usual] * 4 + list(unusual) + [usual] * 4)


def _different(keys: Sequence[Key]) -> tuple[Key, ...]:
    """A job names no key twice."""
    return tuple({(key.name, key.scope): key for key in keys}.values())


def key_wishes(least: int, most: int) -> st.SearchStrategy[tuple[Key, ...]]:
    key = st.builds(
        Key,
        name=st.sampled_from(KEYS),
        limits=st.sampled_from(list(LIMITS)),
        on_limit=rarely("wait", "wait", "reschedule", "drop"),
        scope=rarely("global", "tenant"),
    )
    return st.lists(key, min_size=least, max_size=most).map(_different)


def wishes(ids: st.SearchStrategy[str]) -> st.SearchStrategy[Wish]:
    """All kinds of jobs; some of them pass keys."""
    return st.builds(
        Wish,
        id=ids,
        queue=st.sampled_from(QUEUES[:2]),
        keys=st.one_of(st.just(()), st.just(()), key_wishes(0, 2)),
        type=st.sampled_from(TYPES),
        priority=rarely(0, 5, -5),
        start=rarely("now", "pending", "1", "100", "5000", "40000"),
        expires_in=rarely(0, 1, 100, 5_000),
        ttl=rarely(0, 0, 1_000),
        total=rarely(0, 1_000, 40_000, 4_000_000),
        timeout_ms=rarely(1_800_000, 1, 1_000, 30_000),
        visibility_ms=rarely(0, 100, 1_000, 30_000, 90_000),
        stall_ms=rarely(0, 0, 1_000, 30_000),
        retry=st.sampled_from(list(POLICIES)),
        unique=rarely("", "u1", "u1", "u2"),
        conflict=st.sampled_from(["reject", "ignore", "replace", "replace_except_schedule"]),
        period_ms=rarely(0, 1_000),
        states=rarely((), ("active",), STATES, ("scheduled", "completed", "discarded")),
        tenant=rarely("", "t1"),
        parent=rarely("", "j1", "j2"),
    )


def flow_wishes(ids: st.SearchStrategy[str]) -> st.SearchStrategy[Wish]:
    """Plain jobs that meet each other at keys, bounds and tenants."""
    members = st.fixed_dictionaries(
        {
            "id": ids,
            "queue": st.sampled_from(["a", "a", "b"]),
            "keys": st.one_of(key_wishes(0, 1), key_wishes(1, 1), key_wishes(1, 3)),
            "priority": rarely(0, 0, 5),
            "start": rarely("now", "now", "100", "pending"),
            "expires_in": rarely(0, 0, 1_000),
            "visibility_ms": rarely(0, 0, 1_000),
            "retry": st.sampled_from(["three", "once", "buried"]),
            "unique": rarely("", "", "u1"),
            "conflict": st.sampled_from(["replace", "ignore", "reject"]),
            "tenant": st.sampled_from(["", "t1", "t2"]),
        }
    )
    return members.map(lambda given: Wish(**given))


# Those who take jobs

orders = rarely(["a", "b"], ["b", "a"], ["a"], ["b"], ["a", "b", "a"], ["default", "dlq"])
micros = rarely(0, 0, 1, 499, 999)


@st.composite
def fetches(draw: st.DrawFn, counts: Sequence[int] = (1, 2, 9)) -> Fetch:
    """By the name of a pool, by a strategy of its own, or simply in the order given; for one tenant or for all."""
    strategy = draw(rarely("", "round-robin", "weighted", "least-loaded", "strict"))
    queues = draw(
        st.sampled_from([["a", "b"], ["b", "a"], ["a", "b", "dlq"]]) if strategy else orders
    )
    weights = draw(st.sampled_from([[2, 1, 1], [1, 3, 1]])) if strategy == "weighted" else []
    return Fetch(
        queues,
        draw(st.sampled_from(counts)),
        draw(st.sampled_from(WORKERS)),
        draw(rarely(0, 0, 100, 60_000)),
        pool=draw(rarely("", "p1", "p2", "other")),
        tenant=draw(rarely("", "", "t1", "t2")),
        strategy=strategy,
        weights=weights[: len(queues)],
        micros=draw(micros),
    )


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    queues = draw(st.sampled_from([("a", "b"), ("b", "a"), ("a",), ("b",), ("a", "b", "dlq")]))
    strategy: Strategy = draw(
        st.sampled_from(["round-robin", "strict", "weighted", "least-loaded"])
    )
    starvation = draw(
        rarely(
            Starvation(),
            Starvation(enabled=True, interval_ms=1_000, ratio=0.3),
            Starvation(enabled=True, interval_ms=5_000, ratio=0.0),
        )
    )
    return Pool(
        draw(st.sampled_from(["default", "p1", "p2"])),
        queues,
        draw(st.sampled_from([(1, 1, 1), (3, 1, 2)]))[: len(queues)],
        strategy,
        concurrency=draw(rarely(None, 1, 2)),
        isolated=draw(rarely(False, True)),
        starvation=starvation,
        fairness=draw(rarely(None, Fairness(enabled=True), Fairness(enabled=False))),
    )


tenant_limits = st.builds(
    TenantLimits,
    max_concurrency=rarely(None, 1, 2),
    max_enqueue_rate=rarely(None, Rate(2, SECOND), Rate(1, 5 * SECOND)),
    max_queue_depth=rarely(None, 1, 3),
    max_scheduled=rarely(None, 1),
    fairness_weight=st.sampled_from([1, 3]),
)


@st.composite
def overrides(draw: st.DrawFn, now: int) -> Override:
    change = LIMITS[draw(st.sampled_from([name for name in LIMITS if name]))]
    members = tuple(name for name in ("concurrency", "rate", "throttle") if _said(change, name))
    limits = Limits(
        *(getattr(change, n) if n in members else None for n in Limits.__struct_fields__)
    )
    later = draw(st.sampled_from([0, 100, 1_000, 60_000]))
    return Override(limits, members, now + later if later else 0)


def _said(change: LimitsChange, name: str) -> bool:
    return bool(getattr(change, name) is not UNSET)


SETTINGS: dict[str, dict[str, Any]] = {
    "short leases": {"visibility_timeout": 1},
    "long leases": {"visibility_timeout": 60},
    "usual leases": {"visibility_timeout": None},
    "one at a time": {"concurrency": 1},
    "any number at a time": {"concurrency": None},
    "two a second": {"rate_limit": {"limit": 2, "period": "PT1S"}},
    "evenly": {"rate_limit": {"throttle": {"limit": 1, "period": "PT1S"}}},
    "at any rate": {"rate_limit": {"rate": None, "throttle": None}},
    "two wait": {"backpressure": {"max_depth": 2, "strategy": "reject"}},
    "three wait, line": {"backpressure": {"max_depth": 3, "strategy": "block"}},
    "two wait, oldest goes": {"backpressure": {"max_depth": 2, "strategy": "drop_oldest"}},
    "three live": {"max_size": 3},
    "three live, line": {"max_size": 3, "overflow_policy": "block"},
    "a kilobyte": {"max_size_bytes": 1_000},
    "a kilobyte, oldest goes": {"max_size_bytes": 1_000, "overflow_policy": "drop_oldest"},
    "no bounds": {"backpressure": None, "max_size": None, "max_size_bytes": None},
    "fair": {"tenant_fairness": {"enabled": True}},
    "fair by weight": {"tenant_fairness": {"enabled": True, "weights": {"t1": 3}}},
    "unfair": {"tenant_fairness": None},
    "dead letters": {"dead_letter_queue": "dlq"},
    "no dead letters": {"dead_letter_queue": None},
}
"""What may be said of a queue."""

sorts = ("created_at", "enqueued_at", "started_at", "finished_at", "priority")
pages = st.builds(
    Page,
    limit=st.sampled_from([50, 1, 3]),
    offset=rarely(0, 1, 2),
    sort=st.sampled_from(sorts),
    newest_first=st.booleans(),
)
instants = st.none() | st.integers(1_000_000, 1_100_000)
"""Around the time at which stories begin."""
queries = st.builds(
    Query,
    queue=rarely(None, *QUEUES),
    states=st.lists(st.sampled_from(STATES), max_size=3).map(tuple),
    type=rarely(None, "mail.*", "mail.send", "*", "nobody.*"),
    priority=rarely(None, *PRIORITIES),
    created_from=rarely(None, 1_000_000, 1_000_100),
    created_until=rarely(None, 1_000_101, 1_050_000),
    enqueued_from=rarely(None, 1_000_000, 1_005_000),
    enqueued_until=rarely(None, 1_000_101, 1_050_000),
    worker=rarely(None, "w1", ""),
    error_type=rarely(None, "handler_error", "visibility_timeout", "Fatal.disk"),
    meta=rarely(None, {"tenant_id": "t1"}, {"absent": 1}),
    dead=rarely(False, True),
    key=rarely(None, "k1"),
    tenant=rarely(None, "t1", "_default"),
    parent=rarely(None, "j1"),
    root=rarely(None, "j1"),
)
