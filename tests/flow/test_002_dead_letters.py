"""Queue configuration (seed 002, 6.4): the requests about dead letters reach those that stand in a queue for them."""

from __future__ import annotations

import pytest

from tests.flow.world import MINUTE, SECOND, World, chosen, in_world

DAY = 24 * 60 * MINUTE


async def bury(world: World, queue: str = "mail", tenant: str = "") -> str:
    """A job that has used up its attempts; its id."""
    job = await world.push(
        queue=queue,
        retry={"max_attempts": 1, "on_exhaustion": "dead_letter"},
        meta={"tenant_id": tenant} if tenant else {},
    )
    assert await world.take(queue) == [job]
    await world.nack(job)
    return job


@in_world()
async def test_002_6_4_the_figures_of_a_tenant_are_about_its_own_dead_letters(
    world: World,
) -> None:
    await world.configure("mail", dead_letter_queue="graves")
    await bury(world, tenant="acme")
    await world.later(SECOND)
    await bury(world, tenant="other")
    await bury(world, "pay", tenant="other")
    for path in ("/dead-letter/stats", "/admin/dead-letter/stats"):
        for tenant, by_queue in (
            ("acme", {"mail": 1}),
            ("other", {"mail": 1, "pay": 1}),
            ("nobody", {}),
        ):
            found = (await world.call("GET", path, x_ojs_tenant=tenant)).body
            assert (found["by_queue"], found["total"]) == (by_queue, len(by_queue))
            assert sum(found["by_error_type"].values()) == len(by_queue)
        assert (await world.get(path))["total"] == 3


@pytest.mark.parametrize("queue", ["mail", "graves"])
@in_world()
async def test_002_6_4_a_dead_letter_is_found_where_it_stands_and_where_it_came_from(
    world: World, queue: str
) -> None:
    await world.configure("mail", dead_letter_queue="graves")
    job = await bury(world)
    await bury(world, "pay")
    for path, name in (("/dead-letter", "jobs"), ("/admin/dead-letter", "items")):
        found = await world.get(f"{path}?queue={queue}")
        assert [each["id"] for each in found[name]] == [job]
    body = {"filter": {"queue": queue}, "confirm": True}
    assert (await world.finish("/dead-letter/retry", body))["retried"] == 1
    assert (await world.job(job))["queue"] == "mail"


@in_world()
async def test_002_6_4_many_are_forgotten_where_they_wait_but_none_that_runs(
    world: World,
) -> None:
    await world.configure("mail", dead_letter_queue="graves")
    running = await bury(world)
    waiting = [await bury(world) for _ in range(2)]
    assert await world.take("graves", count=1) == [running]
    body = {"filter": {"queue": "mail"}, "confirm": True}
    found = await world.finish("/dead-letter", body, method="DELETE")
    assert (found["deleted"], found["skipped"]) == (2, 1)
    assert await world.states(running) == ["active"]
    for job in waiting:
        assert (await world.call("GET", f"/jobs/{job}")).status == 404
    assert (await world.stats("graves"))["depth"] == 1


@pytest.mark.parametrize("buried", [True, False])
@in_world()
async def test_002_6_4_what_becomes_of_dead_letters_is_told_and_counted(
    world: World, buried: bool
) -> None:
    if buried:
        await world.configure("mail", dead_letter_queue="graves", dead_letter_ttl="PT1H")
    retried, pruned = await bury(world, tenant="acme"), await bury(world, tenant="acme")
    await world.finish(f"/dead-letter/{retried}/retry")
    plain = await world.push(queue="mail", retry={"max_attempts": 1})
    await world.later(60 * MINUTE if buried else 180 * DAY)
    await world.gone(pruned)
    told = await world.events("dead_letter.*")
    assert chosen(told, "type", "job_id", "tenant_id", "queue") == [
        {"type": f"dead_letter.{what}", "job_id": job, "tenant_id": "acme", "queue": "mail"}
        for what, job in (("retried", retried), ("pruned", pruned))
    ]
    assert await world.states(plain) == ["available"]
    found = await world.samples()
    names = {"added": 2, "retried": 1, "pruned": 1}
    for name, count in names.items():
        samples = [v for k, v in found.items() if k.startswith(f"ojs_dead_letter_{name}_total")]
        assert sum(samples) == count, name
