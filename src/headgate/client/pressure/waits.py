"""How long to wait before a refused request is sent again."""

from __future__ import annotations

from msgspec import Struct


class Waits(Struct, frozen=True):
    """After a 429: Retry-After, or a second, then twice as long each time, up to the cap.

    After a failure of server or network: a tenth of a second, then twice as long each time, multiplied by a random factor from 0.5 to 1.5.
    """

    tries: int = 5
    """How often a request is sent at most."""
    cap_s: float = 30.0
    first_s: float = 1.0
    """After a 429 without Retry-After."""
    failure_first_s: float = 0.1

    def refused(self, before_s: float, retry_after_s: float | None) -> float:
        """The wait after a 429; `before_s` is the one before it, 0 if this is the first."""
        asked = self.first_s if retry_after_s is None else retry_after_s
        return min(self.cap_s, max(asked, 2 * before_s))

    def failed(self, times: int, uniform: float) -> float:
        """The wait after the so-many-th failure in a row."""
        raw = self.failure_first_s * 2.0 ** (min(times, 30) - 1)
        return min(self.cap_s, raw * (0.5 + uniform))
