"""Every request of the protocol's HTTP binding that this server promises has a route."""

from __future__ import annotations

import pytest

from headgate.server.routes import ROUTES
from headgate.server.routing import Router

SYSTEM = ["GET //ojs/manifest", "GET /health", "GET //health", "GET //ready", "GET //metrics"]
JOBS = [
    "POST /jobs", "GET /jobs/j", "DELETE /jobs/j", "PATCH /jobs/j", "POST /jobs/j/cancel",
    "POST /jobs/j/ack", "POST /jobs/j/nack", "POST /jobs/j/activate", "POST /jobs/batch",
    "POST /jobs/bulk", "POST /jobs/bulk/cancel", "POST /jobs/bulk/retry", "POST /jobs/bulk/delete",
    "GET /jobs/j/result", "POST /jobs/results", "GET /jobs/j/result/stream",
    "PUT /jobs/j/progress", "GET /jobs/j/progress", "GET /jobs/j/progress/stream",
    "PUT /jobs/j/checkpoint", "POST /jobs/j/checkpoint", "GET /jobs/j/checkpoint",
    "DELETE /jobs/j/checkpoint", "GET /jobs/j/history", "DELETE /jobs/j/history",
    "GET /jobs/j/lineage",
]  # fmt: skip
WORKERS = [
    "POST /workers/fetch", "POST /workers/ack", "POST /workers/nack", "POST /workers/heartbeat",
    "POST /workers/beat", "GET /workers/w/health", "POST /workers/register",
    "POST /workers/deregister", "POST /workers/exchange",
]  # fmt: skip
QUEUES = [
    "GET /queues", "POST /queues", "GET /queues/q", "PUT /queues/q/config",
    "PUT /admin/queues/q/config", "GET /queues/_default/config", "PUT /queues/_default/config",
    "DELETE /queues/q", "GET /queues/q/stats", "POST /queues/q/pause", "POST /queues/q/resume",
    "POST /queues/q/drain", "GET /queues/q/priority-stats",
]  # fmt: skip
DEAD_LETTERS = [
    "GET /dead-letter", "POST /dead-letter/j/retry", "DELETE /dead-letter/j", "GET /dead-letter/j",
    "POST /dead-letter/retry", "DELETE /dead-letter", "GET /dead-letter/stats",
    "GET /dead-letter/replay-rules", "GET /dead-letter/replay-rules/r",
    "PUT /dead-letter/replay-rules/r", "DELETE /dead-letter/replay-rules/r",
]  # fmt: skip


@pytest.mark.parametrize("request_line", [*SYSTEM, *JOBS, *WORKERS, *QUEUES, *DEAD_LETTERS])
def test_a_request_of_the_binding_has_a_route(request_line: str) -> None:
    method, path = request_line.split()
    path = path[1:] if path.startswith("//") else f"/ojs/v1{path}"
    place, _ = Router(ROUTES).find(path)
    assert method in place.endpoints
