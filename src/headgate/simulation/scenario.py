"""A scenario as people write it, in TOML: traffic, workers and settings.

Whatever is wrong is refused with the name of the field.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from headgate.client.amounts import at_ms, ms_of, rate_of
from headgate.client.errors import ValidationError
from headgate.core.times import duration_text

Amount: TypeAlias = int | float | str
"""A duration: seconds, or text such as 90s, 5m, PT5M."""
MOST_STEPS: Final = 10_000
_PATH: Final = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`")
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")


class Wrong(Exception):
    """The scenario cannot be played; the message is one line that names the field."""


class Arrivals(Struct, forbid_unknown_fields=True, rename={"begin": "from"}):
    """When jobs of one kind come."""

    pattern: Literal["constant", "poisson", "bursts", "trace"] = "poisson"
    rate: str | None = None
    """`50/s`: evenly with `constant`, by chance with `poisson`."""
    size: int | None = None
    """Of a burst."""
    every: Amount | None = None
    """From burst to burst."""
    file: str | None = None
    """Of a trace: CSV with the column `at`, and `count`, `tenant`, `value`, `service` if wanted."""
    begin: Amount = 0
    until: Amount | None = None


class Service(Struct, forbid_unknown_fields=True):
    """How long runs take."""

    distribution: Literal["constant", "uniform", "exponential", "lognormal"] = "constant"
    mean: Amount | None = None
    min: Amount | None = None
    max: Amount | None = None
    median: Amount | None = None
    p95: Amount | None = None


class Jobs(Struct, forbid_unknown_fields=True):
    """Jobs of one kind."""

    type: str
    arrivals: Arrivals | list[Arrivals]
    service: Service | Amount = 0
    queue: str = "default"
    priority: int = 0
    tenant: str = ""
    tenants: dict[str, int] = {}
    """Shares of the arrivals, where they are of several tenants."""
    keys: list[str] = []
    """`customer:{value}` is another key for every value."""
    values: int = 1
    """How many values there are, each as likely as the others."""
    on_limit: Literal["wait", "reschedule", "drop"] = "wait"
    failures: float = 0.0
    """The part of all attempts that fails."""
    retry: dict[str, Any] | None = None
    timeout: Amount | None = None
    expires: Amount | None = None


class Workers(Struct, forbid_unknown_fields=True):
    """Workers that are all alike."""

    count: int = 1
    concurrency: int = 1
    name: str = ""
    queues: list[str] = []
    """In their order; without a pool and without queues, all there are."""
    pool: str = ""


class Scenario(Struct, forbid_unknown_fields=True):
    duration: Amount
    jobs: list[Jobs]
    workers: list[Workers]
    start: str = "2026-01-05T08:00:00Z"
    seed: int = 0
    step: Amount | None = None
    """Of the series; without it, a sixtieth of the duration."""
    queues: dict[str, dict[str, Any]] = {}
    limits: dict[str, dict[str, Any]] = {}
    pools: dict[str, dict[str, Any]] = {}
    tenants: dict[str, dict[str, Any]] = {}
    folder: Path = field(default_factory=Path)
    """Where files that it names are looked for."""

    @property
    def duration_us(self) -> int:
        return us_of(self.duration, "duration")

    @property
    def step_us(self) -> int:
        if self.step is None:
            return max(1_000, self.duration_us // 60)
        return us_of(self.step, "step")

    @property
    def start_us(self) -> int:
        try:
            return at_ms(self.start, "start") * 1000
        except ValidationError as error:
            raise Wrong(str(error)) from None


def load(path: str | Path) -> Scenario:
    """Read a file. Raises Wrong."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise Wrong(f"{path} cannot be read: {reason}") from None
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Wrong(f"{path} is not TOML: {error}") from None
    return read(given, file.parent)


def read(given: Mapping[str, Any], folder: Path = Path()) -> Scenario:
    """The scenario, checked as far as it can be without playing it. Raises Wrong."""
    if "folder" in given:
        raise Wrong("folder is not known here")
    try:
        found = msgspec.convert(given, Scenario)
    except msgspec.ValidationError as error:
        raise Wrong(_said(str(error))) from None
    found.folder = folder
    check(found)
    return found


