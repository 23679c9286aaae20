from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.server.settings import Limits
from tests.server.jobs_world import START, World, in_world

UNKNOWN = "01900000-0000-7000-8000-ffffffffffff"
NOTHING = {"progress": None, "data": None, "message": None, "updated_at": None}


async def started(world: World, **members: Any) -> str:
    job_id = await world.push(**members)
    await world.fetch(worker_id="w")
    return job_id


@in_world()
async def test_progress_is_kept_and_never_goes_back(world: World) -> None:
    job_id = await started(world)
    path = f"/jobs/{job_id}/progress"
    shown = {"job_id": job_id, "state": "active"}
    assert (await world.call("GET", path)).body == {**shown, **NOTHING}
    for report, progress in (
        ({"progress": 0.5, "message": "half", "data": {"n": [1]}}, 0.5),
        ({"progress": 0.25}, 0.5),
        ({"progress": 0.75}, 0.75),
        ({"progress": 1.5}, 1.0),
        ({"progress": -1}, 1.0),
    ):
        found = await world.call("PUT", path, report)
        assert found.status == 200
        assert found.body == {
            **shown,
            "progress": progress,
            "message": "half",
            "data": {"n": [1]},
            "updated_at": START,
        }
        assert (await world.call("GET", path)).body == found.body


@in_world()
async def test_progress_is_of_one_attempt_and_complete_at_the_end(world: World) -> None:
    job_id = await started(world)
    path = f"/jobs/{job_id}/progress"
    await world.call("PUT", path, {"progress": 0.5})
    error = {"code": "c", "message": "m"}
    await world.call("POST", "/workers/nack", {"job_id": job_id, "error": error})
    failed = (await world.call("GET", path)).body
    assert (failed["state"], failed["progress"]) == ("retryable", 0.5)
    world.now_ms += 600_000
    await world.fetch()
    assert (await world.call("GET", path)).body["progress"] is None
    await world.call("POST", "/workers/ack", {"job_id": job_id})
    done = (await world.call("GET", path)).body
    assert (done["state"], done["progress"]) == ("completed", 1.0)


@in_world()
async def test_progress_is_a_sign_of_life(world: World) -> None:
    job_id = await started(world, visibility_timeout=10)
    for _ in range(3):
        world.now_ms += 9_000
        await world.call("PUT", f"/jobs/{job_id}/progress", {"data": "x"})
    assert (await world.job(job_id))["state"] == "active"


@in_world()
async def test_only_active_jobs_progress(world: World) -> None:
    job_id = await world.push()
    found = await world.call("PUT", f"/jobs/{job_id}/progress", {"progress": 0.5})
    assert (found.status, found.body) == (
        200,
        {"job_id": job_id, "state": "available", **NOTHING},
    )


@in_world(limits=Limits(progress_bytes=10, checkpoint_bytes=10))
async def test_wrong_progress_is_refused(world: World) -> None:
    job_id = await started(world)
    path = f"/jobs/{job_id}/progress"
    for body, status, field in (
        ({}, 400, "progress"),
        ({"message": "m"}, 400, "progress"),
        ({"progress": None, "data": None}, 400, "progress"),
        ({"progress": "half"}, 400, "progress"),
        ({"progress": 0.5, "message": "x" * 4_097}, 400, "message"),
        ({"data": "x" * 9}, 413, "data"),
        ({"progress": 0.5, "checkpoint": "x" * 9}, 413, "state"),
    ):
        found = await world.call("PUT", path, body)
        assert (found.status, found.error["details"]["field"]) == (status, field)
    assert (await world.call("GET", path)).body["progress"] is None
    report = {"progress": 0.5, "checkpoint": 1}
    assert (await world.call("PUT", f"/jobs/{UNKNOWN}/progress", report)).status == 404
    assert (await world.call("GET", f"/jobs/{UNKNOWN}/progress")).status == 404
    assert (await world.call("GET", f"/jobs/{UNKNOWN}/progress/stream")).status == 404


@in_world()
async def test_progress_may_bring_a_checkpoint(world: World) -> None:
    job_id = await started(world)
    body = {"progress": 0.5, "checkpoint": {"row": 9}}
    assert (await world.call("PUT", f"/jobs/{job_id}/progress", body)).status == 200
    found = await world.call("GET", f"/jobs/{job_id}/checkpoint")
    assert (found.body["state"], found.body["sequence"]) == ({"row": 9}, 1)
    await world.call("POST", "/workers/ack", {"job_id": job_id})
    assert (await world.call("PUT", f"/jobs/{job_id}/progress", body)).status == 200
    assert (await world.call("GET", f"/jobs/{job_id}/checkpoint")).body["sequence"] == 1


