"""Lists: pages that together show every job once, and what a query selects."""

from __future__ import annotations

from headgate.core.retry import Failure
from headgate.engines.contract import Fail, Page, Query
from tests.contract.home import NOW, Home, draft, drafts, fetch, push, story


@story
async def test_pages_show_every_job_once_in_either_direction(home: Home) -> None:
    async with home.engine() as engine:
        # Many are equal in what the list is sorted by.
        some = [draft(number, NOW + number // 10, priority=number % 3) for number in range(95)]
        await push(engine, some)
        for sort in ("created_at", "enqueued_at", "priority"):
            for newest_first in (False, True):
                seen = []
                for offset in range(0, 110, 10):
                    page = Page(10, offset, sort, newest_first)
                    found = await engine.find_all(Query(queue="q"), page, NOW)
                    assert found.total == 95
                    seen += [(getattr(job, sort), job.seq, job.id) for job in found.jobs]
                assert seen == sorted(seen, reverse=newest_first)
                assert len({job_id for _, _, job_id in seen}) == 95


@story
async def test_ids_meta_and_error_type_select(home: Home) -> None:
    async with home.engine() as engine:
        marked = b'"args":[],"meta":{"tenant_id":"acme","n":1}'
        await push(engine, [draft(1, fixed=marked), *drafts(4)[2:]])
        await fetch(engine, 2)
        await engine.fail([Fail("j2", Failure("E", "m", type="Net.down"), "w")], NOW)

        async def ids(**query: object) -> list[str]:
            found = await engine.find_all(Query(**query), Page(), NOW)  # type: ignore[arg-type]
            assert found.total == len(found.jobs)
            return [job.id for job in found.jobs]

        assert await ids(ids=["j3", "j1", "nobody"]) == ["j1", "j3"]
        assert await ids(ids=[]) == []
        assert await ids(meta={"tenant_id": "acme"}) == ["j1"]
        assert await ids(meta={"tenant_id": "acme", "n": 1}) == ["j1"]
        assert await ids(meta={"n": "1"}) == []
        assert await ids(error_type="Net.down") == ["j2"]
        assert await ids(error_type="E") == []
        assert await ids(worker="w") == ["j1"]
        assert await ids(states=["retryable", "active"]) == ["j1", "j2"]


@story
async def test_a_prefix_is_taken_literally(home: Home) -> None:
    async with home.engine() as engine:
        names = ["a_b.c", "axb.c", "a_b", "ab"]
        await push(engine, [draft(n, type=name) for n, name in enumerate(names)])

        async def types(pattern: str) -> list[str]:
            found = await engine.find_all(Query(type=pattern), Page(), NOW)
            return [job.type for job in found.jobs]

        assert await types("a_b*") == ["a_b.c", "a_b"]
        assert await types("a%*") == []
        assert await types("a_b") == ["a_b"]
        assert await types("*") == names
