"""Jobs in requests: what is read of them, and for whom."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Raw

from headgate.core.envelope import Envelope
from headgate.core.errors import InvalidRequest
from headgate.operations.push import Producer
from headgate.server.context import Context
from headgate.server.route import Request
from headgate.server.tenancy import HEADER
from headgate.wire.envelope import read_envelope


def read(context: Context, request: Request, source: bytes | Raw) -> Envelope:
    """One job, with the tenant of the request in its meta. Raises OjsError."""
    settings = context.settings
    envelope = read_envelope(
        source,
        request.now_ms,
        envelope_bytes=settings.limits.envelope_bytes,
        meta_bytes=settings.limits.meta_bytes,
        tenant=request.tenant,
    )
    if settings.strict_tenants and not envelope.tenant:
        raise InvalidRequest(
            field="meta.tenant_id",
            expected=f"the id of a tenant, here or in the header {HEADER}: this server insists on one",
        )
    return envelope


def producer(context: Context, request: Request) -> Producer:
    """Who enqueues."""
    return _named(request.identity.name, context.settings.test_hooks)


# They are few, and each of them enqueues much.
_named = lru_cache(maxsize=1_024)(Producer)