@in_world()
async def test_progress_is_streamed_until_the_job_ends(world: World) -> None:
    job_id = await started(world)
    reader = world.ask("GET", f"/jobs/{job_id}/progress/stream")
    await reader.until("retry: 3000\n\n")
    await world.call("PUT", f"/jobs/{job_id}/progress", {"progress": 0.5})
    text = await reader.until("event: progress\n")
    assert f'data: {{"job_id":"{job_id}","state":"active","progress":0.5,' in text
    await world.call("POST", "/workers/ack", {"job_id": job_id, "result": {"a": 1}})
    found = await reader.reply()
    assert found.status == 200
    assert found.headers["content-type"] == "text/event-stream"
    assert found.raw.decode().endswith(
        f'event: completed\ndata: {{"job_id":"{job_id}","state":"completed","result":{{"a":1}}}}\n\n'
    )


@in_world()
async def test_a_stream_ends_when_its_job_is_forgotten_or_its_reader_leaves(world: World) -> None:
    job_id = await started(world)
    leaving = world.ask("GET", f"/jobs/{job_id}/progress/stream")
    await leaving.until("retry")
    leaving.leave()
    await leaving.reply()
    await world.call("DELETE", f"/jobs/{job_id}")
    late = await world.call("GET", f"/jobs/{job_id}/progress/stream")
    assert late.raw.decode().split("event: ")[1].startswith("cancelled\n")
    followers = world.engine._events._followers
    assert not followers


@pytest.mark.parametrize("save", ["PUT", "POST"])
def test_a_checkpoint_is_saved_replaced_and_dropped(save: str) -> None:
    @in_world()
    async def test(world: World) -> None:
        job_id = await world.push()
        path = f"/jobs/{job_id}/checkpoint"
        assert (await world.call("GET", path)).error["code"] == "not_found"
        for sequence, state in enumerate(({"row": 1}, [2, None], None), 1):
            found = await world.call(save, path, {"state": state})
            face = {"job_id": job_id, "state": state, "sequence": sequence, "created_at": START}
            assert (found.status, found.body) == (200, {**face, "checkpoint": face})
            assert (await world.call("GET", path)).body == found.body
        for _ in range(2):
            dropped = await world.call("DELETE", path)
            assert (dropped.status, dropped.body) == (200, {"deleted": True, "job_id": job_id})
        assert (await world.call("GET", path)).status == 404
        assert (await world.call(save, path, {"state": 1})).body["sequence"] == 1

    test()


@in_world()
async def test_a_checkpoint_comes_with_the_job_and_stays_after_its_end(world: World) -> None:
    job_id = await started(world)
    plain = await world.push(queue="other")
    path = f"/jobs/{job_id}/checkpoint"
    await world.call("PUT", path, {"state": {"row": 9}})
    error = {"code": "c", "message": "m"}
    await world.call("POST", "/workers/nack", {"job_id": job_id, "error": error, "requeue": True})
    jobs = (
        await world.call("POST", "/workers/fetch", {"queues": ["other", "default"], "count": 5})
    ).body["jobs"]
    assert [(job["id"], job.get("checkpoint")) for job in jobs] == [
        (plain, None),
        (job_id, {"row": 9}),
    ]
    await world.call("POST", "/workers/ack", {"job_id": job_id})
    assert (await world.call("GET", path)).status == 200
    late = await world.call("PUT", path, {"state": 1})
    assert (late.status, late.error["code"]) == (409, "conflict")


@in_world(limits=Limits(checkpoint_bytes=10))
async def test_wrong_checkpoints_are_refused(world: World) -> None:
    job_id = await world.push()
    for body, status, code in (
        ({}, 400, "invalid_request"),
        ({"state": "x" * 9}, 413, "envelope_too_large"),
    ):
        found = await world.call("PUT", f"/jobs/{job_id}/checkpoint", body)
        assert (found.status, found.error["code"]) == (status, code)
        assert found.error["details"]["field"] == "state"
    for method, sent in (("PUT", {"state": 1}), ("GET", None), ("DELETE", None)):
        assert (await world.call(method, f"/jobs/{UNKNOWN}/checkpoint", sent)).status == 404


