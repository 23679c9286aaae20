"""Maintenance: the server takes jobs and gives none out."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from headgate.core.times import instant_text
from headgate.engines.contract import Maintenance
from headgate.operations import maintenance
from headgate.server.answers import answer
from headgate.server.context import Context
from headgate.server.roles import ADMINS, OPERATORS
from headgate.server.route import Answer, Request, Route
from headgate.wire.administration import MaintenanceAnswer, MaintenanceRequest

_PATH = "/ojs/v1/admin/system/maintenance"


async def switch(context: Context, request: Request) -> Answer:
    asked: MaintenanceRequest = request.data
    engine, by, now_ms = context.engine, request.identity.name, request.now_ms
    if asked.enabled:
        reason, duration = asked.reason or "", asked.estimated_duration
        await maintenance.begin(engine, reason, duration, by, now_ms)
    else:
        await maintenance.end(engine, by, now_ms)
    return answer(maintenance_info(engine.maintenance))


async def look(context: Context, _request: Request) -> Answer:
    return answer(maintenance_info(context.engine.maintenance))


def maintenance_info(known: Maintenance | None) -> MaintenanceAnswer:
    if known is None:
        return MaintenanceAnswer(False)
    ends = known.estimated_end
    return MaintenanceAnswer(
        True, known.reason, instant_text(known.enabled_at), instant_text(ends) if ends else UNSET
    )


ROUTES: Sequence[Route] = (
    Route("GET", _PATH, look, OPERATORS, tag="admin", summary="Whether the server is in maintenance",
          response=MaintenanceAnswer),
    Route("POST", _PATH, switch, ADMINS, tag="admin",
          summary="Begin or end maintenance: jobs are taken, and none is given out or becomes due",
          request=MaintenanceRequest, body="required", response=MaintenanceAnswer, errors=(400,)),
)  # fmt: skip
