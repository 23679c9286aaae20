"""Tenants: who they are, what they may use, and whose turn it is inside one priority of a queue."""

from __future__ import annotations

import math
import re
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from headgate.core.errors import InvalidRequest
from headgate.core.gates import Rate
from headgate.core.limits import rate_at, rate_json
from headgate.core.members import choice_at, flag_at, object_at, whole_at

NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._:-]*")
MAX_NAME: Final = 256
DEFAULT_TENANT: Final = "_default"
"""Whom jobs belong to that name no tenant; nobody can bear this name."""
MAX_WEIGHT: Final = 10_000

_PREFIX: Final = "tenant:"
MOST_STANDINGS: Final = 10_000
"""Of so many tenants it is remembered, at each priority of a queue, how far they are ahead."""
_DISPATCH: Final = math.lcm(*range(1, 25))
"""Virtual time that one dispatch takes of a tenant of weight 1; weights up to 24 divide it."""


def check_tenant(name: object, *, field: str = "tenant") -> str:
    """Give the id back, or raise InvalidRequest."""
    if not isinstance(name, str) or len(name) > MAX_NAME or not NAME.fullmatch(name):
        raise InvalidRequest(
            field=field,
            expected=f"1 to {MAX_NAME} characters out of letters, digits and . _ : -, "
            "starting with a letter or digit",
        )
    return name


class Standing(Struct, frozen=True, array_like=True, gc=False):
    """How one tenant stands at one priority, and how far that priority has come."""

    finish: int
    """The virtual time at which its next turn may begin."""
    last: int
    """The number of its latest dispatch."""
    now: int
    dispatches: int


class _Level:
    """One priority."""

    __slots__ = ("dispatches", "now", "standings", "sweep_at")

    def __init__(self) -> None:
        self.now = 0
        """Where the latest dispatch in turn began."""
        self.dispatches = 0
        self.standings: dict[str, Standing] = {}
        self.sweep_at = 64


class Shares:
    """Whose turn it is among the tenants of one queue, for each priority by itself.

    Each tenant has a virtual time, which moves by 1 / weight with each of its jobs; the smallest is next, and among equal ones the tenant whose latest dispatch is longest ago.
    So tenants of equal weight alternate strictly while both have something to fetch.
    A tenant that had nothing to fetch comes back at the present time: it has saved nothing.
    """

    __slots__ = ("_levels",)

    def __init__(self) -> None:
        self._levels: dict[int, _Level] = {}

    def place(self, priority: int, tenant: str) -> tuple[int, int]:
        """Where a tenant that has something to fetch stands; the smallest place is next.

        It becomes smaller only for a tenant that is let go because of thousands that were served since.
        """
        level = self._levels.get(priority)
        if level is None:
            return 0, 0
        standing = level.standings.get(tenant)
        if standing is None:
            return level.now, 0
        return max(standing.finish, level.now), standing.last

    def served(
        self, priority: int, tenant: str, weight: int, *, in_turn: bool = True
    ) -> tuple[Standing, list[str]]:
        """A job of the tenant was dispatched; gives what is to be remembered of it, and who may be forgotten.

        Out of turn, because the fetch asked for this tenant only, it pays, but nobody else loses the turn.
        """
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = _Level()
        start, _ = self.place(priority, tenant)
        if in_turn:
            level.now = max(level.now, start)
        level.dispatches += 1
        standing = Standing(
            start + _DISPATCH // weight, level.dispatches, level.now, level.dispatches
        )
        level.standings.pop(tenant, None)
        level.standings[tenant] = standing
        gone: list[str] = []
        if len(level.standings) > level.sweep_at:
            # Whoever is behind has had nothing to fetch for a while and is as good as new.
            gone = [who for who, known in level.standings.items() if known.finish < level.now]
            # Where everybody comes once, nobody is ever behind: then whoever came longest ago is let go.
            over = len(level.standings) - len(gone) - MOST_STANDINGS
            if over > 0:
                kept = (who for who, known in level.standings.items() if known.finish >= level.now)
                gone += list(islice(kept, over))
            for who in gone:
                del level.standings[who]
            level.sweep_at = min(2 * len(level.standings) + 64, MOST_STANDINGS + 1_000)
        return standing, gone

    def clear(self) -> list[tuple[int, str]]:
        """Forget everybody; gives who was remembered, with the priority."""
        gone = [(n, who) for n, level in self._levels.items() for who in level.standings]
        self._levels.clear()
        return gone

    def restore(self, priority: int, tenant: str, standing: Standing) -> None:
        """Take back what was remembered."""
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = _Level()
        level.now = max(level.now, standing.now)
        level.dispatches = max(level.dispatches, standing.dispatches)
        level.standings[tenant] = standing


