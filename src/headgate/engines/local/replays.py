"""Dead letters that start over by rule.

Nothing is noted on a dead letter: when it starts over follows from its own times and from the rules, so a restart finds the same.
Whoever becomes a dead letter while there are rules gets an alarm, and so does everything that lies there when a rule is set.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from headgate.core.job import Job
from headgate.core.replays import ReplayRule, choose, stamped
from headgate.core.states import ACTIVE, AVAILABLE
from headgate.engines.contract import Replay, Unwanted
from headgate.engines.local.life import Life
from headgate.engines.local.timers import Alarm

REPLAY_RULE: Final = "replay_rule"
BY: Final = "replay_rule"
"""Who let a job start over, in its history."""

LAST: Final = 1 << 62
"""Replays come after everything else that happens in the same instant."""


WEIGHT: Final = 8
"""A dead letter may have to be read from the file first."""


class Replays:
    __slots__ = ("_held_back", "_life", "_pending", "rules")

    def __init__(self, life: Life) -> None:
        self._life = life
        self._held_back: list[str] = []
        """The ids of those that were due in maintenance."""
        self._pending: dict[str, Alarm] = {}
        """By the id of the dead letter; some have become one no more."""
        self.rules: dict[str, ReplayRule] = {}
        life.on_dead = self.consider

    def restore(self, packed: bytes) -> None:
        rule = msgspec.msgpack.decode(packed, type=ReplayRule)
        self.rules[rule.name] = rule

    def set(self, rule: ReplayRule, now: int) -> bool:
        """True when there was none of this name; what lies there already is for the caller to `look` at."""
        known = self.rules.get(rule.name)
        created_at = now if known is None else known.created_at
        rule = msgspec.structs.replace(rule, created_at=created_at, updated_at=now)
        self.rules[rule.name] = rule
        packed = msgspec.msgpack.encode(rule)
        self._life.tables.set_thing(REPLAY_RULE, rule.name, packed)
        return known is None

    def drop(self, name: str) -> bool:
        """False when there is none; alarms that it had set find out when they ring."""
        if self.rules.pop(name, None) is None:
            return False
        self._life.tables.set_thing(REPLAY_RULE, name, None)
        return True

    def consider(self, job: Job) -> None:
        """Let a dead letter start over when a rule says so."""
        if not self.rules and not self._pending:
            return
        timers = self._life.tables.timers
        alarm = self._pending.pop(job.id, None)
        if alarm is not None:
            timers.disarm(alarm)
        chosen = choose(self.rules.values(), job)
        if chosen is None:
            return
        self._pending[job.id] = alarm = Alarm(partial(self._ring, job.id), WEIGHT)
        alarm.seq = LAST + job.seq
        timers.arm(alarm, max(chosen[0], self._life.tables.now))

    def look(self, job: Job, now: int) -> bool:
        """A rule was set: whether this job is a dead letter that starts over at once."""
        if not job.dead:
            return False
        chosen = choose(self.rules.values(), job)
        resting = self._life.tables.maintenance is not None
        if chosen is None or chosen[0] > now or job.state == ACTIVE or resting:
            self.consider(job)
            return False
        return self._start_over(job, chosen[1], now)

    def let_go(self) -> None:
        """Maintenance is over: what was due meanwhile is due now."""
        held_back, self._held_back = self._held_back, []
        for job_id in held_back:
            job = self._life.tables.find(job_id)
            if job is not None and job.dead:
                self.consider(job)

    def _ring(self, job_id: str, at: int) -> None:
        self._pending.pop(job_id, None)
        job = self._life.tables.find(job_id)
        if job is None or not job.dead:
            return
        chosen = choose(self.rules.values(), job)
        if chosen is None:
            return
        if chosen[0] > at:
            self.consider(job)
        elif self._life.tables.maintenance is not None:
            self._held_back.append(job_id)
        elif job.state != ACTIVE:
            # Whoever runs it gives it back or ends it, and then it is looked at again.
            self._start_over(job, chosen[1], at)

    def _start_over(self, job: Job, rule: ReplayRule, at: int) -> bool:
        """False where its queue is not there and may not be made: there it stays."""
        if isinstance(self._life.closed_to(job, Replay()), Unwanted):
            return False
        alarm = self._pending.pop(job.id, None)
        if alarm is not None:
            self._life.tables.timers.disarm(alarm)
        more = job.rare()
        more.replays += 1
        data = {"job_id": job.id, "rule": rule.name, "replay_count": more.replays}
        events = self._life.tables.events
        queue = more.origin or job.queue
        events.add("dead_letter.replayed", at, job.id, job.type, queue, AVAILABLE, data)
        fixed = stamped(job.fixed, rule.name, more.replays, at)
        self._life.revive(job, Replay(fixed=fixed, by=BY, reason=rule.name), at)
        return True
