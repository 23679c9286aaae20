"""Pools: named groups of workers that share queues, an order among them and a limit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, cast

from msgspec import Struct

from headgate.core.errors import InvalidRequest
from headgate.core.members import (
    choice_at,
    duration_at,
    flag_at,
    fraction_at,
    object_at,
    whole_at,
)
from headgate.core.order import Strategy, exact_ratio
from headgate.core.queues import check_name
from headgate.core.tenants import (
    Fairness,
    FairnessConfig,
    fairness_json,
    fairness_merge,
    fairness_over,
)
from headgate.core.times import SECOND_MS, duration_text

NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._:-]*")
MAX_NAME: Final = 128
MAX_QUEUES: Final = 1_000
MAX_WEIGHT: Final = 10_000

STRATEGIES: Final[tuple[Strategy, ...]] = ("strict", "round-robin", "weighted", "least-loaded")

_MEMBERS: Final = (
    "name",
    "queues",
    "concurrency",
    "strategy",
    "weights",
    "isolated",
    "starvation_prevention",
    "tenant_fairness",
)


class Starvation(Struct, frozen=True, gc=False):
    """What `order.Guarantee` promises each queue of a pool."""

    enabled: bool = False
    interval_ms: int = 30 * SECOND_MS
    ratio: float = 0.05


class Pool(Struct, frozen=True, gc=False):
    name: str
    queues: tuple[str, ...]
    weights: tuple[int, ...]
    """One for each queue, 1 where none is given."""
    strategy: Strategy = "round-robin"
    concurrency: int | None = None
    """Of active jobs of all its workers together."""
    isolated: bool = False
    """Its queues are served to no other pool."""
    starvation: Starvation = Starvation()
    fairness: Fairness | None = None
    """Among tenants, for its own fetches; None leaves it to each queue."""


def check_pool_name(name: object, *, field: str = "name") -> str:
    """Give the name back, or raise InvalidRequest."""
    if not isinstance(name, str) or len(name) > MAX_NAME or not NAME.fullmatch(name):
        raise InvalidRequest(
            field=field,
            expected=f"1 to {MAX_NAME} characters out of letters, digits and . _ : -, "
            "starting with a letter or digit",
        )
    return name


def pool_from(given: object, name: str, *, path: str = "body") -> Pool:
    """Read the pool of this name, bare or as the member `pool`; null counts as absent."""
    body = object_at(given, path)
    if "pool" in body:
        path = f"{path}.pool"
        body = object_at(body["pool"], path)
    body = {m: value for m, value in object_at(body, path, _MEMBERS).items() if value is not None}
    check_pool_name(name)
    if body.get("name", name) != name:
        raise InvalidRequest(field=f"{path}.name", expected=f"the name in the path, {name}")
    queues, weights = _queues(body.get("queues"), f"{path}.queues")
    if "weights" in body:
        weights |= _weights(body["weights"], queues, f"{path}.weights")
    concurrency = body.get("concurrency")
    fairness = body.get("tenant_fairness")
    return Pool(
        name=name,
        queues=queues,
        weights=tuple(weights.get(queue, 1) for queue in queues),
        strategy=strategy_at(body.get("strategy", "round-robin"), f"{path}.strategy"),
        concurrency=None
        if concurrency is None
        else whole_at(concurrency, f"{path}.concurrency", 1),
        isolated=flag_at(body.get("isolated", False), f"{path}.isolated"),
        starvation=_starvation(
            body.get("starvation_prevention", {}), len(queues), f"{path}.starvation_prevention"
        ),
        fairness=None
        if fairness is None
        else fairness_over(
            Fairness(), fairness_merge(FairnessConfig(), fairness, f"{path}.tenant_fairness")
        ),
    )


def pool_json(pool: Pool) -> dict[str, Any]:
    """The wire form; `pool_from` reads it back unchanged."""
    found: dict[str, Any] = {"name": pool.name, "queues": list(pool.queues)}
    if pool.concurrency is not None:
        found["concurrency"] = pool.concurrency
    found["strategy"] = pool.strategy
    if pool.strategy == "weighted" or set(pool.weights) != {1}:
        found["weights"] = dict(zip(pool.queues, pool.weights, strict=True))
    found["isolated"] = pool.isolated
    found["starvation_prevention"] = {
        "enabled": pool.starvation.enabled,
        "rotation_interval": duration_text(pool.starvation.interval_ms),
        "min_dispatch_ratio": pool.starvation.ratio,
    }
    if pool.fairness is not None:
        found["tenant_fairness"] = fairness_json(pool.fairness)
    return found


def strategy_at(value: object, path: str) -> Strategy:
    return cast("Strategy", choice_at(value, path, STRATEGIES))


def weights_at(value: object, queues: Sequence[str], path: str) -> tuple[int, ...]:
    """Weights by the name of the queue, in the order of the queues; 1 where none is given."""
    given = _weights(value, queues, path)
    return tuple(given.get(queue, 1) for queue in queues)


def _weights(value: object, queues: Sequence[str], path: str) -> dict[str, int]:
    return {
        queue: whole_at(weight, f"{path}.{queue}", 1, MAX_WEIGHT)
        for queue, weight in object_at(value, path, queues).items()
    }


def _queues(value: object, path: str) -> tuple[tuple[str, ...], dict[str, int]]:
    """The queues, and the weights that stand beside them in the form `{queue: {weight}}`."""
    if not isinstance(value, list | tuple | dict) or not 1 <= len(value) <= MAX_QUEUES:
        raise InvalidRequest(
            field=path, expected=f"the names of 1 to {MAX_QUEUES} queues, or an object by name"
        )
    weights: dict[str, int] = {}
    seen: set[str] = set()
    for n, queue in enumerate(value):
        at = f"{path}.{queue}" if isinstance(value, dict) else f"{path}[{n}]"
        check_name(queue, field=at)
        if queue in seen:
            raise InvalidRequest(field=at, expected="another queue than those before it")
        seen.add(queue)
        if isinstance(value, dict):
            weight = object_at(value[queue] or {}, at, ("weight",)).get("weight")
            if weight is not None:
                weights[queue] = whole_at(weight, f"{at}.weight", 1, MAX_WEIGHT)
    return tuple(value), weights


def _starvation(value: object, queues: int, path: str) -> Starvation:
    known = ("enabled", "rotation_interval", "min_dispatch_ratio")
    body = {name: v for name, v in object_at(value, path, known).items() if v is not None}
    default = Starvation()
    found = Starvation(
        flag_at(body.get("enabled", default.enabled), f"{path}.enabled"),
        duration_at(body["rotation_interval"], f"{path}.rotation_interval")
        if "rotation_interval" in body
        else default.interval_ms,
        fraction_at(body.get("min_dispatch_ratio", default.ratio), f"{path}.min_dispatch_ratio"),
    )
    if found.enabled and exact_ratio(found.ratio) * queues > 1:
        raise InvalidRequest(
            field=f"{path}.min_dispatch_ratio",
            expected=f"at most 1 / {queues}, so that {queues} queues can each have it",
        )
    return found