class Fairness(Struct, frozen=True, gc=False):
    """Whether tenants take turns, and how much each of them counts."""

    enabled: bool = False
    weights: dict[str, int] = {}
    default_weight: int = 1

    def weight(self, tenant: str) -> int:
        return self.weights.get(tenant, self.default_weight)


class FairnessConfig(Struct, frozen=True, omit_defaults=True):
    """The explicit values of one layer; UNSET where it says nothing."""

    enabled: bool | UnsetType = UNSET
    strategy: str | UnsetType = UNSET
    weights: dict[str, int] | UnsetType = UNSET
    default_weight: int | UnsetType = UNSET


def fairness_merge(known: FairnessConfig, given: object, path: str) -> FairnessConfig:
    """Lay what is given over what is known: given replaces, null clears, absent leaves."""
    body = object_at(given, path, FairnessConfig.__struct_fields__)
    values: dict[str, Any] = {}
    for name, value in body.items():
        at = f"{path}.{name}"
        match name:
            case _ if value is None:
                values[name] = UNSET
            case "enabled":
                values[name] = flag_at(value, at)
            case "strategy":
                values[name] = choice_at(value, at, ("fair-share",))
            case "weights":
                values[name] = _weights(value, at)
            case _:
                values[name] = whole_at(value, at, 1, MAX_WEIGHT)
    return msgspec.structs.replace(known, **values)


def fairness_over(base: Fairness, config: FairnessConfig) -> Fairness:
    """The base with everything that the configuration says."""
    return Fairness(
        base.enabled if config.enabled is UNSET else config.enabled,
        base.weights if config.weights is UNSET else config.weights,
        base.default_weight if config.default_weight is UNSET else config.default_weight,
    )


def fairness_json(fairness: Fairness) -> dict[str, Any]:
    found: dict[str, Any] = {"enabled": fairness.enabled, "strategy": "fair-share"}
    if fairness.weights:
        found["weights"] = fairness.weights
    return found | {"default_weight": fairness.default_weight}


def _weights(value: object, path: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for written, weight in object_at(value, path).items():
        at = f"{path}.{written}"
        tenant = written if written == DEFAULT_TENANT else check_tenant(written, field=at)
        # The prefix is how some write them; it is no part of the id.
        tenant = tenant.removeprefix(_PREFIX) or tenant
        if tenant in found:
            raise InvalidRequest(field=at, expected=f"the only weight of {tenant}")
        found[tenant] = whole_at(weight, at, 1, MAX_WEIGHT)
    return found


class TenantLimits(Struct, frozen=True, omit_defaults=True):
    """What a tenant may use; None where it has no such limit."""

    max_concurrency: int | None = None
    max_enqueue_rate: Rate | None = None
    max_queue_depth: int | None = None
    """Of available and scheduled jobs together."""
    max_scheduled: int | None = None
    fairness_weight: int = 1
    priority_boost: int = 0


_NONE: Final = TenantLimits()


def tenant_limits_from(
    given: object, known: TenantLimits = _NONE, *, path: str = "limits"
) -> TenantLimits:
    """Lay what is given over what is known: given replaces, null clears, absent leaves."""
    body = object_at(given, path, TenantLimits.__struct_fields__)
    values: dict[str, Any] = {}
    for name, value in body.items():
        at = f"{path}.{name}"
        match name:
            case _ if value is None:
                values[name] = getattr(_NONE, name)
            case "max_enqueue_rate":
                values[name] = rate_at(value, at)
            case "fairness_weight":
                values[name] = whole_at(value, at, 1, MAX_WEIGHT)
            case "priority_boost":
                values[name] = whole_at(value, at, -100, 100)
            case _:
                values[name] = whole_at(value, at, 0)
    return msgspec.structs.replace(known, **values)


def tenant_limits_json(limits: TenantLimits) -> dict[str, Any]:
    """The limits that there are, weight and boost always; `tenant_limits_from` reads it back."""
    found: dict[str, Any] = {
        name: getattr(limits, name)
        for name in ("max_concurrency", "max_queue_depth", "max_scheduled")
        if getattr(limits, name) is not None
    }
    if limits.max_enqueue_rate is not None:
        found["max_enqueue_rate"] = rate_json(limits.max_enqueue_rate)
    return found | {
        "fairness_weight": limits.fairness_weight,
        "priority_boost": limits.priority_boost,
    }
