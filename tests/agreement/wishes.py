"""What the stories ask for, in a form that reads well when a story fails."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

from headgate.core.job import Job, More
from headgate.core.retry import Failure, RetryPolicy
from headgate.core.unique import UniquePolicy
from headgate.engines.contract import Draft, Page, Query

QUEUES = ("a", "b", "default")
TYPES = ("mail.send", "mail.read", "sum")
WORKERS = ("w1", "w2", "")
PRIORITIES = (0, 5, -5)
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
}


class Wish(NamedTuple):
    """A job that somebody wants to push; shows only what is unusual about it."""

    id: str
    queue: str = "a"
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
        job = Job(
            self.id,
            self.type,
            self.queue,
            self.priority,
            f'"specversion":"1.0","args":["{self.id}"],{meta}'.encode(),
            now,
            max_attempts=policy.max_attempts,
            timeout_ms=self.timeout_ms,
            visibility_ms=self.visibility_ms,
            expires_at=now + lifetime if lifetime else 0,
            retry=policy,
            unique=self.unique or None,
            tenant=self.tenant,
            state=state,
            due_at=now + later if later else 0,
            more=more,
        )
        return Draft(job, self._policy())

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


def wishes(ids: st.SearchStrategy[str]) -> st.SearchStrategy[Wish]:
    return st.builds(
        Wish,
        id=ids,
        queue=st.sampled_from(QUEUES[:2]),
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
    )


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
)
