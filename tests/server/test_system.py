from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from headgate.server.settings import Settings, Token
from headgate.version import VERSION
from tests.server.admin_world import World, in_world

HEALTHS = ("//health", "/health")


def failing(world: World) -> None:
    async def health() -> dict[str, Any]:
        return {"type": "memory", "status": "unhealthy"}

    world.engine.health = health  # type: ignore[method-assign]


@in_world(store="memory:")
async def test_the_manifest_claims_what_is_true(world: World) -> None:
    reply = await world.call("GET", "//ojs/manifest")
    assert reply.status == 200
    assert reply.body == {
        "specversion": "1.0",
        "ojs_version": "1.0",
        "implementation": {
            "name": "headgate",
            "version": VERSION,
            "language": "python",
            "repository": "urn:ojs:implementation:headgate",
            "homepage": "/openapi.json",
        },
        "conformance_level": 1,
        "conformance_tier": "runtime",
        "protocols": ["http"],
        "backend": "memory",
        "capabilities": {
            "batch_enqueue": True,
            "cron_jobs": False,
            "dead_letter": True,
            "delayed_jobs": True,
            "job_ttl": True,
            "pause_resume": True,
            "priority_queues": True,
            "rate_limiting": True,
            "schema_validation": False,
            "unique_jobs": True,
            "workflows": False,
        },
        "unique_job_strength": "strong",
        "extensions": {
            "official": [
                {"name": name, "uri": f"urn:ojs:ext:{name}", "version": "1.0.0-rc.1"}
                for name in (
                    "rate-limiting",
                    "backpressure",
                    "queue-config",
                    "fair-scheduling",
                    "dead-letter",
                    "admin-api",
                    "progress",
                )
            ],
            "experimental": [],
            "payload_limits": {
                "max_envelope_bytes": 10 << 20,
                "max_meta_bytes": 64 << 10,
                "max_queue_name_bytes": 128,
                "max_job_type_bytes": 255,
                "supported_compression": ["gzip"],
                "external_references": False,
                "chunking": False,
                "per_queue_limits": False,
            },
        },
        "endpoints": {
            "base_url": "/ojs/v1",
            "manifest": "/ojs/manifest",
            "health": "/ojs/v1/health",
        },
        "test_suite_version": "1.0.0-rc.1",
    }


@pytest.mark.parametrize("path", HEALTHS)
def test_health(path: str) -> None:
    @in_world()
    async def ask(world: World) -> None:
        await world.call("POST", "/queues/mail/pause")
        await world.beat("silent")
        world.now_ms += 20_000
        await world.beat("w")
        reply = await world.call("GET", path, headers={"X-Request-ID": "mine"})
        assert reply.status == 200
        assert reply.headers["x-request-id"] == "mine"
        body = reply.body
        assert body.pop("backend")["status"] == "ok"
        assert body == {
            "status": "ok",
            "version": VERSION,
            "uptime_seconds": 20,
            "queues": {"active": 1, "paused": 1},
            "workers": {"connected": 1, "stale": 1},
        }

    ask()


@pytest.mark.parametrize("path", HEALTHS)
def test_health_without_a_store(path: str) -> None:
    @in_world()
    async def ask(world: World) -> None:
        failing(world)
        reply = await world.call("GET", path)
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        assert reply.body == {
            "status": "degraded",
            "version": VERSION,
            "uptime_seconds": 0,
            "backend": {"type": "memory", "status": "unhealthy", "latency_ms": 0.0},
        }

    ask()


@in_world()
async def test_readiness(world: World) -> None:
    reply = await world.call("GET", "//ready")
    assert (reply.status, reply.body) == (200, {"status": "ready"})
    failing(world)
    reply = await world.call("GET", "//ready")
    assert (reply.status, reply.body) == (503, {"status": "unavailable"})
    assert reply.headers["retry-after"] == "1"


def tokens() -> tuple[Token, ...]:
    return tuple(
        Token(role, (role,), sha256(role.encode()).hexdigest())
        for role in ("producer", "worker", "operator", "admin")
    )


@in_world(tokens=tokens(), store="redis://me:hunter2@db:6379/0", heartbeat_timeout_s=7)
async def test_the_settings_in_force_hold_no_secrets(world: World) -> None:
    reply = await world.call("GET", "/admin/system/config", token="admin")
    assert reply.status == 200
    body = reply.body
    assert body["heartbeat_timeout_s"] == 7
    assert body["limits"]["batch_items"] == 1_000
    assert body["store"] == "redis://***@db:6379/0"
    assert body["tokens"] == [
        {"name": role, "roles": [role]} for role in ("producer", "worker", "operator", "admin")
    ]
    assert set(body) == set(Settings.__struct_fields__)
    for token in tokens():
        assert token.sha256.encode() not in reply.raw
    assert b"hunter2" not in reply.raw


@in_world(tokens=tokens(), test_hooks=True)
async def test_who_may_do_what(world: World) -> None:
    everybody = {"producer", "worker", "operator", "admin"}
    operators = {"operator", "admin"}
    await world.complete("mail")
    for method, path, body, allowed in (
        ("GET", "/queues", None, everybody),
        ("GET", "/queues/mail", None, everybody),
        ("GET", "/queues/mail/stats", None, everybody),
        ("GET", "/queues/mail/priority-stats", None, everybody),
        ("POST", "/queues", {"name": "new"}, operators),
        ("PUT", "/queues/mail/config", {}, operators),
        ("POST", "/queues/mail/pause", None, operators),
        ("POST", "/queues/mail/resume", None, operators),
        ("GET", "/dead-letter", None, operators),
        ("DELETE", "/dead-letter?confirm=true", None, operators),
        ("GET", "/events", None, operators),
        ("POST", "/jobs/bulk/cancel", {"job_ids": ["x"]}, operators),
        ("GET", "/admin/jobs", None, operators),
        ("GET", "/admin/queues", None, operators),
        ("GET", "/admin/workers", None, operators),
        ("GET", "/admin/stats", None, operators),
        ("GET", "/admin/tasks", None, operators),
        ("GET", "/admin/dead-letter", None, operators),
        ("DELETE", "/admin/queues/mail/jobs", {"confirm": True}, {"admin"}),
        ("DELETE", "/queues/mail?strategy=reject", None, {"admin"}),
        ("GET", "/admin/system/config", None, {"admin"}),
        ("POST", "/admin/reset", None, {"admin"}),
    ):
        assert (await world.call(method, path, body)).status == 401, path
        for role in sorted(everybody - allowed):
            assert (await world.call(method, path, body, token=role)).status == 403, (path, role)
        for role in sorted(allowed):
            assert (await world.call(method, path, body, token=role)).status not in {401, 403}
    for path in ("//ojs/manifest", "//health", "/health", "//ready", "//metrics"):
        assert (await world.call("GET", path)).status == 200


@in_world(test_hooks=True)
async def test_a_reset_forgets_everything(world: World) -> None:
    (job_id,) = await world.complete("mail")
    reply = await world.call("POST", "/admin/reset")
    assert (reply.status, reply.body) == (200, {"reset": True})
    assert await world.state(job_id) is None
    assert (await world.call("GET", "/queues")).body["pagination"]["total"] == 1


@in_world()
async def test_without_test_hooks_there_is_no_reset(world: World) -> None:
    (job_id,) = await world.complete("mail")
    reply = await world.call("POST", "/admin/reset")
    assert (reply.status, reply.error["code"]) == (404, "not_found")
    assert await world.state(job_id) == "completed"
