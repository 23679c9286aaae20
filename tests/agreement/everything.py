"""Stories about everything that a server can be asked for."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule
from msgspec import Raw

from headgate.engines.contract import Page, Query, Replay
from tests.agreement import views
from tests.agreement.flow import FlowRules, queues
from tests.agreement.machine import ANSWERS, ENDED, LIVE, jobs, with_jobs
from tests.agreement.wishes import POLICIES, PRIORITIES, SETTINGS, pages, queries, rarely
from tests.model import Said


class Stories(FlowRules):
    # while a job runs

    @with_jobs("active")
    @rule(
        job=jobs("active"),
        part=st.none() | st.sampled_from([0.0, 0.25, 0.5, 1.0]),
        data=st.none() | st.just(b'{"at":7}'),
        message=st.none() | st.just("half"),
    )
    def report_progress(
        self, job: str, part: float | None, data: bytes | None, message: str | None
    ) -> None:
        raw = Raw(data) if data is not None else None
        self.both(
            self.model.progress(job, part, data, message, self.now),
            self.said(self.engine.progress(job, part, raw, message, self.now)),
        )

    @with_jobs(*LIVE)
    @rule(job=jobs(*LIVE), state=st.sampled_from([b"{}", b'{"page":2}']))
    def save_checkpoint(self, job: str, state: bytes) -> None:
        self.both(
            self.model.save_checkpoint(job, state, self.now),
            self.said(self.engine.save_checkpoint(job, state, self.now)),
        )

    @with_jobs(*LIVE, *ENDED)
    @rule(job=jobs("active", *ENDED))
    def drop_checkpoint(self, job: str) -> None:
        self.both(
            self.model.drop_checkpoint(job, self.now),
            self.said(self.engine.drop_checkpoint(job, self.now)),
        )

    # single jobs, by hand

    @with_jobs("pending")
    @rule(job=jobs("pending"))
    def activate(self, job: str) -> None:
        self.both(
            self.model.activate(job, self.now), self.said(self.engine.activate(job, self.now))
        )

    @with_jobs("available", "scheduled")
    @rule(job=jobs("available", "scheduled"), priority=st.sampled_from(PRIORITIES))
    def reprioritize(self, job: str, priority: int) -> None:
        self.both(
            self.model.reprioritize(job, priority, self.now),
            self.said(self.engine.reprioritize(job, priority, self.now)),
        )

    @with_jobs("discarded", "retryable")
    @rule(
        job=jobs("discarded", "retryable"),
        queue=rarely(None, "b"),
        policy=rarely(None, *POLICIES),
        attempts=rarely(None, 1, 5),
        fixed=rarely(None, b'"args":[2],"meta":{}'),
    )
    def retry(
        self, job: str, queue: str | None, policy: str | None, attempts: int | None, fixed: bytes
    ) -> None:
        changes = Replay(queue, fixed, POLICIES[policy] if policy else None, attempts, "ada")
        self.both(
            self.model.retry(job, changes, self.now),
            self.said(self.engine.retry(job, changes, self.now)),
        )

    @with_jobs(*ENDED)
    @rule(job=jobs(*ENDED))
    def delete(self, job: str) -> None:
        expected = self.model.delete(job, self.now)

        async def step() -> Said:
            said = await self.said(self.engine.delete(job, self.now))
            gone = await self.engine.find(job, self.now) is None
            assert gone == (said.kind != "WrongState")
            return said

        self.both(expected, step())

    @with_jobs(*LIVE, *ENDED)
    @rule(job=jobs(*ENDED))
    def forget_history(self, job: str) -> None:
        self.both(
            self.model.forget_history(job, self.now),
            self.said(self.engine.forget_history(job, self.now)),
        )

    # many jobs

    @with_jobs(*LIVE, *ENDED)
    @rule(query=queries, page=pages)
    def list_jobs(self, query: Query, page: Page) -> None:
        self.model.catch_up(self.now)
        expected, total = self.model.find_all(query, page)
        counts = self.run(self.engine.count_jobs(query, self.now))
        assert {place: n for place, n in counts.items() if n} == self.model.count_jobs(query)

        async def step() -> tuple[list[views.View], int]:
            found = await self.engine.find_all(query, page, self.now)
            return [views.of_job(job) for job in found.jobs], found.total

        self.both(([views.of_entry(job) for job in expected], total), step())

    @with_jobs(*LIVE, *ENDED)
    @rule(kind=st.sampled_from(["cancel", "retry", "delete"]), query=queries)
    def start_any_task(self, kind: str, query: Query) -> None:
        self.start_task(kind, query)

    # answers for repeated requests

    @rule(key=st.sampled_from(ANSWERS), value=st.sampled_from([b"1", b"2"]), ms=rarely(5_000, 1))
    def remember(self, key: str, value: bytes, ms: int) -> None:
        until = self.now + ms
        self.model.remember("bulk", key, value, until, self.now)
        self.both(None, self.engine.remember("bulk", key, value, until, self.now))

    # queues

    @rule(
        queue=queues, said=st.sampled_from(["usual leases", "short leases", "fair", "three live"])
    )
    def create_queue(self, queue: str, said: str) -> None:
        self.both(
            self.model.create_queue(queue, SETTINGS[said], self.now),
            self.engine.create_queue(queue, SETTINGS[said], self.now),
        )