@in_world()
async def test_a_result_is_there_when_the_job_has_ended(world: World) -> None:
    job_id = await started(world)
    path = f"/jobs/{job_id}/result"
    assert (await world.call("GET", path)).body == {"job_id": job_id, "state": "active"}
    waiting = world.ask("GET", f"{path}?wait=true&timeout=30")
    for _ in range(10):
        await asyncio.sleep(0)
    await world.call("POST", "/workers/ack", {"job_id": job_id, "result": {"a": 1}})
    expected = {"job_id": job_id, "state": "completed", "result": {"a": 1}}
    assert (await waiting.reply()).body == expected
    assert (await world.call("GET", path)).body == expected
    assert (await world.call("GET", f"{path}?wait=true")).body == expected


@in_world()
async def test_the_error_is_the_result_of_a_job_that_failed(world: World) -> None:
    job_id = await started(world, retry={"max_attempts": 1})
    error = {"code": "c", "message": "m"}
    await world.call("POST", "/workers/nack", {"job_id": job_id, "error": error})
    found = (await world.call("GET", f"/jobs/{job_id}/result?wait=true")).body
    assert (found["state"], found["error"]["message"]) == ("discarded", "m")
    assert "result" not in found


@in_world(limits=Limits(wait_ms=2_000))
async def test_waiting_for_a_result_has_an_end(world: World) -> None:
    job_id = await world.push()
    path = f"/jobs/{job_id}/result"
    for query in ("wait=true&timeout=0", "wait=true&timeout=0.001"):
        late = await world.call("GET", f"{path}?{query}")
        assert (late.status, late.error["code"]) == (408, "request_timeout")
        assert late.error["details"] == {"job_id": job_id, "state": "available"}
    for query, field in (
        ("wait=yes", "wait"),
        ("wait=true&timeout=3", "timeout"),
        ("wait=true&timeout=-1", "timeout"),
        ("wait=true&timeout=soon", "timeout"),
        ("wait=true&timeout=nan", "timeout"),
    ):
        found = await world.call("GET", f"{path}?{query}")
        assert (found.status, found.error["details"]["field"]) == (400, field)
    assert (await world.call("GET", f"/jobs/{UNKNOWN}/result?wait=true")).status == 404
    gone = world.ask("GET", f"{path}?wait=true")
    for _ in range(10):
        await asyncio.sleep(0)
    gone.leave()
    assert (await gone.reply()).status == 408
    assert not world.engine._events._followers


@in_world()
async def test_a_result_is_kept_as_long_as_its_job_asked_for(world: World) -> None:
    short, none = await world.push(result_ttl=5), await world.push(result_ttl=0)
    await world.fetch(count=2)
    for job_id in (short, none):
        await world.call("POST", "/workers/ack", {"job_id": job_id, "result": 1})
    pruned = await world.call("GET", f"/jobs/{none}/result")
    assert (pruned.status, pruned.error["code"]) == (410, "RESULT_PRUNED")
    assert (await world.call("GET", f"/jobs/{short}/result")).body["result"] == 1
    world.now_ms += 5_000
    assert (await world.call("GET", f"/jobs/{short}/result")).status == 410
    assert (await world.call("GET", f"/jobs/{short}/result/stream")).status == 410
    assert "result" not in await world.job(short)


@in_world(limits=Limits(batch_items=3))
async def test_many_results_are_looked_up_at_once(world: World) -> None:
    done = await started(world)
    await world.call("POST", "/workers/ack", {"job_id": done, "result": [1]})
    waits = await world.push()
    found = await world.call("POST", "/jobs/results", {"ids": [done, waits, UNKNOWN]})
    assert found.body == {
        "results": {
            done: {"state": "completed", "result": [1]},
            waits: {"state": "available"},
        },
        "missing": [UNKNOWN],
    }
    many = await world.call("POST", "/jobs/results", {"ids": ["a"] * 4})
    assert (many.status, many.error["code"]) == (413, "BATCH_SIZE_EXCEEDED")
    assert (await world.call("POST", "/jobs/results", {})).error["details"]["field"] == "ids"


@in_world()
async def test_a_result_is_streamed_when_it_is_there(world: World) -> None:
    job_id = await started(world)
    reader = world.ask("GET", f"/jobs/{job_id}/result/stream")
    assert await reader.until("retry: 3000\n\n") == "retry: 3000\n\n"
    await world.call("PUT", f"/jobs/{job_id}/progress", {"progress": 0.5})
    await world.call("POST", "/workers/ack", b'{"job_id":"%b","result":[1,\n 2]}' % job_id.encode())
    text = (await reader.reply()).raw.decode()
    assert text == (
        "retry: 3000\n\n"
        f'event: completed\ndata: {{"job_id":"{job_id}","state":"completed","result":[1,2]}}\n\n'
    )
    assert (await world.call("GET", f"/jobs/{UNKNOWN}/result/stream")).status == 404
