"""Who got how much, beside what its weight promises."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from headgate.core.tenants import TenantLimits
from headgate.engines.contract import PoolView
from headgate.simulation.figures import Figures, Tally

Place = tuple[str, str]


class Share(Struct):
    """What one queue of a pool, or one tenant, got of all starts."""

    among: str
    """`pool NAME` or `tenants`."""
    name: str
    weight: int
    promised: float
    got: float
    contested: float | None
    """The same for those steps at whose beginning and end all of them had jobs waiting: only there do weights decide."""


class Shares:
    """Remembers, step by step, who had jobs waiting."""

    def __init__(self) -> None:
        self._before: dict[Place, bool] = {}
        self._started: dict[Place, int] = {}
        self._steps: list[tuple[frozenset[Place], dict[Place, int]]] = []

    def look(self, tallies: Mapping[Place, Tally], waiting: Mapping[Place, int]) -> None:
        """At the end of every step."""
        now = {place: jobs > 0 for place, jobs in waiting.items()}
        both = frozenset(place for place, has in now.items() if has and self._before.get(place))
        more = {}
        for place, tally in tallies.items():
            if place[0] in {"queue", "tenant"}:
                more[place] = tally.started - self._started.get(place, 0)
                self._started[place] = tally.started
        if both:
            self._steps.append((both, more))
        self._before = now

    def found(
        self, pools: Iterable[PoolView], tenants: Mapping[str, TenantLimits], figures: Figures
    ) -> list[Share]:
        """For every pool with weights, and for tenants where there are several."""
        found = []
        for view in pools:
            pool = view.pool
            if pool.strategy == "weighted":
                weights = dict(zip(pool.queues, pool.weights, strict=True))
                found += self._among(f"pool {pool.name}", "queue", weights, figures)
        names = [name for scope, name in figures.tallies if scope == "tenant"]
        if len(names) > 1:
            weights = {
                name: tenants[name].fairness_weight if name in tenants else 1 for name in names
            }
            found += self._among("tenants", "tenant", weights, figures)
        return found

    def _among(
        self, among: str, scope: str, weights: Mapping[str, int], figures: Figures
    ) -> list[Share]:
        places = [(scope, name) for name in weights]
        whole = {
            place: figures.tallies[place].started for place in places if place in figures.tallies
        }
        contested = dict.fromkeys(places, 0)
        for both, more in self._steps:
            if both.issuperset(places):
                for place in places:
                    contested[place] += more.get(place, 0)
        sums = sum(weights.values()), sum(whole.values()), sum(contested.values())
        return [
            Share(
                among,
                name,
                weight,
                round(weight / sums[0], 4),
                round(whole.get((scope, name), 0) / sums[1], 4) if sums[1] else 0.0,
                round(contested[scope, name] / sums[2], 4) if sums[2] else None,
            )
            for name, weight in weights.items()
        ]
