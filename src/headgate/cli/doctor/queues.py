"""Queues, those who serve them, and what became of jobs that failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from headgate.cli.doctor.facts import Facts, Record
from headgate.cli.doctor.finding import Finding, error, note, warning, well
from headgate.cli.words import age, counted, joined, number, percent, span

_NEARLY_FULL: Final = 0.9
_TOO_LONG_MS: Final = 300_000
_LATELY_MS: Final = 3_600_000
_MOST_DEAD: Final = 10_000
"""Of dead letters that stay in their queues, the oldest are forgotten beyond it."""


def judged(facts: Facts) -> Iterator[Finding]:
    if facts.queues is not None:
        yield from _bounds(facts.queues)
        for queue in facts.queues:
            yield from _full(queue)
            yield from _stopped(queue, facts.now_ms)
            yield from _late(queue, facts)
        yield from _consumers(facts)
    if facts.workers is not None:
        yield from _workers(facts.workers)
    if facts.dead_letters is not None:
        yield from _dead_letters(facts, facts.dead_letters)


def _bounds(queues: Sequence[Record]) -> Iterator[Finding]:
    unbounded = [queue["name"] for queue in queues if "pressure" not in queue]
    if unbounded:
        told = f"{counted(len(unbounded), 'queue')} without a bound: {joined(unbounded)}"
        yield warning("bounds", told, "headgate queue set _default --max-depth 100000")
    else:
        yield well("bounds", "every queue has a bound")


def _full(queue: Record) -> Iterator[Finding]:
    if queue.get("pressure", 0) < _NEARLY_FULL:
        return
    parked = queue.get("parked", 0)
    kept = f", with {counted(parked, 'producer')} waiting for room" if parked else ""
    change = f"headgate queue set {queue['name']} --max-depth … makes room"
    yield warning(
        "bounds",
        f"queue {queue['name']} is {percent(queue['pressure'])} full{kept}",
        f"more workers empty it faster; {change}",
    )


def _stopped(queue: Record, now_ms: int) -> Iterator[Finding]:
    name, counts = queue["name"], queue["counts"]
    left = sum(counts[state] for state in ("available", "scheduled", "retryable", "pending"))
    if queue["state"] == "draining" and left:
        undo = f"headgate queue resume {name} calls it off"
        yield warning(
            "queues",
            f"queue {name} is draining, with {counted(left, 'job')} left",
            f"{undo}, headgate queue delete {name} --move-to … is quicker",
        )
    elif queue["paused"] and counts["available"]:
        since = age(queue.get("paused_at"), now_ms)
        so_long = f" for {since}" if since else ""
        waiting = counted(counts["available"], "job")
        told = f"queue {name} has been paused{so_long}, with {waiting} waiting"
        yield warning("queues", told, f"headgate queue resume {name}")


def _late(queue: Record, facts: Facts) -> Iterator[Finding]:
    """Jobs that nothing but a free worker keeps from running; limits and pauses have their own findings."""
    from headgate.core.times import instant_ms

    name, since = queue["name"], queue.get("oldest_runnable_at")
    if not since or facts.consumers.get(name) == 0 or name in _dead_letter_queues(facts):
        return
    waits_ms = facts.now_ms - instant_ms(since)
    if waits_ms > _TOO_LONG_MS:
        told = f"a job of the queue {name} has been waiting for a free worker for {span(waits_ms)}"
        yield warning("consumers", told, "start more workers, or give them a higher --concurrency")


def _consumers(facts: Facts) -> Iterator[Finding]:
    waiting = {queue["name"]: queue["counts"]["available"] for queue in facts.queues or ()}
    kept_aside = _dead_letter_queues(facts)
    idle = [name for name, consumers in facts.consumers.items() if not consumers]
    for name in idle:
        told = f"queue {name} has {counted(waiting[name], 'job')} and nobody fetches from it"
        serve = f"headgate worker APP --queues {name}"
        if name in kept_aside:
            yield note("consumers", f"{told}; it keeps dead letters", serve)
        else:
            yield error("consumers", told, serve)
    if facts.workers is not None and not set(idle) - kept_aside:
        yield well("consumers", "every queue with jobs is served")


def _dead_letter_queues(facts: Facts) -> set[str]:
    """Where dead letters went that may wait until somebody looks at them."""
    return {job["queue"] for job in facts.newest_dead if job.get("dead_letter")}


def _workers(workers: Sequence[Record]) -> Iterator[Finding]:
    silent = [worker["id"] for worker in workers if worker["state"] == "stale"]
    resting = [worker["id"] for worker in workers if worker["state"] in {"quiet", "terminate"}]
    if silent:
        told = f"{counted(len(silent), 'worker')} fell silent: {joined(silent)}"
        yield warning("workers", told, "look at their machines; their jobs went back to the queues")
    else:
        yield well("workers", f"{counted(len(workers), 'worker')}, none of them silent")
    if resting:
        told = f"{counted(len(resting), 'worker')} told to fetch nothing: {joined(resting)}"
        yield note("workers", told)


def _dead_letters(facts: Facts, stats: Record) -> Iterator[Finding]:
    from headgate.core.times import instant_ms

    total = stats["total"]
    newest = [_died_at(job) for job in facts.newest_dead]
    lately = sum(facts.now_ms - instant_ms(at) < _LATELY_MS for at in newest if at)
    kinds = sorted(stats["by_error_type"], key=lambda kind: -stats["by_error_type"][kind])
    mostly = f", mostly {joined(kinds, 3)}" if kinds else ""
    if total >= _MOST_DEAD:
        told = f"{number(total)}: the oldest are forgotten"
        yield warning("dead letters", told, "headgate dead list shows them, dead purge makes room")
    elif lately:
        more = " or more" if lately == len(newest) < total else ""
        told = f"{number(lately)}{more} of {number(total)} came in the last hour{mostly}"
        yield warning("dead letters", told, "headgate dead list shows why, dead retry tries again")
    elif total:
        told = f"{number(total)}, none of them in the last hour{mostly}"
        yield note("dead letters", told, "headgate dead list")
    else:
        yield well("dead letters", "none")


def _died_at(job: Record) -> str:
    moved = job.get("dead_letter") or {}
    return str(moved.get("at") or job.get("discarded_at") or job.get("finished_at") or "")
