"""What a handler raises to say how its job goes on, other than by failing."""

from __future__ import annotations

from datetime import datetime

from headgate.client.amounts import Duration, Instant, at_ms, ms_of
from headgate.core.times import SECOND_MS


class Signal(Exception):
    """Not an error of the handler, but its decision."""


class RateLimited(Signal):
    """Somebody else's limit was met: hold all jobs of this key until then, and run this one again after it.

    No attempt is charged. `key` chooses among several keys of the job, by default its first one. A job without a key is put off alone.
    """

    def __init__(
        self,
        message: str = "",
        *,
        until: Instant | None = None,
        retry_after: Duration | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(message or "rate limited")
        if until is not None and retry_after is not None:
            raise TypeError("RateLimited takes either until or retry_after")
        self.until: datetime | str | None = until
        self.retry_after = retry_after
        self.key = key

    def until_ms(self, now_ms: int) -> int:
        """When the limit opens; a minute from now when nobody said."""
        if self.until is not None:
            return at_ms(self.until, "until")
        after = (
            60 * SECOND_MS if self.retry_after is None else ms_of(self.retry_after, "retry_after")
        )
        return now_ms + after


class Snooze(Signal):
    """Run the job again later; no attempt is charged."""

    def __init__(self, after: Duration, message: str = "") -> None:
        super().__init__(message or "snoozed")
        self.after_ms = ms_of(after, "after")


class Retry(Signal):
    """The attempt failed, and the job is to be run again, `after` so long where the server knows how; else as its policy says."""

    def __init__(self, message: str = "", *, after: Duration | None = None) -> None:
        super().__init__(message or "retry asked for")
        self.after_ms = None if after is None else ms_of(after, "after")


class Discard(Signal):
    """Trying again is pointless. With `dead_letter` the job is kept aside."""

    def __init__(self, message: str = "", *, dead_letter: bool = False) -> None:
        super().__init__(message or "discarded by its handler")
        self.dead_letter = dead_letter


class Interrupted(BaseException):
    """Raised inside a handler in a thread that shall stop.

    Not an Exception, so that a handler that catches those does not go on by mistake.
    """
