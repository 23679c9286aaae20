"""Gates: what a key allows to start now, and when it will allow more.

A gate has one record: its limits, an override of them, the jobs that hold a slot, the starts of late and a hold.
Taking and releasing read and write that same record, so no two producers can over-admit by stating different limits.
A gate knows no queue, no job but its holders, and no clock; time is in microseconds unless a name says otherwise.

The window algorithm is a sliding window (`windows.Window`).
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from headgate.core.times import LAST_INSTANT_MS
from headgate.core.windows import Pace, Rate, Window

__all__ = [
    "UNKNOWN_US",
    "UNLIMITED",
    "Closed",
    "Gate",
    "GateState",
    "Kind",
    "Limits",
    "LimitsChange",
    "Override",
    "Rate",
    "changed",
]

Kind: TypeAlias = Literal["concurrency", "rate", "throttle", "hold"]

UNLIMITED: Final = 2**31
"""What `permits` says when nothing limits it."""

UNKNOWN_US: Final = 1_000_000
"""After so long it is worth a look where nobody knows when a gate opens."""

_LAST_US: Final = LAST_INSTANT_MS * 1000

_NOBODY: Final[dict[str, int]] = {}
"""Shared by all gates without holders, because there may be as many as jobs; it stays empty."""
_KINDS: Final[tuple[Kind, ...]] = ("hold", "concurrency", "rate", "throttle")
"""In this order a closed gate names its reason."""


class Limits(Struct, frozen=True, array_like=True, gc=False):
    """The policy of a key; None where it has no such limit."""

    concurrency: int | None = None
    rate: Rate | None = None
    throttle: Rate | None = None


class LimitsChange(Struct, frozen=True, gc=False):
    """Given replaces, None clears, UNSET leaves."""

    concurrency: int | UnsetType | None = UNSET
    rate: Rate | UnsetType | None = UNSET
    throttle: Rate | UnsetType | None = UNSET


def changed(limits: Limits, change: LimitsChange) -> Limits:
    """The limits after the change."""
    return Limits(
        limits.concurrency if change.concurrency is UNSET else change.concurrency,
        limits.rate if change.rate is UNSET else change.rate,
        limits.throttle if change.throttle is UNSET else change.throttle,
    )


class Override(Struct, frozen=True, array_like=True, gc=False):
    """What holds instead, for a time."""

    limits: Limits
    members: tuple[str, ...]
    """Which of the three it replaces, None included."""
    expires_at: int = 0
    """Milliseconds; 0 means never."""


class Closed(Struct, frozen=True, gc=False):
    """Why nothing may start."""

    kind: Kind
    limit: int
    """0 of a hold."""
    current: int
    """Holders, starts in the window; of a throttle 1, the start of this interval; 0 of a hold."""
    opens_at_us: int | None
    """When it opens if nothing else happens; None when only a holder or a command can open it."""


class GateState(Struct, frozen=True):
    """What can be told of a gate; None where it has no such limit."""

    limits: Limits
    active: int
    available: int | None
    """Free slots; never below zero."""
    current_count: int
    window_resets_at_us: int | None
    """When all starts that count now will have left the window."""
    next_allowed_at_us: int | None
    """When the throttle allows the next start."""
    hold_until_us: int
    """0 when nothing holds it."""
    hold_reason: str
    override: Override | None


class _Packed(Struct, array_like=True):
    limits: Limits
    override: Override | None
    hold_until_us: int
    hold_reason: str
    window: tuple[Rate, tuple[int, list[int], list[int]]] | None
    other_window: tuple[Rate, tuple[int, list[int], list[int]]] | None
    pace: tuple[int, int, Rate | None] | None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Packed)


class Gate:
    """The record of one key.

    `limits` changes by `register` and `override` by `impose` alone, because a window goes with each.
    """

    __slots__ = (
        "_other_window",
        "_overridden",
        "_pace",
        "_window",
        "hold_reason",
        "hold_until_us",
        "holders",
        "key",
        "limits",
        "override",
    )

    def __init__(self, key: str, limits: Limits | None = None) -> None:
        self.key = key
        self.limits = limits or Limits()
        self.override: Override | None = None
        self.hold_until_us = 0
        self.hold_reason = ""
        self.holders = _NOBODY
        """Job id to claim, in order of start."""
        self._overridden = self.limits
        # Each rate has its own window, so that each keeps its guarantee when the override ends.
        self._window = None if self.limits.rate is None else Window(self.limits.rate)
        self._other_window: Window | None = None
        self._pace: Pace | None = None
        """None until somebody has passed; there may be as many gates as jobs."""

    def effective(self, now_us: int) -> Limits:
        """The override over the limits, until it expires."""
        return self._overridden if self._overridden_at(now_us) else self.limits

    def closed(self, now_us: int) -> Closed | None:
        """Why nothing may start now: a hold, else concurrency, else the rate, else the throttle.

        `opens_at_us` is the instant at which all reasons are over; a holder that leaves or a command may open the gate sooner.
        """
        limits, window = self._in_force(now_us)
        full = limits.concurrency is not None and len(self.holders) >= limits.concurrency
        held_until = self.hold_until_us
        room_at = 0 if window is None else window.opens_us()
        due_at = 0 if limits.throttle is None else self._due_us(limits.throttle)
        if not full and held_until <= now_us and room_at <= now_us and due_at <= now_us:
            return None
        kind: Kind = (
            "hold"
            if held_until > now_us
            else "concurrency"
            if full
            else "rate"
            if room_at > now_us
            else "throttle"
        )
        if self.override is not None:
            at = self._opens_at(_KINDS, now_us)
        else:
            at = None if full else max(held_until, room_at, due_at)
        limit, current = self._measure(kind, limits, window, now_us)
        return Closed(kind, limit, current, at)

    def closings(self, now_us: int) -> list[Closed]:
        """Every reason why nothing may start now, each with the instant at which it alone is over."""
        limits, window = self._in_force(now_us)
        found = []
        for kind in _KINDS:
            at = self._over_at(kind, limits, window)
            if at is None or at > now_us:
                limit, current = self._measure(kind, limits, window, now_us)
                found.append(Closed(kind, limit, current, self._opens_at((kind,), now_us)))
        return found

    def permits(self, now_us: int) -> int:
        """How many jobs this gate alone would let start now."""
        if self.hold_until_us > now_us:
            return 0
        limits, window = self._in_force(now_us)
        free = UNLIMITED
        if limits.concurrency is not None:
            free = min(free, limits.concurrency - len(self.holders))
        if window is not None:
            free = min(free, window.room(now_us))
        if limits.throttle is not None:
            free = min(free, 1 if self._due_us(limits.throttle) <= now_us else 0)
        return max(free, 0)

    def predict(self, ahead: int, now_us: int) -> int:
        """When a job could start if `ahead` others go first, each as soon as it may.

        Nobody knows when a holder leaves, or a limit of 0 is changed: then it is worth a look after `UNKNOWN_US`, but not before all else allows it.
        Where rate and throttle are both at work it may be too early, never too late; where an override ends in between, all are reckoned to go after its end.
        """
        limits, window = self._in_force(now_us)
        at = self._expected(limits, window, ahead, now_us, now_us)
        if self.override is not None and self._overridden_at(now_us):
            end = self.override.expires_at * 1000
            if end and (at is None or at >= end):
                window = None if self.limits.rate is None else self._window
                at = self._expected(self.limits, window, ahead, end, now_us)
        if at is None:
            at = max(now_us + UNKNOWN_US, self.hold_until_us)
        return min(at, _LAST_US)

    def _expected(
        self, limits: Limits, window: Window | None, ahead: int, from_us: int, now_us: int
    ) -> int | None:
        """The same from then on under these limits; None where they let nothing start at all."""
        if limits.concurrency == 0:
            return None
        earliest = max(from_us, self.hold_until_us)
        at = earliest
        if limits.concurrency is not None and len(self.holders) >= limits.concurrency:
            at = max(at, now_us + UNKNOWN_US)
        if window is not None:
            periods, rest = divmod(ahead, window.rate.limit)
            room_at = max(earliest, window.opens_us(rest)) + periods * window.rate.period_us
            at = max(at, room_at)
        if limits.throttle is not None:
            due = max(earliest, self._due_us(limits.throttle))
            at = max(at, due - (-ahead * limits.throttle.period_us // limits.throttle.limit))
        return at

    def start(self, job_id: str, claim: int, now_us: int) -> None:
        """Let a job start: it takes a slot and counts in window and pace.

        Whoever calls has asked `closed` in the same step.
        """
        if self.override is not None and not self._overridden_at(now_us):
            self.impose(None)
        self.take(job_id, claim)
        if self._window is not None:
            self._window.start(now_us)
        if self._other_window is not None:
            self._other_window.start(now_us)
        if self._pace is None:
            self._pace = Pace()
        self._pace.start(now_us, self._overridden.throttle)

    def take(self, job_id: str, claim: int) -> None:
        """Let a job hold a slot, as the last of them."""
        if not self.holders:
            self.holders = {}
        self.holders.pop(job_id, None)
        self.holders[job_id] = claim

    def release(self, job_id: str, claim: int) -> bool:
        """Give the slot back; false when that reservation holds none."""
        if self.holders.get(job_id) != claim:
            return False
        del self.holders[job_id]
        if not self.holders:
            self.holders = _NOBODY
        return True

    def hold(self, until_us: int, reason: str, now_us: int) -> bool:
        """Close until then; a hold is never shortened, and the past is ignored."""
        if until_us <= now_us or until_us <= self.hold_until_us:
            return False
        self.hold_until_us = until_us
        self.hold_reason = reason
        return True

    def lift(self) -> bool:
        """Take back hold and override; false when there was neither."""
        if not self.hold_until_us and self.override is None:
            return False
        self.hold_until_us = 0
        self.hold_reason = ""
        self.impose(None)
        return True

    def register(self, change: LimitsChange) -> bool:
        """Change the limits member by member; false when they stay what they were.

        What the window has observed keeps counting under the new rate, also after a time without one.
        """
        old = self.limits
        new = changed(old, change)
        if new == old:
            return False
        self.limits = new
        if new.rate is not None and self._window is None:
            self._window = self._observing(new.rate)
        elif new.rate is not None and new.rate != old.rate and self._window is not None:
            self._window.change(new.rate)
        self._overridden = self._under(self.override)
        return True

    def impose(self, override: Override | None) -> bool:
        """Replace the override as a whole, None for none; false when it stays what it was."""
        if override == self.override:
            return False
        self.override = override
        self._overridden = self._under(override)
        if override is None or "rate" not in override.members or override.limits.rate is None:
            self._other_window = None
        else:
            self._other_window = self._observing(override.limits.rate)
        return True

    def idle(self, now_us: int) -> bool:
        """Whether the gate could be forgotten without anybody noticing, but for its limits."""
        at = self.idle_at()
        return at is not None and at <= now_us

    def idle_at(self) -> int | None:
        """From when on it is idle if nothing happens; None when only a holder or a command can tell."""
        if self.holders:
            return None
        at = self.hold_until_us
        if self.override is not None:
            if not self.override.expires_at:
                return None
            at = max(at, self.override.expires_at * 1000)
        for window in (self._window, self._other_window):
            if window is not None:
                at = max(at, window.empty_us())
        for throttle in (self.limits.throttle, self._overridden.throttle):
            if throttle is not None:
                at = max(at, self._due_us(throttle))
        return at

    @property
    def last_start_us(self) -> int | None:
        return None if self._pace is None else self._pace.last_us

    def state(self, now_us: int) -> GateState:
        limits, window = self._in_force(now_us)
        resets_at = next_at = None
        if window is not None:
            window.forget(now_us)
            resets_at = max(now_us, window.empty_us())
        if limits.throttle is not None:
            next_at = max(now_us, self._due_us(limits.throttle))
        held = self.hold_until_us > now_us
        return GateState(
            limits,
            len(self.holders),
            None if limits.concurrency is None else max(0, limits.concurrency - len(self.holders)),
            0 if window is None else window.count,
            resets_at,
            next_at,
            self.hold_until_us if held else 0,
            self.hold_reason if held else "",
            self.override if self._overridden_at(now_us) else None,
        )

    def pack(self) -> bytes:
        """What must survive a restart, without the holders: those are the active jobs."""
        window, other = self._window, self._other_window
        return _encoder.encode(
            _Packed(
                self.limits,
                self.override,
                self.hold_until_us,
                self.hold_reason,
                None if window is None else (window.rate, window.packed()),
                None if other is None else (other.rate, other.packed()),
                None if self._pace is None else self._pace.packed(),
            )
        )

    @classmethod
    def unpack(cls, key: str, packed: bytes) -> Gate:
        found = _decoder.decode(packed)
        gate = cls(key, found.limits)
        gate.override = found.override
        gate._overridden = gate._under(found.override)
        gate.hold_until_us = found.hold_until_us
        gate.hold_reason = found.hold_reason
        if found.window is not None:
            gate._window = Window.unpacked(*found.window)
        if found.other_window is not None:
            gate._other_window = Window.unpacked(*found.other_window)
        if found.pace is not None:
            gate._pace = Pace.unpacked(found.pace)
        return gate

    def _due_us(self, throttle: Rate) -> int:
        """When the throttle allows the next start; 0 when there was none yet."""
        return 0 if self._pace is None else self._pace.due_us(throttle)

    def _overridden_at(self, now_us: int) -> bool:
        override = self.override
        return override is not None and (
            not override.expires_at or now_us < override.expires_at * 1000
        )

    def _in_force(self, now_us: int) -> tuple[Limits, Window | None]:
        """The limits now, and the window of their rate if they have one."""
        if self.override is None or not self._overridden_at(now_us):
            return self.limits, None if self.limits.rate is None else self._window
        limits = self._overridden
        if limits.rate is None:
            return limits, None
        return limits, self._other_window or self._window

    def _under(self, override: Override | None) -> Limits:
        if override is None:
            return self.limits
        members = override.members
        return Limits(
            (override if "concurrency" in members else self).limits.concurrency,
            (override if "rate" in members else self).limits.rate,
            (override if "throttle" in members else self).limits.throttle,
        )

    def _observing(self, rate: Rate) -> Window:
        """A window for this rate that knows what the longest memory here knows."""
        known = [w for w in (self._window, self._other_window) if w is not None]
        if not known:
            return Window(rate)
        return max(known, key=lambda window: window.rate.period_us).copy(rate)

    def _opens_at(self, kinds: tuple[Kind, ...], now_us: int) -> int | None:
        """When these reasons are over, also by the end of the override."""
        at = self._latest(kinds, *self._in_force(now_us))
        if self.override is None or not self._overridden_at(now_us):
            return at
        end = self.override.expires_at * 1000
        if not end or (at is not None and at < end):
            return at
        at = self._latest(kinds, self.limits, None if self.limits.rate is None else self._window)
        return None if at is None else max(at, end)

    def _latest(self, kinds: tuple[Kind, ...], limits: Limits, window: Window | None) -> int | None:
        latest = 0
        for kind in kinds:
            at = self._over_at(kind, limits, window)
            if at is None:
                return None
            latest = max(latest, at)
        return latest

    def _over_at(self, kind: Kind, limits: Limits, window: Window | None) -> int | None:
        """The instant from which this reason no longer stands under these limits; None if unknown."""
        match kind:
            case "hold":
                return self.hold_until_us
            case "concurrency":
                full = limits.concurrency is not None and len(self.holders) >= limits.concurrency
                return None if full else 0
            case "rate":
                return 0 if window is None else window.opens_us()
            case "throttle":
                return 0 if limits.throttle is None else self._due_us(limits.throttle)

    def _measure(
        self, kind: Kind, limits: Limits, window: Window | None, now_us: int
    ) -> tuple[int, int]:
        match kind:
            case "hold":
                return 0, 0
            case "concurrency":
                return limits.concurrency or 0, len(self.holders)
            case "rate":
                if window is None:
                    return 0, 0
                window.forget(now_us)
                return window.rate.limit, window.count
            case "throttle":
                return (0, 0) if limits.throttle is None else (limits.throttle.limit, 1)
