"""Commands on many jobs: a thousand at once, more in slices that let other steps pass between them.

What a task has done and where it goes on is recorded in the batch of the slice that did it, so a restart repeats nothing and leaves nothing out.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

import apsw
import msgspec

from headgate.core.errors import BackendUnavailable
from headgate.core.job import Job
from headgate.core.states import ACTIVE, TERMINAL
from headgate.engines.contract import Replay, Task
from headgate.engines.local import queries
from headgate.engines.local.life import Life
from headgate.engines.local.replays import Replays

T = TypeVar("T")
log = logging.getLogger("headgate.tasks")

TASK = "task"
AT_ONCE = 1_000
SLICE = 200
"""How many jobs are done before other steps get their turn."""
KEPT = 100
"""How many finished tasks are remembered."""


class Course(msgspec.Struct):
    """A task and how far it has come, by the numbers of the file's rows."""

    task: Task
    after: int
    last: int


class Home(Protocol):
    """What tasks need of the engine."""

    life: Life
    replays: Replays

    @property
    def now_ms(self) -> int: ...

    async def ask(self, question: Callable[[apsw.Connection], T]) -> T: ...


class Tasks:
    __slots__ = ("_courses", "_home", "_running")

    def __init__(self, home: Home) -> None:
        self._home = home
        self._courses: dict[str, Course] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    def restore(self, packed: bytes) -> None:
        course = msgspec.msgpack.decode(packed, type=Course)
        self._courses[course.task.id] = course

    def resume(self) -> None:
        """Go on with what a restart interrupted."""
        for course in self._courses.values():
            if not course.task.finished:
                self._go_on(course)

    def listed(self) -> list[Task]:
        return [course.task for course in self._courses.values()]

    async def start(self, task: Task) -> Task:
        query = task.query
        task.matched, last = await self._home.ask(lambda c: queries.count(c, query))
        course = Course(task, 0, last)
        self._courses[task.id] = course
        self._save(course)
        if task.matched <= AT_ONCE:
            while not task.finished:
                await self._slice(course, AT_ONCE)
        else:
            self._go_on(course)
        self._forget_oldest()
        return task

    async def stop(self) -> None:
        for running in self._running.values():
            running.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        self._running.clear()

    def clear(self) -> None:
        for running in self._running.values():
            running.cancel()
        self._running.clear()
        self._courses.clear()

    def _go_on(self, course: Course) -> None:
        name = course.task.id
        running = asyncio.get_running_loop().create_task(self._run(course))
        self._running[name] = running
        running.add_done_callback(lambda _: self._running.pop(name, None))

    async def _run(self, course: Course) -> None:
        try:
            while not course.task.finished:
                await self._slice(course, AT_ONCE)
                # What was made for so many jobs is no garbage, and to find that out is a long pause.
                gc.freeze()
        except BackendUnavailable:
            log.warning("task %s waits for the store", course.task.id)

    async def _slice(self, course: Course, size: int) -> None:
        query, after, last = course.task.query, course.after, course.last
        found = await self._home.ask(lambda c: queries.ids_after(c, query, after, last, size))
        for start in range(0, len(found), SLICE):
            part = found[start : start + SLICE]
            for _, job_id in part:
                self._do(course.task, job_id)
            course.after = part[-1][0]
            if start + SLICE < len(found):
                self._save(course)
                await asyncio.sleep(0)
        course.task.finished = len(found) < size
        self._save(course)

    def _do(self, task: Task, job_id: str) -> None:
        home = self._home
        life = home.life
        job = life.tables.find(job_id)
        states = task.query.states
        if job is None or (states and job.state not in states) or not self._done(task, job):
            task.skipped += 1
        else:
            task.done += 1

    def _done(self, task: Task, job: Job) -> bool:
        """Whether the command could be carried out on this job."""
        life, now = self._home.life, self._home.now_ms
        match task.kind:
            case "cancel" if job.state not in TERMINAL:
                life.cancel(job, "admin", "bulk", now)
            case "retry" if life.can_start_over(job) and life.closed_to(job, Replay()) is None:
                life.revive(job, Replay(by="admin", reason="bulk"), now)
            case "delete" if job.state in TERMINAL:
                life.forget(job)
            case "delete" if task.query.dead and job.state != ACTIVE:
                # It waits in a queue for dead letters.
                life.cancel(job, "admin", "dead letter deleted", now)
                life.forget(job)
            case "discard" | "move":
                queue = life.tables.queue(task.query.queue or "")
                # Whoever resumed the queue has called its deletion off.
                if job.queue != queue.name or queue.leaving != task.kind or job.state == ACTIVE:
                    return False
                if job.state in TERMINAL:
                    return False
                life.leave(job, now)
            case "replay":
                return self._home.replays.look(job, now)
            case "purge":
                if job.state not in TERMINAL:
                    life.cancel(job, "admin", "purge", now)
                life.forget(job)
            case _:
                return False
        return True

    def _save(self, course: Course) -> None:
        packed = msgspec.msgpack.encode(course)
        self._home.life.tables.set_thing(TASK, course.task.id, packed)

    def _forget_oldest(self) -> None:
        finished = [c.task.id for c in self._courses.values() if c.task.finished]
        for name in finished[: max(0, len(finished) - KEPT)]:
            del self._courses[name]
            self._home.life.tables.set_thing(TASK, name, None)
