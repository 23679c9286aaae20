"""How long runs take."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from headgate.ids import Dice
from headgate.simulation.scenario import Amount, Service, Wrong, us_of

_NEEDED: Final = {
    "constant": ("mean",),
    "uniform": ("min", "max"),
    "exponential": ("mean",),
    "lognormal": ("median", "p95"),
}
_Z95: Final = 1.6448536269514722
"""The normal distribution has 95 % below so many deviations above its mean."""


def lengths(service: Service | Amount, dice: Dice, path: str) -> Callable[[], int]:
    """Gives another length every time, in microseconds. Raises Wrong."""
    if not isinstance(service, Service):
        us = us_of(service, path)
        return lambda: us
    needed = _NEEDED[service.distribution]
    values: dict[str, int] = {}
    for name in ("mean", "min", "max", "median", "p95"):
        given = getattr(service, name)
        if (given is not None) != (name in needed):
            problem = "is missing" if given is None else "is not needed"
            raise Wrong(
                f"{path}.{name} {problem}: {service.distribution} has {' and '.join(needed)}"
            )
        if given is not None:
            values[name] = us_of(given, f"{path}.{name}")
    match service.distribution:
        case "constant":
            mean = values["mean"]
            return lambda: mean
        case "uniform":
            low, high = values["min"], values["max"]
            if high < low:
                raise Wrong(f"{path}.max must be at least min")
            return lambda: low + int(dice.random() * (high - low + 1))
        case "exponential":
            if not values["mean"]:
                raise Wrong(f"{path}.mean must be longer than nothing")
            rate = 1 / values["mean"]
            return lambda: round(dice.expovariate(rate))
        case "lognormal":
            median, p95 = values["median"], values["p95"]
            if not 0 < median <= p95:
                raise Wrong(f"{path}.p95 must be at least the median, which is longer than nothing")
            mu, sigma = math.log(median), math.log(p95 / median) / _Z95
            return lambda: round(math.exp(dice.gauss(mu, sigma)))
