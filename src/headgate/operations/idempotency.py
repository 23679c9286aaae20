"""Repeated requests: the same key with the same request gets the first answer again."""

from __future__ import annotations

from hashlib import sha256

from headgate.core.errors import Conflict, InvalidRequest
from headgate.core.times import DAY_MS
from headgate.engines.contract import Engine

MOST_CHARACTERS = 256
KEPT_MS = DAY_MS

_DIGEST_BYTES = 32


def check_key(key: str, field: str) -> str:
    if not 0 < len(key) <= MOST_CHARACTERS:
        raise InvalidRequest(field=field, expected=f"1 to {MOST_CHARACTERS} characters")
    return key


def scope_of(verb: str, caller: str, tenant: str) -> str:
    """Who shares a key: for whom somebody asks is a part of what is asked."""
    return f"{verb}@{tenant}/{caller}" if tenant else f"{verb}:{caller}"


async def recall(engine: Engine, scope: str, key: str, request: bytes, now_ms: int) -> bytes | None:
    """The first answer to this request; None when the key is new.

    Raises Conflict when the key came with another request.
    """
    kept = await engine.recall(scope, key, now_ms)
    if kept is None:
        return None
    if kept[:_DIGEST_BYTES] != sha256(request).digest():
        raise Conflict(
            "the idempotency key was used for another request", details={"idempotency_key": key}
        )
    return kept[_DIGEST_BYTES:]


async def remember(
    engine: Engine, scope: str, key: str, request: bytes, answer: bytes, now_ms: int
) -> bytes:
    """Keep the answer and give the one that counts: of equal requests at one time, the first."""
    digest = sha256(request).digest()
    kept = await engine.recall(scope, key, now_ms)
    if kept is None:
        await engine.remember(scope, key, digest + answer, now_ms + KEPT_MS, now_ms)
        return answer
    return kept[_DIGEST_BYTES:] if kept[:_DIGEST_BYTES] == digest else answer
