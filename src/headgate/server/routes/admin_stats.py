"""The system as a whole, in numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import UNSET

from headgate.core.errors import InvalidRequest
from headgate.core.states import STATES
from headgate.core.times import DAY_MS, HOUR_MS, MINUTE_MS, instant_text
from headgate.operations import queues
from headgate.operations.filters import instant
from headgate.server.answers import answer
from headgate.server.context import Context
from headgate.server.roles import OPERATORS
from headgate.server.route import Answer, Request, Route
from headgate.server.tenancy import queues_seen
from headgate.wire.administration import History, HistoryPoint, SystemStats
from headgate.wire.queues import Throughput

_PERIODS: Final = {"1m": MINUTE_MS, "5m": 5 * MINUTE_MS, "1h": HOUR_MS, "1d": DAY_MS}
_POINTS: Final = 60
"""How many intervals an answer has when nothing says where it begins."""
_MOST_POINTS: Final = 1_440


async def stats(context: Context, request: Request) -> Answer:
    views = await queues_seen(context, request, await context.engine.queues(request.now_ms))
    workers = await context.engine.workers(request.now_ms)
    return answer(
        SystemStats(
            queues=len(views),
            workers=len(workers),
            jobs={state: sum(view.counts[state] for view in views) for state in STATES},
            throughput=Throughput(
                sum(view.rates.completed_last_minute for view in views),
                sum(view.rates.failed_last_minute for view in views),
            ),
            uptime_seconds=uptime_s(context, request.now_ms),
        )
    )


async def history(context: Context, request: Request) -> Answer:
    query = request.query
    period = query.get("period") or "1m"
    if period not in _PERIODS:
        raise InvalidRequest(field="period", expected="one of " + ", ".join(_PERIODS))
    since, until = _span(query, _PERIODS[period], request.now_ms)
    queue = query.get("queue") or None
    if queue is not None:
        await queues.look_up(context.engine, queue, request.now_ms)
    points = await context.engine.history(queue, _PERIODS[period], since, until, request.now_ms)
    data = [HistoryPoint(instant_text(p.at_ms), p.enqueued, p.completed, p.failed) for p in points]
    return answer(History(period, data, queue or UNSET))


def uptime_s(context: Context, now_ms: int) -> int:
    return (now_ms - context.started_at) // 1000


def _span(query: Mapping[str, str], step_ms: int, now_ms: int) -> tuple[int, int]:
    """From the start of an interval to an instant, without that instant."""
    until = instant(query.get("until") or None, "until")
    last = now_ms + 1 if until is None else until
    since = instant(query.get("since") or None, "since")
    first = last - _POINTS * step_ms if since is None else since
    if not 0 <= first <= last:
        raise InvalidRequest(field="since", expected="an instant before until")
    if last - first > _MOST_POINTS * step_ms:
        raise InvalidRequest(field="since", expected=f"at most {_MOST_POINTS} periods before until")
    return first - first % step_ms, last


ROUTES: Sequence[Route] = (
    Route("GET", "/ojs/v1/admin/stats", stats, OPERATORS, tag="admin",
          summary="Jobs, queues, workers and throughput", response=SystemStats, tenant="seen"),
    Route("GET", "/ojs/v1/admin/stats/history", history, OPERATORS, tag="admin",
          summary="What happened over time",
          query={
              "period": "`1m` (default), `5m`, `1h` or `1d`: the length of one interval.",
              "since": f"Where it begins; {_POINTS} intervals before its end by default.",
              "until": "Where it ends; now by default.",
              "queue": "Only this queue.",
          },
          response=History, errors=(400, 404)),
)  # fmt: skip
