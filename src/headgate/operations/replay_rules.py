"""REPLAY RULES: look at them, set them, take them back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headgate.core.errors import Conflict, NotFound
from headgate.core.replays import MOST_RULES, ReplayRule, rule_from
from headgate.engines.contract import Engine, RuleSet


async def look_up(engine: Engine, name: str, now_ms: int) -> ReplayRule:
    for rule in await engine.replay_rules(now_ms):
        if rule.name == name:
            return rule
    raise unknown(name)


async def put(
    engine: Engine,
    name: str,
    given: Mapping[str, Any],
    new_id: Callable[[int], str],
    now_ms: int,
) -> tuple[ReplayRule, RuleSet]:
    """Create or replace a rule; what is not given has its default again."""
    rule = rule_from(given, name)
    known = await engine.replay_rules(now_ms)
    if len(known) >= MOST_RULES and all(other.name != name for other in known):
        raise Conflict(
            f"there are {MOST_RULES} replay rules already, which is as many as there may be",
            details={"maximum": MOST_RULES},
        )
    found = await engine.set_replay_rule(rule, new_id(now_ms), now_ms)
    return await look_up(engine, name, now_ms), found


async def delete(engine: Engine, name: str, now_ms: int) -> None:
    """Nothing starts over by it any more."""
    if not await engine.drop_replay_rule(name, now_ms):
        raise unknown(name)


def unknown(name: str) -> NotFound:
    return NotFound(f"there is no replay rule {name}", details={"name": name})
