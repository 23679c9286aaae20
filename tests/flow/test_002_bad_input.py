"""Queue configuration (seed 002): what is wrong is refused by the name of its field, and nothing has changed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.flow.world import World, in_world

WRONG: list[tuple[Any, str]] = [
    ({"max_size": -1}, "max_size"),
    ({"max_size": "many"}, "max_size"),
    ({"max_size_bytes": 1.5}, "max_size_bytes"),
    ({"overflow_policy": "drop_newest"}, "overflow_policy"),
    ({"concurrency": -1}, "concurrency"),
    ({"concurrency": True}, "concurrency"),
    ({"rate_limit": {"limit": 0, "period": "PT1M"}}, "rate_limit.limit"),
    ({"rate_limit": {"limit": 1, "period": "PT0S"}}, "rate_limit.period"),
    ({"rate_limit": {"limit": 1}}, "rate_limit.period"),
    ({"visibility_timeout": 0}, "visibility_timeout"),
    ({"visibility_timeout": "PT1M"}, "visibility_timeout"),
    ({"default_timeout": -5}, "default_timeout"),
    ({"default_retry": {"max_attempts": -1}}, "default_retry.max_attempts"),
    ({"default_retry": []}, "default_retry"),
    ({"retention": {"completed": "a week"}}, "retention.completed"),
    ({"retention": {"failed": "P7D"}}, "retention.failed"),
    ({"dead_letter_queue": "No Such Name"}, "dead_letter_queue"),
    ({"dead_letter_queue": "q"}, "dead_letter_queue"),
    ({"dead_letter_max_size": 0}, "dead_letter_max_size"),
    ({"dead_letter_ttl": "P0D"}, "dead_letter_ttl"),
    ({"allowed_job_types": "payment.*"}, "allowed_job_types"),
    ({"allowed_job_types": [""]}, "allowed_job_types"),
    ({"producers": [1]}, "producers"),
    ({"tenant_fairness": {"default_weight": 0}}, "tenant_fairness.default_weight"),
    ({"tenant_fairness": {"weights": {"a": -1}}}, "tenant_fairness.weights.a"),
    ({"colour": "green"}, "colour"),
]


@pytest.mark.parametrize(("config", "member"), WRONG)
@in_world()
async def test_002_6_a_wrong_configuration_is_refused(
    world: World, config: Any, member: str
) -> None:
    await world.configure("q", concurrency=4)
    found = await world.call("PUT", "/queues/q/config", config)
    assert found.status in {400, 422}
    field, status = f"config.{member}", found.status
    await world.refused("PUT", "/queues/q/config", config, field, status)
    await world.refused("PUT", "/admin/queues/q/config", config, field, status)
    if config != {"dead_letter_queue": "q"}:
        await world.refused("PUT", "/queues/_default/config", config, field, status)
        created = {"name": "fresh", "config": config}
        await world.refused("POST", "/queues", created, field, status)


@pytest.mark.parametrize("name", ["", "Q", "-q", "a b", "_default", "q" * 129, "ü", 5])
@in_world()
async def test_002_5_2_a_name_that_cannot_be_is_refused(world: World, name: Any) -> None:
    await world.refused("POST", "/queues", {"name": name}, "name")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (None, "strategy"),
        ({}, "strategy"),
        ({"strategy": "forget"}, "strategy"),
        ({"strategy": "move"}, "target_queue"),
        ({"strategy": "move", "target_queue": "nowhere"}, "target_queue"),
        ({"strategy": "move", "target_queue": "q"}, "target_queue"),
        ({"strategy": "move", "target_queue": "leaving"}, "target_queue"),
        ({"strategy": "move", "target_queue": "No Name"}, "target_queue"),
        ({"strategy": "discard", "target_queue": "default"}, "target_queue"),
    ],
)
@in_world()
async def test_002_5_3_a_wrong_deletion_is_refused(world: World, body: Any, field: str) -> None:
    for queue in ("q", "leaving"):
        await world.push(queue=queue)
    await world.finish("/queues/leaving/drain")
    await world.refused("DELETE", "/queues/q", body, field)


@in_world()
async def test_002_5_3_a_queue_that_nobody_knows_cannot_be_deleted(world: World) -> None:
    before = await world.everything()
    for strategy in ("reject", "discard"):
        assert (await world.call("DELETE", "/queues/no", {"strategy": strategy})).status == 404
    assert await world.everything() == before
