"""Steps with what governs the flow: keys, pools, tenants."""

from __future__ import annotations

from itertools import islice
from typing import Any

from headgate.core.gates import Override
from headgate.core.pools import Pool
from headgate.core.states import (
    ACTIVE,
)
from headgate.core.tenants import TenantLimits
from headgate.engines.contract import (
    Dispatches,
    KeyJobs,
    KeyView,
    Maintenance,
    PoolView,
    Query,
    Quota,
    TenantView,
)
from headgate.engines.local import queries
from headgate.engines.local.ground import Ground


class FlowSteps(Ground):
    """See the contract."""

    # keys

    async def keys(self, limit: int, offset: int, now_ms: int) -> tuple[list[KeyView], int]:
        self._begin(now_ms)
        known = self._tables.keys.known
        page = islice(known.values(), offset, offset + limit)
        return [self._explainer.key(key) for key in page], len(known)

    async def key(self, key: str, now_ms: int) -> KeyView | None:
        self._begin(now_ms)
        known = self._tables.keys.known.get(key)
        return None if known is None else self._explainer.key(known)

    async def override(self, key: str, override: Override, by: str, now_ms: int) -> None:
        now = self._begin(now_ms)
        self._tables.keys.override(key, override)
        self._tell_key("rate_limit.overridden", key, by, now)

    async def lift(self, key: str, by: str, now_ms: int) -> bool:
        now = self._begin(now_ms)
        if not self._tables.keys.lift(key):
            return False
        self._tell_key("rate_limit.lifted", key, by, now)
        return True

    def _tell_key(self, kind: str, key: str, by: str, now: int) -> None:
        self._events.add(kind, now, key, data={"key": key, "by": by})

    async def key_jobs(
        self, key: str, limit: int, offset: int, now_ms: int, *, tenant: str = ""
    ) -> KeyJobs | None:
        self._begin(now_ms)
        known = self._tables.keys.known.get(key)
        if known is None:
            return None
        return self._explainer.key_jobs(known, limit, offset, tenant)

    # pools

    async def pools(self, now_ms: int) -> list[PoolView]:
        self._begin(now_ms)
        workers: dict[str, int] = {}
        for known in self._workers.known.values():
            workers[known.pool] = workers.get(known.pool, 0) + 1
        active = self._tables.in_pools
        return [
            PoolView(pool, workers.get(name, 0), active.get(name, 0))
            for name, pool in sorted(self._pools.known.items())
        ]

    async def set_pool(self, pool: Pool, now_ms: int) -> bool:
        now = self._begin(now_ms)
        new = self._pools.set(pool, now)
        self._place_all()
        return new

    async def drop_pool(self, name: str, now_ms: int) -> bool:
        now = self._begin(now_ms)
        known = self._pools.drop(name, now)
        self._place_all()
        return known

    def _place_all(self) -> None:
        """Pools have changed: everybody who waits is served from where they say now."""
        for waiter in list(self._waiters.all):
            self._waiters.place(waiter)
        for queue in self._tables.queues.values():
            self._tables.touch(queue)
        self._waiters.tell_freed(self._pools.known, ())

    async def dispatches(self, now_ms: int) -> list[Dispatches]:
        now = self._begin(now_ms)
        found = []
        for queue in sorted(self._tables.existing(), key=lambda queue: queue.name):
            rates = queue.recent.rates(now)
            found.append(
                Dispatches(
                    queue.name,
                    rates.started_last_minute,
                    rates.avg_wait_ms,
                    queue.counts[ACTIVE],
                )
            )
        return found

    # maintenance

    @property
    def maintenance(self) -> Maintenance | None:
        return self._tables.maintenance

    async def begin_maintenance(
        self, reason: str, estimated_end: int, by: str, now_ms: int
    ) -> Maintenance:
        now = self._begin(now_ms)
        known = self._tables.maintenance
        found = Maintenance(reason, now if known is None else known.enabled_at, estimated_end)
        self._upkeep.begin(found)
        data: dict[str, Any] = {"reason": reason, "by": by}
        if estimated_end:
            data["estimated_end_at"] = estimated_end
        self._events.add("maintenance.started", now, "maintenance", data=data)
        for queue in self._tables.queues.values():
            self._tables.touch(queue)
        return found

    async def end_maintenance(self, by: str, now_ms: int) -> bool:
        now = self._begin(now_ms)
        if self._tables.maintenance is None:
            return False
        self._upkeep.end(now)
        self.replays.let_go()
        self._events.add("maintenance.ended", now, "maintenance", data={"by": by})
        self._place_all()
        self._begin(now)
        return True

    # tenants

    async def tenants(self, now_ms: int) -> list[TenantView]:
        self._begin(now_ms)
        views = [self._tenantry.view(name) for name in self._tenantry.names()]
        return [view for view in views if view is not None]

    async def tenant(self, tenant: str, now_ms: int) -> TenantView | None:
        self._begin(now_ms)
        return self._tenantry.view(tenant)

    def quota(self, tenant: str, now_ms: int) -> Quota | None:
        return self._tenantry.quota(tenant, max(now_ms, self.now_ms))

    async def set_tenant(self, tenant: str, limits: TenantLimits, now_ms: int) -> bool:
        now = self._begin(now_ms)
        new = self._tenantry.set(tenant, limits, now)
        if new:
            self._events.add("tenant.created", now, tenant, data={"tenant_id": tenant})
        return new

    async def forget_tenant(self, tenant: str, now_ms: int) -> bool:
        self._begin(now_ms)
        return self._tenantry.forget(tenant)

    async def count_jobs(self, query: Query, now_ms: int) -> dict[tuple[str, str], int]:
        self._begin(now_ms)
        return await self.ask(lambda c: queries.counted(c, query))
