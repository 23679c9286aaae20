from __future__ import annotations

from tests.server.admin_world import World, in_world


@in_world()
async def test_dead_letters_in_numbered_pages(world: World) -> None:
    ids = []
    for _ in range(3):
        ids.append(await world.bury("mail"))
        world.now_ms += 1
    first = (await world.call("GET", "/admin/dead-letter?per_page=2")).body
    assert [job["id"] for job in first["items"]] == [ids[2], ids[1]]
    assert first["pagination"] == {"total": 3, "page": 1, "per_page": 2}
    second = (await world.call("GET", "/admin/dead-letter?per_page=2&page=2")).body
    assert [job["id"] for job in second["items"]] == [ids[0]]
    third = (await world.call("GET", "/admin/dead-letter?per_page=2&page=3")).body
    assert third == {"items": [], "pagination": {"total": 3, "page": 3, "per_page": 2}}
    none = (await world.call("GET", "/admin/dead-letter?queue=pay")).body
    assert none == {"items": [], "pagination": {"total": 0, "page": 1, "per_page": 20}}


@in_world()
async def test_pages_that_cannot_be_asked_for(world: World) -> None:
    for query, field in (
        ("page=0", "page"),
        ("page=x", "page"),
        ("per_page=0", "per_page"),
        ("per_page=101", "per_page"),
    ):
        reply = await world.call("GET", f"/admin/dead-letter?{query}")
        assert (reply.status, reply.error["details"]["field"]) == (400, field)


@in_world()
async def test_one_is_looked_at_and_tried_again(world: World) -> None:
    job_id = await world.bury()
    path = f"/admin/dead-letter/{job_id}"
    assert (await world.call("GET", path)).body["job"]["id"] == job_id
    reply = await world.call("POST", f"{path}/retry")
    assert (reply.status, reply.body["job"]["state"]) == (200, "available")
    assert (await world.call("GET", path)).status == 404


@in_world()
async def test_deleting_one_answers_without_a_body(world: World) -> None:
    job_id = await world.bury()
    reply = await world.call("DELETE", f"/admin/dead-letter/{job_id}")
    assert (reply.status, reply.raw) == (204, b"")
    assert await world.state(job_id) is None
    assert (await world.call("DELETE", f"/admin/dead-letter/{job_id}")).status == 404


@in_world()
async def test_many_at_once(world: World) -> None:
    for queue in ("mail", "mail", "pay"):
        await world.bury(queue)
    retried = await world.call(
        "POST", "/admin/dead-letter/retry", {"filter": {"queue": "mail"}, "confirm": True}
    )
    assert retried.body == {
        "action": "retry",
        "matched": 2,
        "succeeded": 2,
        "failed": 0,
        "errors": [],
    }
    deleted = await world.call("DELETE", "/admin/dead-letter?confirm=true")
    assert deleted.body == {
        "action": "delete",
        "matched": 1,
        "succeeded": 1,
        "failed": 0,
        "errors": [],
    }