def us_of(value: Amount, path: str) -> int:
    """Microseconds. Raises Wrong."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12:
            # Seconds may be finer than milliseconds.
            return round(value * 1_000_000)
        return ms_of(value, path) * 1000
    except ValidationError as error:
        raise Wrong(str(error)) from None


def rates_in(given: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The same limits with rates such as `100/m` in the form of the protocol."""
    found = dict(given)
    for name in ("rate", "throttle"):
        if isinstance(found.get(name), str):
            limit, period_ms = _rate(found[name], f"{path}.{name}")
            found[name] = {"limit": limit, "period": duration_text(period_ms)}
    return found


def per_s(text: str, path: str) -> float:
    """How many a second are `90/m`. Raises Wrong."""
    limit, period_ms = _rate(text, path)
    return limit * 1000 / period_ms


def _rate(text: str, path: str) -> tuple[int, int]:
    try:
        return rate_of(text, path)
    except ValidationError as error:
        raise Wrong(str(error)) from None


def _said(text: str) -> str:
    """What the decoder says, in the words of this page: the field first."""
    found = _PATH.fullmatch(text)
    what, path = (found[1], found[2] or "") if found else (text, "")
    for pattern, ending in ((_UNKNOWN, "is not known here"), (_MISSING, "is missing")):
        if named := pattern.fullmatch(what):
            return f"{path}{'.' if path else ''}{named[1]} {ending}"
    return f"{path or 'scenario'}: {what[:1].lower()}{what[1:]}"


def check(scenario: Scenario) -> None:
    """Raises Wrong where members do not go together."""
    if not scenario.duration_us:
        raise Wrong("duration must be longer than nothing")
    if not scenario.step_us or scenario.duration_us / scenario.step_us > MOST_STEPS:
        raise Wrong(f"step must divide the duration into at most {MOST_STEPS:,} steps")
    _ = scenario.start_us
    if not scenario.jobs:
        raise Wrong("jobs must be at least one")
    seen: set[str] = set()
    for number, jobs in enumerate(scenario.jobs):
        path = f"jobs[{number}]"
        if jobs.type in seen:
            raise Wrong(f"{path}.type: {jobs.type} is there already")
        seen.add(jobs.type)
        _check_jobs(jobs, path)
    names: set[str] = set()
    for number, workers in enumerate(scenario.workers):
        path = f"workers[{number}]"
        workers.name = workers.name or f"workers-{number + 1}"
        if workers.name in names:
            raise Wrong(f"{path}.name: {workers.name} is there already")
        names.add(workers.name)
        for name in ("count", "concurrency"):
            if getattr(workers, name) < 1:
                raise Wrong(f"{path}.{name} must be at least 1")
        if workers.pool and workers.queues and workers.pool in scenario.pools:
            raise Wrong(f"{path}.queues: those of pool {workers.pool} count, so name none here")
    used = {key for jobs in scenario.jobs for key in jobs.keys}
    for key in scenario.limits:
        if key not in used:
            raise Wrong(f"limits.{key}: no jobs have this key")


def _check_jobs(jobs: Jobs, path: str) -> None:
    if not 0 <= jobs.failures <= 1:
        raise Wrong(f"{path}.failures must be from 0 to 1")
    if jobs.values < 1:
        raise Wrong(f"{path}.values must be at least 1")
    if jobs.tenant and jobs.tenants:
        raise Wrong(f"{path}.tenants: give either tenant or tenants")
    for tenant, share in jobs.tenants.items():
        if share < 1:
            raise Wrong(f"{path}.tenants.{tenant} must be at least 1")
    for name in ("timeout", "expires"):
        value = getattr(jobs, name)
        if value is not None and not us_of(value, f"{path}.{name}"):
            raise Wrong(f"{path}.{name} must be longer than nothing")
