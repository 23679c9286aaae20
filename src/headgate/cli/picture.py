"""What `headgate watch` shows, as lines of text: a picture of one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.cli import limit, words
from headgate.cli.table import cut, plain, table

Record = Mapping[str, Any]

_QUEUES: Final = (
    "QUEUE", ">READY", ">RUNNING", ">LATER", ">FULL", ">STARTS/M", ">DONE/M", ">FAIL/M", ">OLDEST",
)  # fmt: skip
_POOLS: Final = (
    "POOL", "STRATEGY", ">WORKERS", ">RUNNING", "QUEUE", ">STARTS/M", ">SHARE", ">WEIGHT",
)  # fmt: skip
_LONGEST_QUEUE: Final = 20
_FOOT: Final = "q quits, space looks again"


@dataclass(frozen=True)
class Look:
    """What the server said at one moment; `…_total` counts what it has beyond that as well."""

    url: str
    now_ms: int
    health: Record
    stats: Record
    dead_letters: int
    queues: Sequence[Record]
    queues_total: int
    keys: Sequence[Record]
    keys_total: int
    pools: Sequence[Record]
    shares: Sequence[Record] = field(default=())


def picture(look: Look, width: int, height: int | None = None, trouble: str = "") -> list[str]:
    """No line is longer than `width`, and there are no more than `height`; what matters most is kept."""
    head = _head(look, trouble)
    started = {one["name"]: one["dispatch_count_1m"] for one in look.shares}
    queues = [(_urgency(queue), _queue(queue, started, look.now_ms)) for queue in look.queues]
    keys = [(_closeness(key), limit.row(key, look.now_ms)) for key in look.keys]
    pools = [(0.0, row) for pool in look.pools for row in _pool(pool, started)]
    parts = [
        (_QUEUES, queues, look.queues_total - len(queues)),
        (limit.HEAD, keys, look.keys_total - len(keys)),
        (_POOLS, pools, 0),
    ]
    shown = [part for part in parts if part[1]]
    rooms = [len(rows) for _, rows, _ in shown]
    if height is not None:
        # An empty line and the headings above each part, a line about what is left out below it.
        rooms = _divided(rooms, height - len(head) - 1 - 3 * len(shown))
    lines = [cut(line, width) for line in head]
    for (headings, rows, unseen), room in zip(shown, rooms, strict=True):
        kept = _most_urgent(rows, room)
        left = len(rows) - len(kept) + unseen
        lines += ["", *table(headings, kept, width)]
        lines += [f"… and {left:,} more"] if left else []
    if height is None:
        return lines
    lines = lines[: height - 1]
    return [*lines, *[""] * (height - 1 - len(lines)), cut(_FOOT, width)]


def _head(look: Look, trouble: str) -> list[str]:
    from headgate.core.times import instant_text

    jobs, rates, workers = look.stats["jobs"], look.stats["throughput"], look.health["workers"]
    later = jobs["scheduled"] + jobs["retryable"] + jobs["pending"]
    up = words.span(look.health["uptime_seconds"] * 1000)
    stale = f" ({words.number(workers['stale'])} stale)" if workers["stale"] else ""
    about = f"headgate {look.health['version']} at {look.url}: {look.health['status']}, up {up}"
    amounts = (
        f"{_short(jobs['available'])} ready",
        f"{_short(jobs['active'])} running",
        f"{_short(later)} later",
        f"{_short(rates['processed_per_minute'])} done/min",
        f"{_short(rates['failed_per_minute'])} failed/min",
        f"{words.counted(workers['connected'], 'worker')}{stale}",
        words.counted(look.dead_letters, "dead letter"),
    )
    return [
        plain(trouble or f"{about}, {instant_text(look.now_ms)[11:19]} UTC"),
        ", ".join(amounts),
    ]


def _queue(queue: Record, started: Mapping[str, int], now_ms: int) -> Sequence[str]:
    counts, rates = queue["counts"], queue["throughput"]
    state = "" if queue["state"] == "active" else f" ({queue['state']})"
    return (
        queue["name"] + state,
        _short(counts["available"]),
        _short(counts["active"]),
        _short(counts["scheduled"] + counts["retryable"] + counts["pending"]),
        words.percent(queue.get("pressure")) or "-",
        _short(started.get(queue["name"], 0)),
        _short(rates["processed_per_minute"]),
        _short(rates["failed_per_minute"]),
        words.age(queue.get("oldest_available_at"), now_ms) or "-",
    )


def _pool(pool: Record, started: Mapping[str, int]) -> Iterable[Sequence[str]]:
    """A row for each of its queues; the pool itself stands in the first one."""
    most = pool.get("concurrency")
    running = _short(pool["active_jobs"]) + (f"/{_short(most)}" if most else "")
    own = (pool["name"], pool["strategy"], _short(pool["active_workers"]), running)
    weights = pool.get("weights") or {}
    all_started = sum(started.get(name, 0) for name in pool["queues"])
    all_weights = sum(weights.get(name, 1) for name in pool["queues"])
    for name in pool["queues"]:
        mine = started.get(name, 0)
        yield (
            *own,
            cut(name, _LONGEST_QUEUE),
            _short(mine),
            words.percent(mine / all_started) if all_started else "-",
            words.percent(weights.get(name, 1) / all_weights) if weights else "-",
        )
        own = ("", "", "", "")


def _urgency(queue: Record) -> float:
    """Full and stopped queues first, then by how many jobs wait."""
    waiting = float(queue["counts"]["available"])
    full: float = queue.get("pressure", 0.0)
    stopped = queue["state"] != "active" and waiting > 0
    return (full + stopped) * 1e12 + waiting


def _closeness(key: Record) -> float:
    """Keys that keep jobs waiting first, then those that are used at all."""
    running: float = key.get("concurrency", {}).get("active", 0)
    lately: float = key.get("rate", {}).get("current_count", 0)
    waiting: float = key["waiting_count"]
    return waiting * 1e6 + running + lately


def _most_urgent(rows: Sequence[tuple[float, Sequence[str]]], room: int) -> list[Sequence[str]]:
    """So many rows, in their own order."""
    ranked = sorted(range(len(rows)), key=lambda place: (-rows[place][0], place))
    return [rows[place][1] for place in sorted(ranked[: max(0, room)])]


def _divided(wanted: Sequence[int], room: int) -> list[int]:
    """Lines for each part: everybody gets the same, and what one does not need goes to the others."""
    given = [0] * len(wanted)
    while room > 0 and given != list(wanted):
        for place, most in enumerate(wanted):
            if given[place] < most and room > 0:
                given[place] += 1
                room -= 1
    return given


def _short(value: int) -> str:
    """No more than five characters below a trillion."""
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**4, "k")):
        if value >= size:
            shown = value / (size if unit != "k" else 1000)
            return f"{shown:.0f}{unit}" if shown >= 100 else f"{shown:.1f}{unit}"
    return f"{value:,}"
