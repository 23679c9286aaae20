"""What all modes share: applications that talk to something else than their server, and what they enqueued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from headgate.client.app import AsyncHeadgate, Headgate
from headgate.client.clock import Clock
from headgate.client.core import Core, at
from headgate.client.declared import Declared
from headgate.client.enqueue import Enqueue
from headgate.client.parts import Parts, Side
from headgate.client.pressure.waits import Waits
from headgate.client.sides import verb
from headgate.client.transport.contract import Transport
from headgate.testing.enqueued import Enqueued, Wanted, What, type_of, wanted
from headgate.testing.faults import Faults
from headgate.testing.recording import RecordingEnqueue
from headgate.worker.outcome import Ack, Nack

App = Headgate | AsyncHeadgate


class Stage:
    """In force from `with` to its end; then everything is as it was before.

    What runs outside of it at the same time, in other threads or tasks, does not notice.
    """

    def __init__(self, *apps: App) -> None:
        self._apps = apps
        self._sides: list[tuple[Parts, Side]] = []
        self._enqueued: dict[str, Enqueued] = {}
        self._ran: dict[str, list[str]] = {}
        """By job, how each of its runs ended: completed, deferred or failed."""
        self._faults = Faults()
        self._open = False

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> None:
        """As entering `with`."""
        if self._open:
            raise RuntimeError("it is in force already")
        self._open = True
        try:
            self._begin()
            for app in self._apps:
                self._attach(app.parts)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """As leaving `with`; again does nothing."""
        if not self._open:
            return
        self._open = False
        for parts, side in reversed(self._sides):
            parts.restore(side)
        self._sides.clear()
        self._end()

    def use(self, app: App) -> None:
        """Let another application talk to this too."""
        self._attach(app.parts)

    # what modes do each in their way

    def _begin(self) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        raise NotImplementedError

    def _transport(self, core: Core) -> tuple[Transport, Clock, Waits]:
        raise NotImplementedError

    def _enqueue(self, core: Core, own: Enqueue) -> Enqueue:
        return RecordingEnqueue(core, own.middleware, self._note)

    # applications

    def _attach(self, parts: Parts) -> None:
        if not self._open:
            raise RuntimeError("it is not in force: use it with `with`")
        if any(known is parts for known, _ in self._sides):
            return
        own = parts.own
        transport, clock, waits = self._transport(own.core)
        core = Core(transport, clock=clock, waits=waits, timeout_s=own.core.timeout_s)
        core.headers = dict(own.core.headers)
        self._sides.append((parts, parts.replace(core, self._enqueue(core, own.enqueue))))

    def _core(self) -> Core:
        if not self._sides:
            raise RuntimeError("no application is in use yet")
        return self._sides[0][1].core

    def _declared(self, job_type: str) -> Declared | None:
        found = (parts.register.get(job_type) for parts, _ in self._sides)
        return next((one for one in found if one is not None), None)

    def _note(self, body: dict[str, Any]) -> None:
        self._enqueued.setdefault(body["id"], Enqueued(body))

    # assertions about what was enqueued

    def all_enqueued(
        self,
        what: What | None = None,
        *,
        args: Sequence[Any] | None = None,
        queue: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> list[Enqueued]:
        """The jobs that were enqueued and fit, in the order in which they were."""
        want = wanted(what, args, queue, meta)
        return [one for one in self._enqueued.values() if want.fits(one)]

    def assert_enqueued(
        self,
        what: What | None = None,
        *,
        args: Sequence[Any] | None = None,
        queue: str | None = None,
        meta: Mapping[str, Any] | None = None,
        count: int | None = None,
    ) -> list[Enqueued]:
        """Fail unless such a job was enqueued, or exactly `count` of them. `args` are all arguments, `meta` a part of it."""
        want = wanted(what, args, queue, meta)
        found = [one for one in self._enqueued.values() if want.fits(one)]
        if (not found) if count is None else (len(found) != count):
            expected = "a job" if count is None else f"{count} jobs"
            self._fail(f"expected {expected} ({want}), found {len(found)}")
        return found

    def refute_enqueued(
        self,
        what: What | None = None,
        *,
        args: Sequence[Any] | None = None,
        queue: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Fail when such a job was enqueued."""
        want = wanted(what, args, queue, meta)
        found = [one for one in self._enqueued.values() if want.fits(one)]
        if found:
            self._fail(f"expected no job ({want}), found {len(found)}")

    assert_not_enqueued = refute_enqueued

    # assertions about what became of them

    @verb
    async def assert_performed(
        self,
        what: What | None = None,
        *,
        args: Sequence[Any] | None = None,
        queue: str | None = None,
        meta: Mapping[str, Any] | None = None,
        count: int | None = None,
    ) -> None:
        """Fail unless such a job was started, or exactly `count` of them; how it ended is not asked."""
        await self._assert("performed", wanted(what, args, queue, meta), count)

    @verb
    async def assert_completed(
        self,
        what: What | None = None,
        *,
        args: Sequence[Any] | None = None,
        queue: str | None = None,
        meta: Mapping[str, Any] | None = None,
        count: int | None = None,
    ) -> None:
        """Fail unless such a job has completed, or exactly `count` of them."""
        await self._assert("completed", wanted(what, args, queue, meta), count)

    @verb
    async def assert_failed(
        self,
        what: What | None = None,
        *,
        args: Sequence[Any] | None = None,
        queue: str | None = None,
        meta: Mapping[str, Any] | None = None,
        count: int | None = None,
    ) -> None:
        """Fail unless an attempt of such a job has failed, or of exactly `count` of them; it may be retried."""
        await self._assert("failed", wanted(what, args, queue, meta), count)

    @verb
    async def assert_job_state(self, job: Any, state: str) -> None:
        """Fail unless the job, or the one with this id, is in that state now."""
        job_id = job if isinstance(job, str) else job.id
        record = await self._record(job_id)
        found = record.get("state", "forgotten")
        if found != state:
            self._fail(f"expected job {job_id} to be {state}, it is {found}")

    async def _assert(self, how: str, want: Wanted, count: int | None) -> None:
        found = 0
        for one in [one for one in self._enqueued.values() if want.fits(one)]:
            found += await self._is(how, one.id)
        if (not found) if count is None else (found != count):
            expected = "a job" if count is None else f"{count} jobs"
            self._fail(f"expected {expected} ({want}) to be {how}, found {found}")

    async def _is(self, how: str, job_id: str) -> bool:
        """Whether the job was performed, has completed, or has failed."""
        record = await self._record(job_id)
        match how:
            case "performed":
                return bool(self._ran.get(job_id)) or int(record.get("attempt") or 0) > 0
            case "failed":
                return "failed" in self._ran.get(job_id, ()) or bool(record.get("errors"))
            case _:
                return record.get("state") == how

    async def _record(self, job_id: str) -> dict[str, Any]:
        core = self._core()
        body = await core.call("get_job", "GET", at("jobs", job_id), job_id=job_id)
        found: dict[str, Any] = body["job"]
        return found

    def _fail(self, message: str) -> None:
        some = [f"  {one}" for one in list(self._enqueued.values())[:50]]
        more = len(self._enqueued) - len(some)
        if more:
            some.append(f"  and {more} more")
        raise AssertionError(
            "\n".join([message, "enqueued:" if some else "nothing was enqueued", *some])
        )

    def _ended(self, job_id: str, outcome: Ack | Nack) -> None:
        how = "completed" if isinstance(outcome, Ack) else "failed"
        if isinstance(outcome, Nack) and outcome.requeue:
            how = "deferred"
        self._ran.setdefault(job_id, []).append(how)

    # failures on purpose

    def fail_next(
        self, what: What | None = None, error: BaseException | None = None, *, times: int = 1
    ) -> None:
        """Let the next run of such a job fail, or the next so many; its handler is not called."""
        self._faults.plan(type_of(what) or "", error, times)

    def fail_all(self, what: What | None = None, error: BaseException | None = None) -> None:
        """Let every run of such a job fail, until `clear`."""
        self._faults.plan(type_of(what) or "", error, -1)
