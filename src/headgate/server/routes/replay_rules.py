"""Rules by which dead letters start over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headgate.core.replays import rule_json
from headgate.operations import replay_rules
from headgate.server.answers import answer
from headgate.server.context import Context
from headgate.server.roles import OPERATORS
from headgate.server.route import Answer, Request, Route
from headgate.server.routes.admin_tasks import task_info
from headgate.wire import paging
from headgate.wire.replays import DeletedReplayRule, ReplayRuleAnswer, ReplayRuleList


async def list_rules(context: Context, request: Request) -> Answer:
    part = paging.window(request.query)
    rules = await context.engine.replay_rules(request.now_ms)
    shown = rules[part.offset : part.offset + part.limit]
    body = {
        "rules": [rule_json(rule) for rule in shown],
        "pagination": paging.pagination(part, len(rules)),
    }
    return answer(body)


async def info(context: Context, request: Request) -> Answer:
    (name,) = request.params
    rule = await replay_rules.look_up(context.engine, name, request.now_ms)
    return answer({"rule": rule_json(rule)})


async def put(context: Context, request: Request) -> Answer:
    (name,) = request.params
    rule, found = await replay_rules.put(
        context.engine, name, request.data, context.new_id, request.now_ms
    )
    body: dict[str, Any] = {"rule": rule_json(rule)}
    if found.task.finished:
        body["replayed"] = found.task.done
    else:
        body["task"] = task_info(found.task)
    return answer(body, status=201 if found.created else 200)


async def delete(context: Context, request: Request) -> Answer:
    (name,) = request.params
    await replay_rules.delete(context.engine, name, request.now_ms)
    return answer(DeletedReplayRule(deleted=True, name=name))


def _route(method: str, path: str, handler: Any, **more: Any) -> Route:
    path = f"/ojs/v1/dead-letter/replay-rules{path}"
    return Route(method, path, handler, OPERATORS, tag="dead-letter", **more)


ROUTES: Sequence[Route] = (
    _route("GET", "", list_rules, summary="List the rules by which dead letters start over",
           response=ReplayRuleList, query=paging.PARTS, errors=(400,)),
    _route("GET", "/{name}", info, summary="Look at such a rule", response=ReplayRuleAnswer,
           errors=(404,)),
    _route("PUT", "/{name}", put, summary="Create or replace such a rule",
           request=dict[str, Any], body="required", response=ReplayRuleAnswer, also=(201,),
           errors=(400, 409)),
    _route("DELETE", "/{name}", delete, summary="Delete such a rule", response=DeletedReplayRule,
           errors=(404,)),
)  # fmt: skip
