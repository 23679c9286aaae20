"""The server itself: what it can do, whether it is well, how it is set up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from headgate.core.errors import BackendUnavailable, NotFound
from headgate.core.queues import PAUSED
from headgate.engines.contract import Engine, KeyView
from headgate.server.answers import answer
from headgate.server.bodies import CODINGS
from headgate.server.context import Context
from headgate.server.exposition import exposition
from headgate.server.gauges import MOST_KEYS, Seen, state
from headgate.server.roles import ADMINS, ANYBODY
from headgate.server.route import Answer, Request, Route
from headgate.server.routes.admin_stats import uptime_s
from headgate.server.routes.maintenance import maintenance_info
from headgate.version import VERSION
from headgate.wire.administration import (
    Backend,
    Health,
    QueueHealth,
    Readiness,
    ResetAnswer,
    WorkerHealth,
)
from headgate.wire.manifest import manifest as manifest_of

_OK = "ok"
_SOON = [(b"retry-after", b"1")]


async def manifest(context: Context, _request: Request) -> Answer:
    limits = context.settings.limits
    found = manifest_of(
        VERSION,
        urlsplit(context.settings.store).scheme,
        envelope_bytes=limits.envelope_bytes,
        meta_bytes=limits.meta_bytes,
        compression=CODINGS,
        repository=context.settings.repository,
        homepage=context.settings.homepage,
    )
    return answer(found)


async def health(context: Context, request: Request) -> Answer:
    backend = await _backend(context)
    well = backend.status == _OK
    body = Health(
        status=_OK if well else "degraded",
        version=VERSION,
        uptime_seconds=uptime_s(context, request.now_ms),
        backend=backend,
    )
    if not well:
        return _unavailable(body)
    queues = await context.engine.queues(request.now_ms)
    paused = sum(view.state == PAUSED for view in queues)
    body.queues = QueueHealth(len(queues) - paused, paused)
    workers = await context.engine.workers(request.now_ms)
    stale = sum(view.stale for view in workers)
    body.workers = WorkerHealth(len(workers) - stale, stale)
    if context.engine.maintenance is not None:
        body.maintenance = maintenance_info(context.engine.maintenance)
    return answer(body)


async def ready(context: Context, _request: Request) -> Answer:
    backend = await _backend(context)
    if backend.status == _OK:
        return answer(Readiness("ready"))
    return _unavailable(Readiness("unavailable"))


async def metrics(context: Context, request: Request) -> Answer:
    engine = context.engine
    lines: list[str] = []
    for some in context.metrics.happened():
        lines += some
        await asyncio.sleep(0)
    # Without a store there is still to be seen what happened until it was lost.
    with suppress(BackendUnavailable):
        lines += state(await _seen(engine, request.now_ms), request.now_ms)
    return Answer(exposition(lines), content_type=b"text/plain")


KEYS_AT_ONCE: Final = 200
"""Looking at more of them would be a pause."""


async def _seen(engine: Engine, now_ms: int) -> Seen:
    keys: list[KeyView] = []
    total = 1
    while len(keys) < min(total, MOST_KEYS):
        some, total = await engine.keys(KEYS_AT_ONCE, len(keys), now_ms)
        if not some:
            break
        keys += some
        await asyncio.sleep(0)
    return Seen(
        queues=await engine.queues(now_ms),
        workers=await engine.workers(now_ms),
        dead_letters=(await engine.dead_letter_stats(now_ms)).total,
        keys=keys,
        pools=await engine.pools(now_ms),
        dispatches=await engine.dispatches(now_ms),
        tenants=await engine.tenants(now_ms),
    )


async def configuration(context: Context, _request: Request) -> Answer:
    """The settings in force, without anything that opens a door."""
    settings = context.settings
    found: dict[str, Any] = msgspec.to_builtins(settings)
    found["store"] = _without_password(settings.store)
    found["tokens"] = [{"name": token.name, "roles": token.roles} for token in settings.tokens]
    return answer(found)


async def reset(context: Context, request: Request) -> Answer:
    """Forget everything; there only while test hooks are on."""
    if not context.settings.test_hooks:
        raise NotFound("there is nothing here")
    await context.engine.reset(request.now_ms)
    return answer(ResetAnswer(reset=True))


async def _backend(context: Context) -> Backend:
    found = await context.engine.health()
    return Backend(found["type"], found["status"], found.get("latency_ms", 0.0))


def _unavailable(body: Any) -> Answer:
    found = answer(body, status=503)
    found.headers = _SOON
    return found


def _without_password(store: str) -> str:
    parts = urlsplit(store)
    if "@" not in parts.netloc:
        return store
    return parts._replace(netloc="***@" + parts.netloc.rpartition("@")[2]).geturl()


ROUTES: Sequence[Route] = (
    Route("GET", "/ojs/manifest", manifest, ANYBODY, tag="system", summary="What this server can do",
          response=dict[str, Any], durable=False),
    *(
        Route("GET", path, health, ANYBODY, tag="system", summary="Whether the server is well",
              response=Health, also=(503,), durable=False)
        for path in ("/ojs/v1/health", "/health")
    ),
    Route("GET", "/ready", ready, ANYBODY, tag="system", summary="Whether requests can be sent",
          response=Readiness, also=(503,), durable=False),
    Route("GET", "/metrics", metrics, ANYBODY, tag="system", summary="Metrics for Prometheus",
          content="text/plain", durable=False),
    Route("GET", "/ojs/v1/admin/system/config", configuration, ADMINS, tag="admin",
          summary="The settings in force", response=dict[str, Any]),
    Route("POST", "/ojs/v1/admin/reset", reset, ADMINS, tag="admin",
          summary="Forget everything (test hooks only)", body="optional", response=ResetAnswer,
          errors=(404,)),
)  # fmt: skip
