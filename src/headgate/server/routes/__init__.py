"""Every route of the server, in the order in which the document lists them."""

from __future__ import annotations

from typing import Final

from headgate.server.route import Route
from headgate.server.routes import (
    admin_dead_letter,
    admin_jobs,
    admin_pools,
    admin_queues,
    admin_stats,
    admin_tasks,
    admin_tenants,
    admin_workers,
    batch,
    bulk,
    dead_letter,
    events,
    exchange,
    explain,
    history,
    jobs,
    maintenance,
    progress,
    queues,
    rate_limits,
    replay_rules,
    results,
    streams,
    system,
    workers,
)

_MODULES = (
    jobs,
    explain,
    history,
    batch,
    bulk,
    results,
    progress,
    workers,
    exchange,
    queues,
    rate_limits,
    dead_letter,
    replay_rules,
    events,
    streams,
    admin_queues,
    admin_jobs,
    admin_workers,
    admin_dead_letter,
    admin_stats,
    admin_pools,
    admin_tenants,
    admin_tasks,
    maintenance,
    system,
)

ROUTES: Final[tuple[Route, ...]] = tuple(route for each in _MODULES for route in each.ROUTES)
