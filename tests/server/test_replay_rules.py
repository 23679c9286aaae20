from __future__ import annotations

from typing import Any

import pytest

from headgate.server.routes import ROUTES
from tests.server.jobs_world import START, World, in_world

RULES = "/dead-letter/replay-rules"
ONCE = {"max_attempts": 1, "on_exhaustion": "dead_letter"}


async def bury(world: World, **members: Any) -> str:
    job_id = await world.push(retry=ONCE, **members)
    await fail(world, job_id, members.get("queue", "default"))
    return job_id


async def fail(world: World, job_id: str, queue: str = "default") -> None:
    (job,) = await world.fetch(queue)
    assert job["id"] == job_id
    error = {"code": "handler_error", "message": "no", "type": "Broken"}
    await world.call("POST", "/workers/nack", {"job_id": job_id, "error": error})


@in_world()
async def test_rules_are_made_changed_listed_and_deleted(world: World) -> None:
    wanted = {"filter": {"queue": "mail"}, "delay": "PT1M", "max_replays": 2, "enabled": False}
    made = await world.call("PUT", f"{RULES}/b", wanted)
    rule = {"name": "b", **wanted, "created_at": START, "updated_at": START}
    assert (made.status, made.body) == (201, {"rule": rule, "replayed": 0})
    world.now_ms += 1_000
    changed = await world.call("PUT", f"{RULES}/b", {"delay": "PT2M"})
    later = "2026-02-12T10:30:01.000Z"
    rule = {
        "name": "b", "filter": {}, "delay": "PT2M", "max_replays": 1, "enabled": True,
        "created_at": START, "updated_at": later,
    }  # fmt: skip
    assert (changed.status, changed.body) == (200, {"rule": rule, "replayed": 0})
    assert (await world.call("GET", f"{RULES}/b")).body == {"rule": rule}
    assert (await world.call("PUT", f"{RULES}/a", {})).status == 201
    listed = (await world.call("GET", RULES)).body
    assert [each["name"] for each in listed["rules"]] == ["a", "b"]
    assert listed["pagination"]["total"] == 2
    page = (await world.call("GET", f"{RULES}?limit=1&offset=1")).body
    assert ([each["name"] for each in page["rules"]], page["pagination"]["has_more"]) == (
        ["b"],
        False,
    )
    gone = await world.call("DELETE", f"{RULES}/a")
    assert (gone.status, gone.body) == (200, {"deleted": True, "name": "a"})
    for method in ("GET", "DELETE"):
        found = await world.call(method, f"{RULES}/a")
        assert (found.status, found.error["details"]) == (404, {"name": "a"})


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("r", {"delay": "soon"}, "body.delay"),
        ("r", {"max_replays": 0}, "body.max_replays"),
        ("r", {"enabled": 1}, "body.enabled"),
        ("r", {"filter": {"meta": {}}}, "body.filter.meta"),
        ("r", {"name": "s"}, "body.name"),
        ("-", {}, "name"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_and_changes_nothing(
    name: str, body: dict[str, Any], field: str
) -> None:
    @in_world()
    async def test(world: World) -> None:
        await world.call("PUT", f"{RULES}/r", {"delay": "PT1M"})
        refused = await world.call("PUT", f"{RULES}/{name}", body)
        assert (refused.status, refused.error["details"]["field"]) == (400, field)
        (rule,) = (await world.call("GET", RULES)).body["rules"]
        assert (rule["name"], rule["delay"]) == ("r", "PT1M")

    test()


@in_world()
async def test_there_are_no_more_rules_than_a_hundred(world: World) -> None:
    for n in range(100):
        assert (await world.call("PUT", f"{RULES}/r{n}", {"enabled": False})).status == 201
    refused = await world.call("PUT", f"{RULES}/one-more", {})
    assert (refused.status, refused.error["details"]) == (409, {"maximum": 100})
    assert (await world.call("PUT", f"{RULES}/r7", {})).status == 200


@pytest.mark.parametrize("moved", [False, True])
def test_a_dead_letter_starts_over_by_rule(moved: bool) -> None:
    @in_world()
    async def test(world: World) -> None:
        if moved:
            config = {"dead_letter_queue": "dlq"}
            await world.call("PUT", "/queues/default/config", config)
        await world.call("PUT", f"{RULES}/r", {"delay": "PT1M", "filter": {"queue": "default"}})
        job_id = await bury(world, meta={"mine": True})
        assert (await world.call("GET", f"/dead-letter/{job_id}")).status == 200
        world.now_ms += 60_000
        job = await world.job(job_id)
        assert (job["state"], job["queue"], job["attempt"]) == ("available", "default", 0)
        assert job["meta"] == {
            "mine": True,
            "ojs.replay_count": 1,
            "ojs.last_replayed_at": "2026-02-12T10:31:00.000Z",
            "ojs.replay_rule": "r",
        }
        assert (await world.call("GET", f"/dead-letter/{job_id}")).status == 404
        events = (await world.call("GET", "/events?types=dead_letter.*")).body["events"]
        (event,) = [each for each in events if each["type"] == "dead_letter.replayed"]
        assert event["subject"] == job_id
        data = event["data"]
        assert (data["rule"], data["replay_count"], data["queue"]) == ("r", 1, "default")
        last = (await world.call("GET", f"/jobs/{job_id}/history")).body["history"][-1]
        assert (last["event"], last["by"], last["reason"]) == ("retry", "replay_rule", "r")
        # Once was enough.
        await fail(world, job_id)
        world.now_ms += 3_600_000
        assert (await world.call("GET", f"/dead-letter/{job_id}")).status == 200
        # Until a rule allows more, at once.
        put = await world.call("PUT", f"{RULES}/r", {"max_replays": 2})
        assert put.body["replayed"] == 1
        assert (await world.job(job_id))["meta"]["ojs.replay_count"] == 2

    test()


@in_world()
async def test_a_rule_may_have_the_name_of_another_path(world: World) -> None:
    for name in ("retry", "stats"):
        assert (await world.call("PUT", f"{RULES}/{name}", {})).status == 201
        assert (await world.call("GET", f"{RULES}/{name}")).body["rule"]["name"] == name


def test_only_operators_may_touch_rules() -> None:
    routes = [route for route in ROUTES if "replay-rules" in route.path]
    assert {route.method for route in routes} == {"GET", "PUT", "DELETE"}
    assert all(route.roles == {"operator", "admin"} for route in routes)


@in_world()
async def test_the_statistics_say_how_long_dead_letters_are_kept(world: World) -> None:
    await bury(world)
    found = (await world.call("GET", "/dead-letter/stats")).body["retention"]
    assert (found["max_age"], found["max_count"]) == ("P180D", 10_000)
    assert found["next_prune_at"] >= START
