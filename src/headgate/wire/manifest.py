"""What this server says it can do: only what is true."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from headgate.core.queues import MAX_NAME
from headgate.wire.envelope import MAX_TYPE

CONFORMANCE_LEVEL: Final = 1
"""Levels 0 and 1 are whole, 2 and 4 in parts."""

CAPABILITIES: Final = {
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
}

_EXTENSIONS: Final = (
    "rate-limiting",
    "backpressure",
    "queue-config",
    "fair-scheduling",
    "dead-letter",
    "admin-api",
    "progress",
)
_REVISION: Final = "1.0.0-rc.1"
_URI: Final = "urn:ojs:ext:"

EXTENSIONS: Final = frozenset(_URI + name for name in _EXTENSIONS)
"""What requests may require."""


def manifest(
    version: str,
    backend: str,
    *,
    envelope_bytes: int,
    meta_bytes: int,
    compression: Sequence[str],
    repository: str,
    homepage: str,
) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "ojs_version": "1.0",
        "implementation": {
            "name": "headgate",
            "version": version,
            "language": "python",
            "repository": repository,
            "homepage": homepage,
        },
        "conformance_level": CONFORMANCE_LEVEL,
        "conformance_tier": "runtime",
        "protocols": ["http"],
        "backend": backend,
        "capabilities": CAPABILITIES,
        "unique_job_strength": "strong",
        "extensions": {
            "official": [
                {"name": name, "uri": _URI + name, "version": _REVISION} for name in _EXTENSIONS
            ],
            "experimental": [],
            "payload_limits": {
                "max_envelope_bytes": envelope_bytes,
                "max_meta_bytes": meta_bytes,
                "max_queue_name_bytes": MAX_NAME,
                "max_job_type_bytes": MAX_TYPE,
                "supported_compression": list(compression),
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
        "test_suite_version": _REVISION,
    }
