"""What happens to jobs: every transition of the state table, with its effects, in one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Raw, msgpack
from msgspec.structs import replace

from headgate.core import history, trail
from headgate.core.job import MAX_ERRORS, WAS_SCHEDULED, Job, Step
from headgate.core.limits import Use, plainly
from headgate.core.queues import Resolved
from headgate.core.retry import Discard, Failure, Requeue, RetryAt, decide
from headgate.core.states import (
    ACTIVE,
    AVAILABLE,
    CANCEL,
    CANCELLED,
    COMPLETED,
    DEAD_LETTER,
    DISCARDED,
    DUE,
    FAIL,
    PENDING,
    REQUEUE,
    RESCHEDULE,
    RETRY,
    RETRYABLE,
    SCHEDULED,
    TERMINAL,
    TIMEOUT,
    VISIBILITY_EXPIRY,
    WORKER_DEATH,
)
from headgate.engines.contract import Checkpoint, Draining, Replay, Unwanted
from headgate.engines.local.kept import Kept
from headgate.engines.local.keys import Key
from headgate.engines.local.queue import Queue, size_of
from headgate.engines.local.rows import changed
from headgate.engines.local.tables import Tables
from headgate.engines.local.timers import NEVER

CHECKPOINT = "checkpoint"
LARGEST_RESULT_IN_EVENT = 4_096
"""Larger results are left out of events, which are kept in memory."""


class Life:
    """`at` is the instant at which the thing happens, in ms."""

    __slots__ = ("_kept", "_tell", "on_buried", "on_dead", "on_held_back", "tables")

    def __init__(self, tables: Tables, kept: Kept) -> None:
        self.tables = tables
        self._kept = kept
        self._tell = tables.events.add_job
        self.on_buried: Callable[[Resolved, int], None] | None = None
        """Called with what holds in the queue from which a dead letter came."""
        self.on_held_back: Callable[[Job], None] | None = None
        """Called with a job that came due in maintenance."""
        self.on_dead: Callable[[Job], None] | None = None
        """Called with a dead letter that nobody runs: when it became one, or was given back."""

    # into the line

    def accept(self, job: Job, at: int, uses: Sequence[Use] = ()) -> None:
        """A new job, in the state that it starts in."""
        tables = self.tables
        queue = tables.queues.get(job.queue)
        if queue is None or not queue.exists:
            queue = tables.open_queue(job.queue)
        job.seq = tables.next_seq
        tables.next_seq += 1
        tables.accept(job)
        if uses:
            tables.keys.register(job, uses)
        state = job.state
        if state == AVAILABLE:
            job.enqueued_at = at
            tables.save_new(job)
            queue.recent.enqueued(at)
            self._tell_enqueued(job, at)
            tables.line_up(job)
            return
        tables.save_new(job)
        tables.touch(queue)
        if state == SCHEDULED:
            self._tell("job.scheduled", at, job, {"scheduled_at": job.due_at})
        self._arm_waiting(job)

    def enqueue(self, job: Job, at: int) -> None:
        """Become available as if new: behind everybody of the same priority."""
        was = job.state
        self._stand_last(job, at)
        job.enqueued_at = at
        if was == SCHEDULED:
            job.due_at = WAS_SCHEDULED
        tables = self.tables
        tables.save(job, was)
        tables.queues[job.queue].recent.enqueued(at)
        self._tell_enqueued(job, at)
        tables.line_up(job)
        self._follow(job, at)

    def activate(self, job: Job, at: int) -> None:
        job.rare().activated_at = at
        self.enqueue(job, at)

    def _stand_last(self, job: Job, at: int) -> None:
        tables = self.tables
        tables.number(job)
        job.due_at = 0
        tables.set_state(job, AVAILABLE)

    def _back(self, job: Job, at: int) -> None:
        """From its worker back to its old place."""
        tables = self.tables
        tables.release(job)
        tables.set_state(job, AVAILABLE)
        job.worker = ""
        job.visible_until = 0
        job.rare().back_at = at
        tables.save(job, ACTIVE)
        tables.queues[job.queue].recent.came_back(at)
        tables.line_up(job)
        self._look_at_dead(job)
        self._follow(job, at)

    # reservations

    def start(
        self, job: Job, gates: Sequence[Key], worker: str, pool: str, visibility_ms: int, at: int
    ) -> None:
        """The job has left its line: it belongs to this worker now, and has a slot in all these gates."""
        tables = self.tables
        queue = tables.queues[job.queue]
        counts = queue.counts
        counts[AVAILABLE] -= 1
        counts[ACTIVE] += 1
        if job.tenant:
            queue.count_tenant(job.tenant, ACTIVE, 1)
            queue.count_tenant(job.tenant, AVAILABLE, -1)
        job.state = ACTIVE
        job.pool = pool
        job.attempt = attempt = job.attempt + 1
        job.claim += 1
        job.started_at = at
        job.worker = worker
        lease = visibility_ms or job.visibility_ms or queue.resolved.visibility_ms
        job.visible_until = until = at + lease
        more = job.rare() if visibility_ms else job.more
        since = job.enqueued_at
        if more is not None:
            since = more.back_at or since
            more.lease_ms = visibility_ms
            more.heard_at = 0
            more.progress = more.progress_data = more.progress_message = None
            more.progress_at = 0
            if more.stall_ms:
                until = min(until, at + more.stall_ms)
        tables.hold(job)
        if gates:
            tables.keys.start(job, gates, since)
        # What runs does not wait any more: there may be room in the queue, or nothing left for others.
        if queue.followed:
            tables.touch(queue)
        tables.log.write(changed(job, AVAILABLE))
        tables.timers.arm(job, min(until, at + job.timeout_ms))
        wait_ms = at - since
        queue.recent.started(at, wait_ms)
        data = {"worker_id": worker, "attempt": attempt, "wait_ms": wait_ms, "pool": pool}
        self._tell("job.started", at, job, data)

    def extend(self, job: Job, visibility_ms: int, at: int) -> None:
        """The worker lives and goes on with the job."""
        more = job.more
        lease = (
            visibility_ms
            or (more.lease_ms if more is not None else 0)
            or job.visibility_ms
            or self.tables.queues[job.queue].resolved.visibility_ms
        )
        job.visible_until = at + lease
        if more is not None and more.stall_ms:
            more.heard_at = at
        self.tables.save(job, ACTIVE)
        self._arm_active(job)
        self._tell(
            "job.heartbeat",
            at,
            job,
            {"worker_id": job.worker, "attempt": job.attempt, "visible_until": job.visible_until},
        )

    def progress(
        self, job: Job, progress: float | None, data: Raw | None, message: str | None, at: int
    ) -> None:
        """What the worker says of its progress, which is a sign of life too."""
        more = job.rare()
        if progress is not None:
            more.progress = max(progress, more.progress or 0.0)
        if data is not None:
            more.progress_data = bytes(data)
        if message is not None:
            more.progress_message = message
        more.progress_at = at
        self._tell("job.progress", at, job, {"progress": more.progress, "message": message})
        self.extend(job, 0, at)

    def save_checkpoint(self, job: Job, state: bytes, at: int) -> None:
        more = job.rare()
        more.checkpoint_sequence += 1
        saved = Checkpoint(more.checkpoint_sequence, at, state)
        self._kept.set(CHECKPOINT, job.id, msgpack.encode(saved))
        self.tables.save(job, job.state)
        self._tell("job.checkpointed", at, job, {"sequence": more.checkpoint_sequence})

    def drop_checkpoint(self, job: Job) -> None:
        job.rare().checkpoint_sequence = 0
        self._kept.set(CHECKPOINT, job.id, None)
        self.tables.save(job, job.state)

    # ends of an attempt

    def complete(self, job: Job, result: bytes | None, at: int) -> None:
        tables = self.tables
        tables.release(job)
        queue = tables.queues[job.queue]
        tables.set_state(job, COMPLETED)
        job.dead = False
        job.finished_at = at
        job.visible_until = 0
        tables.timers.disarm(job)
        job.result = result
        if job.more is not None and job.more.progress_at:
            job.more.progress = 1.0
        tables.save(job, ACTIVE)
        duration_ms = at - job.started_at
        queue.recent.completed(at, duration_ms)
        tables.ended[queue] = None
        data: dict[str, Any] = {"duration_ms": duration_ms, "attempt": job.attempt}
        if result is not None and len(result) <= LARGEST_RESULT_IN_EVENT:
            data["result"] = Raw(result)
        self._tell("job.completed", at, job, data)

    def fail(
        self,
        job: Job,
        failure: Failure,
        uniform: float,
        at: int,
        entry: bytes | None = None,
        cause: str = FAIL,
    ) -> None:
        """An attempt failed; `entry` is what the list of errors says where it says more than the failure."""
        more = job.more
        decision = decide(
            job.retry,
            failure,
            job.attempt,
            at,
            uniform,
            (more.give_up_at if more is not None else 0) or None,
            job.timeout_ms,
        )
        if isinstance(decision, Requeue):
            later = decision.later
            state = AVAILABLE if later is None else RETRYABLE
            trail.attempt_over(job, REQUEUE, state, "", at)
            job.attempt -= 1
            if failure.deferred:
                job.rare().deferrals += 1
            if later is None:
                self._back(job, at)
            else:
                self._retry_later(job, later, at)
            return
        self._note(job, entry or history.failure_entry(failure, job.attempt, at))
        self._tell_failed(job, at)
        if isinstance(decision, RetryAt):
            trail.attempt_over(job, cause, RETRYABLE, "", at)
            self._retry_later(job, decision, at)
        else:
            assert isinstance(decision, Discard)
            if decision.exhausted:
                self._exhaust(job, decision.reason, at, cause, dead=decision.dead_letter)
            else:
                self.discard(job, decision.reason, at, cause, dead=decision.dead_letter)

    def lose(self, job: Job, why: str, message: str, at: int) -> None:
        """The reservation ended without an answer: straight back while attempts are left."""
        self._note(job, history.entry(job.attempt, why, message, why, at))
        self._tell_failed(job, at)
        cause = WORKER_DEATH if why == WORKER_DEATH else VISIBILITY_EXPIRY
        if job.attempt < job.max_attempts:
            trail.attempt_over(job, cause, AVAILABLE, "", at)
            self._back(job, at)
        else:
            dead = job.retry.on_exhaustion == "dead_letter"
            self._exhaust(job, "attempts_exhausted", at, cause, dead=dead)

    def _retry_later(self, job: Job, decision: RetryAt, at: int) -> None:
        tables = self.tables
        tables.release(job)
        tables.set_state(job, RETRYABLE)
        job.worker = ""
        job.visible_until = 0
        job.due_at = decision.at
        more = job.rare()
        more.retry_delay_ms = decision.delay_ms
        tables.save(job, ACTIVE)
        tables.queues[job.queue].recent.came_back(at)
        self._arm_waiting(job)
        data: dict[str, Any] = {
            "attempt": job.attempt,
            "max_attempts": job.max_attempts,
            "next_retry_at": decision.at,
        }
        if more.errors:
            data["error"] = more.errors[-1]
        self._tell("job.retrying", at, job, data)
        self._look_at_dead(job)
        self._follow(job, at)

    # ends of a job

    def discard(
        self, job: Job, reason: str, at: int, cause: str = "", *, dead: bool = False
    ) -> None:
        """`cause` is what ended the attempt, where one did."""
        was = job.state
        trail.ended(job, cause or trail.trigger_of(reason), DISCARDED, reason, at)
        self._end(job, DISCARDED, at)
        more = job.rare()
        more.reason = reason
        job.dead = dead and not more.origin
        tables = self.tables
        tables.save(job, was)
        queue = tables.queues[job.queue]
        queue.recent.failed(at)
        tables.ended[queue] = None
        self._tell_discarded(job, reason, at)
        if job.dead:
            self._tell("job.dead_lettered", at, job, {"reason": reason})
            self._look_at_dead(job)

    def discard_because(self, job: Job, kind: str, message: str, at: int) -> None:
        """Discard a job that did nothing wrong; its history says why."""
        self._note(job, history.entry(job.attempt, kind, message, kind, at))
        self.discard(job, kind, at)

    def _exhaust(self, job: Job, reason: str, at: int, cause: str, *, dead: bool) -> None:
        """The job will not be tried again: it goes where its queue sends such jobs, or ends."""
        data: dict[str, Any] = {"attempt": job.attempt, "max_attempts": job.max_attempts}
        errors = job.rare().errors
        if errors:
            data["error"] = errors[-1]
        self._tell("job.retry_exhausted", at, job, {**data, "reason": reason})
        target = self.tables.queues[job.queue].resolved.dead_letter_queue
        if target and not job.rare().origin:
            self._bury(job, target, reason, at)
        else:
            self.discard(job, reason, at, cause, dead=dead)

    def _bury(self, job: Job, target: str, reason: str, at: int) -> None:
        """Let the job stand in the dead letter queue, as a fresh one that keeps its history."""
        tables = self.tables
        was, origin = job.state, tables.queues[job.queue]
        assert was == ACTIVE
        trail.attempt_over(job, DEAD_LETTER, AVAILABLE, reason, at)
        trail.enqueued_again(job)
        tables.release(job)
        more = job.rare()
        more.origin, more.buried_for, more.buried_at = job.queue, reason, at
        more.buried_attempts = job.attempt
        job.finished_at = 0
        job.visible_until = 0
        job.worker = ""
        job.dead = True
        origin.recent.failed(at)
        tables.ended[origin] = None
        job.state = DISCARDED
        self._tell_discarded(job, reason, at)
        data = {"reason": reason, "dead_letter_queue": target}
        self._tell("job.dead_lettered", at, job, data)
        job.state = was
        tables.timers.disarm(job)
        queue = tables.open_queue(target)
        tables.transfer(job, queue, AVAILABLE)
        job.attempt = 0
        job.expires_at = 0
        job.enqueued_at = at
        more.back_at = 0
        tables.number(job)
        tables.save_whole(job, was)
        queue.recent.enqueued(at)
        tables.line_up(job)
        self._look_at_dead(job)
        self._follow(job, at)
        if self.on_buried is not None:
            self.on_buried(origin.resolved, at)

    def _look_at_dead(self, job: Job) -> None:
        if job.dead and self.on_dead is not None:
            self.on_dead(job)

    @staticmethod
    def is_buried(job: Job) -> bool:
        """Whether it stands in a queue for dead letters."""
        return job.more is not None and bool(job.more.origin)

    def prune(self, job: Job, at: int) -> None:
        """A dead letter that has been kept for long enough is forgotten."""
        data = {"queue": job.rare().origin or job.queue, **_about(job)}
        if job.state not in TERMINAL:
            was = job.state
            self._end(job, DISCARDED, at)
            self.tables.save(job, was)
        self.tables.events.add("dead_letter.pruned", at, job.id, job.type, job.queue, data=data)
        self.forget(job)

    def move(self, job: Job, target: Queue, at: int) -> None:
        """A job that waits goes on waiting in another queue; it keeps its place by sequence."""
        tables = self.tables
        if job.state == AVAILABLE:
            tables.step_out(job)
        job = tables.renewed(job)
        tables.transfer(job, target, job.state)
        tables.save(job, job.state)
        if job.state == AVAILABLE:
            tables.line_up(job)
        else:
            self._arm_waiting(job)
        # No queue is the target of one that it goes to itself, so this ends.
        self._follow(job, at)

    def _follow(self, job: Job, at: int) -> None:
        """A job that waits in a queue which is being deleted goes the way of those before it."""
        tables = self.tables
        queue = tables.queues[job.queue]
        if queue.leaving:
            self.leave(job, at)

    def leave(self, job: Job, at: int) -> None:
        """Its queue is being deleted."""
        tables = self.tables
        queue = tables.queues[job.queue]
        if queue.leaving == "move":
            self.move(job, tables.open_queue(queue.target), at)
        else:
            self.discard_because(job, "queue_deleted", f"the queue {queue.name} was deleted", at)

    def drop(self, job: Job, key: str, at: int) -> None:
        """A key is closed at which the job does not want to wait."""
        self._note(
            job,
            history.entry(
                job.attempt, "rate_limited", f"{plainly(key)} is closed", "rate_limited", at
            ),
        )
        data = {"key": key, **_about(job)}
        events = self.tables.events
        events.add("rate_limit.dropped", at, key, job.type, job.queue, data=data)
        self.discard(job, "rate_limited", at)

    def postpone(self, job: Job, key: str, until: int, at: int) -> None:
        """A key is closed, and the job wants to come back when it should be open."""
        tables = self.tables
        trail.write(job, Step(RESCHEDULE, AVAILABLE, SCHEDULED, at, reason=key))
        job.due_at = until
        tables.set_state(job, SCHEDULED)
        tables.postponed(job, key)
        tables.save(job, AVAILABLE)
        self._arm_waiting(job)
        self._tell("job.scheduled", at, job, {"scheduled_at": until, "key": key})

    def overflow(self, job: Job, at: int) -> None:
        """Newer jobs need its room."""
        queue = job.queue
        events = self.tables.events
        data = {"queue": queue, **_about(job)}
        events.add("backpressure.dropped", at, job.id, job.type, queue, data=data)
        events.add("queue.overflow", at, job.id, job.type, queue, data=dict(data))
        self.discard_because(job, "overflow", "newer jobs needed its room", at)

    def cancel(self, job: Job, by: str, reason: str, at: int) -> None:
        was = job.state
        if was == ACTIVE:
            job.rare().cancelled_while_active = True
        trail.ended(job, CANCEL, CANCELLED, reason, at, by)
        self._end(job, CANCELLED, at)
        self.tables.save(job, was)
        self._tell("job.cancelled", at, job, {"cancelled_by": by, "reason": reason})

    def expire(self, job: Job, at: int) -> None:
        more = job.rare()
        kind = more.expires_as or "expired"
        self._note(job, history.entry(job.attempt, kind, "not started before it expired", kind, at))
        data = {
            "created_at": job.created_at,
            "expired_at": at,
            "ttl_ms": job.expires_at - job.created_at,
        }
        self._tell("job.expired", at, job, data)
        self.discard(job, kind, at)

    def forget_history(self, job: Job, at: int) -> None:
        """Of a job that has ended: nobody is told any more what happened to it, but for its newest error."""
        more = job.rare()
        trail.forget(more, at)
        del more.errors[:-1]
        self.tables.save(job, job.state)

    def forget(self, job: Job) -> None:
        """Delete a job that has ended, with all that is kept of it."""
        if job.more is not None and job.more.checkpoint_sequence:
            self._kept.set(CHECKPOINT, job.id, None)
        self.tables.forget(job)

    def _end(self, job: Job, state: str, at: int) -> None:
        tables = self.tables
        if job.state == ACTIVE:
            tables.release(job)
        elif job.state == AVAILABLE:
            tables.step_out(job)
        tables.set_state(job, state)
        job.dead = False
        job.finished_at = at
        job.visible_until = 0
        job.due_at = 0
        tables.timers.disarm(job)

    # by hand

    @staticmethod
    def can_start_over(job: Job) -> bool:
        """Whether somebody may retry it by hand: it failed, or it is a dead letter that nobody runs."""
        if job.state == AVAILABLE:
            return Life.is_buried(job)
        return job.state in (DISCARDED, RETRYABLE)

    def closed_to(self, job: Job, changes: Replay) -> Unwanted | Draining | None:
        """Why the queue to which a retry would bring the job does not take it."""
        queue = self.tables.queues.get(_home_of(job, changes))
        if queue is None or not queue.exists:
            return Unwanted(_home_of(job, changes)) if self.tables.strict else None
        if queue.draining and queue.name != job.queue:
            return Draining(queue.name)
        return None

    def revive(self, job: Job, changes: Replay, at: int) -> Job:
        """Start a discarded job or a dead letter over, or a retryable one at once; gives the record that counts now."""
        tables = self.tables
        was, old_queue = job.state, job.queue
        if was == AVAILABLE:
            tables.step_out(job)
        job = tables.renewed(job)
        more = job.rare()
        more.back_at = 0
        trail.enqueued_again(job)
        trail.write(job, Step(RETRY, was, AVAILABLE, at, by=changes.by, reason=changes.reason))
        buried = bool(more.origin)
        was_dead = job.dead
        if was == DISCARDED or buried:
            job.attempt = 0
            job.dead = False
            more.deferrals = 0
            more.reason = ""
            more.re_enqueued_at = at
        target = _home_of(job, changes)
        if buried:
            more.origin = more.buried_for = ""
            more.buried_at = more.buried_attempts = 0
        queue = tables.open_queue(target)
        tables.transfer(job, queue, AVAILABLE)
        if changes.fixed is not None:
            queue.bytes -= size_of(job)
            job.fixed = changes.fixed
            queue.bytes += size_of(job)
        if changes.retry is not None:
            job.retry = changes.retry
            job.max_attempts = changes.retry.max_attempts
        if changes.max_attempts is not None:
            job.retry = replace(job.retry, max_attempts=changes.max_attempts)
            job.max_attempts = changes.max_attempts
        job.finished_at = 0
        job.due_at = 0
        job.worker = ""
        tables.number(job)
        job.enqueued_at = at
        tables.save_revived(job, was, old_queue)
        queue.recent.enqueued(at)
        if was_dead:
            self._tell("dead_letter.retried", at, job, {"from_queue": old_queue})
        self._tell_enqueued(job, at)
        tables.line_up(job)
        self._follow(job, at)
        return job

    def reprioritize(self, job: Job, priority: int, at: int) -> Job:
        tables = self.tables
        before = job.priority
        if job.state == AVAILABLE:
            # The new record comes before the old one goes, so that its keys never lack somebody who waits.
            old, lane = job, job.lane
            job = tables.renewed(old)
            old.lane = lane
            job.priority = priority
            tables.line_up(job)
            tables.step_out(old)
        else:
            job.priority = priority
        tables.save(job, job.state)
        data = {"previous_priority": before, "new_priority": priority}
        self._tell("priority.changed", at, job, data)
        return job

    # what time brings

    def befall(self, job: Job, at: int) -> None:
        """The job's alarm rang: let happen what is due by now, or set the alarm anew."""
        state = job.state
        if state == ACTIVE:
            self._befall_active(job, at)
        elif state in (AVAILABLE, SCHEDULED, PENDING, RETRYABLE):
            expires, gives_up, due = self._waiting_times(job)
            if due <= at and self.tables.maintenance is not None:
                due = NEVER
                if self.on_held_back is not None:
                    self.on_held_back(job)
            if expires <= at and expires <= min(gives_up, due):
                self.expire(job, at)
            elif gives_up <= at and gives_up <= due:
                self._give_up(job, at)
            elif due <= at:
                self._promote(job, at)
            else:
                self._arm_first(job, expires, gives_up, due)

    def rearm(self, job: Job) -> None:
        """Arm what time will bring to a job that was read from the file; nothing happens yet."""
        if job.state == ACTIVE:
            self._arm_active(job)
        elif job.state != AVAILABLE or job.expires_at:
            self._arm_waiting(job)

    def _waiting_times(self, job: Job) -> tuple[int, int, int]:
        """When a job that is not active expires, is given up and is due."""
        state = job.state
        expires = job.expires_at if job.expires_at and state != RETRYABLE else NEVER
        gives_up = NEVER
        if state == RETRYABLE and job.more is not None and job.more.give_up_at:
            gives_up = job.more.give_up_at
        due = job.due_at if state in (SCHEDULED, RETRYABLE) else NEVER
        return expires, gives_up, due

    def _arm_waiting(self, job: Job) -> None:
        if job.due_at and job.state in (SCHEDULED, RETRYABLE):
            self.tables.expect(job)
        self._arm_first(job, *self._waiting_times(job))

    def _arm_first(self, job: Job, *times: int) -> None:
        first = min(times)
        if first < NEVER:
            self.tables.arm(job, first)

    def _active_times(self, job: Job) -> tuple[int, int, int]:
        """When an active job times out, is lost and counts as stalled."""
        more = job.more
        stalls = NEVER
        if more is not None and more.stall_ms:
            stalls = max(job.started_at, more.heard_at) + more.stall_ms
        return job.started_at + job.timeout_ms, job.visible_until, stalls

    def _arm_active(self, job: Job) -> None:
        self.tables.arm(job, min(self._active_times(job)))

    def overdue(self, job: Job, now: int) -> bool:
        """Whether an active job's attempt is over by now, though its alarm has not been heard."""
        return min(self._active_times(job)) <= now

    def _befall_active(self, job: Job, at: int) -> None:
        out, lost, stalls = self._active_times(job)
        first = min(out, lost, stalls)
        if first > at:
            self.tables.arm(job, first)
        elif out == first:
            self._time_out(job, "timeout", "execution", job.timeout_ms, at)
        elif lost == first:
            self.lose(job, "visibility_timeout", "no sign of life before the deadline", at)
        else:
            assert job.more is not None
            self._time_out(job, "stalled", "stalled", job.more.stall_ms, at)

    def _time_out(self, job: Job, why: str, kind: str, limit_ms: int, at: int) -> None:
        message = "ran longer than its timeout" if why == "timeout" else "sent no heartbeat"
        entry = history.entry(
            job.attempt,
            why,
            message,
            why,
            at,
            timeout_kind=kind,
            limit_seconds=limit_ms / 1000,
            elapsed_seconds=(at - job.started_at) / 1000,
        )
        # No chance is at hand here, and a timeout needs no jitter: nothing makes them happen together.
        self.fail(job, Failure(code=why, message=message, type=why), 0.5, at, entry, TIMEOUT)

    def _give_up(self, job: Job, at: int) -> None:
        limit_ms = job.rare().give_up_at - job.created_at
        entry = history.entry(
            job.attempt,
            "total_timeout",
            "not finished within its total timeout",
            "total_timeout",
            at,
            timeout_kind="total",
            limit_seconds=limit_ms / 1000,
            elapsed_seconds=(at - job.created_at) / 1000,
        )
        self._note(job, entry)
        self.discard(job, "total_timeout", at)

    def _promote(self, job: Job, at: int) -> None:
        tables = self.tables
        was = job.state
        if was == SCHEDULED and job.more is not None and job.more.postponed_by:
            # It has its place in line already.
            trail.write(job, Step(DUE, SCHEDULED, AVAILABLE, at))
            tables.set_state(job, AVAILABLE)
            job.due_at = 0
        elif was == SCHEDULED:
            self.enqueue(job, at)
            return
        else:
            trail.write(job, Step(DUE, RETRYABLE, AVAILABLE, at))
            self._stand_last(job, at)
            job.rare().back_at = at
        tables.save(job, was)
        tables.line_up(job)
        self._look_at_dead(job)
        self._follow(job, at)

    # telling

    def _note(self, job: Job, entry: bytes) -> None:
        errors = job.rare().errors
        errors.append(Raw(entry))
        if len(errors) > MAX_ERRORS:
            del errors[0]

    def _tell_enqueued(self, job: Job, at: int) -> None:
        data: dict[str, Any] = {"priority": job.priority}
        if job.unique is not None:
            data["unique_key"] = job.unique
        self._tell("job.enqueued", at, job, data)

    def _tell_discarded(self, job: Job, reason: str, at: int) -> None:
        data: dict[str, Any] = {"total_attempts": job.attempt, "reason": reason}
        errors = job.rare().errors
        if errors:
            data["last_error"] = errors[-1]
        self._tell("job.discarded", at, job, data)

    def _tell_failed(self, job: Job, at: int) -> None:
        data = {
            "attempt": job.attempt,
            "error": job.rare().errors[-1],
            "duration_ms": at - job.started_at,
        }
        self._tell("job.failed", at, job, data)


def _home_of(job: Job, changes: Replay) -> str:
    """The queue to which a retry by hand brings it."""
    origin = "" if job.more is None else job.more.origin
    return changes.queue or origin or job.queue


def _about(job: Job) -> dict[str, str]:
    """What events that are told of something else say of a job."""
    found = {"job_id": job.id, "job_type": job.type}
    if job.tenant:
        found["tenant_id"] = job.tenant
    return found
