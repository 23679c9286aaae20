"""Pools: which workers serve which queues, and in which turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

from headgate.client.core import Core, at
from headgate.client.sides import AsyncSide, SyncSide, verb

P = TypeVar("P")


class _Pool:
    def __init__(self, core: Core, name: str) -> None:
        self._core = core
        self.name = name

    def __repr__(self) -> str:
        return f"<pool {self.name}>"

    @verb
    async def set(
        self,
        /,
        queues: Sequence[str],
        *,
        concurrency: int | None = None,
        strategy: Literal["strict", "round-robin", "weighted", "least-loaded"] | None = None,
        weights: Mapping[str, int] | None = None,
        isolated: bool | None = None,
        starvation_prevention: Mapping[str, Any] | None = None,
        tenant_fairness: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Create the pool or replace it."""
        body: dict[str, Any] = {
            "queues": list(queues),
            "concurrency": concurrency,
            "strategy": strategy,
            "weights": None if weights is None else dict(weights),
            "isolated": isolated,
            "starvation_prevention": starvation_prevention,
            "tenant_fairness": tenant_fairness,
        }
        body = {name: value for name, value in body.items() if value is not None}
        found: dict[str, Any] = await self._core.call("set_pool", "PUT", self._path, body)
        return found

    @verb
    async def delete(self, /) -> None:
        """Forget it; its workers serve the queues that they name themselves."""
        await self._core.call("delete_pool", "DELETE", self._path, tries=1)

    @property
    def _path(self) -> str:
        return at("admin", "pools", self.name)


class Pool(_Pool, SyncSide):
    """One pool, for callers that block."""


class AsyncPool(_Pool, AsyncSide):
    """One pool, for callers that await."""


class _Pools(Generic[P]):
    def __init__(self, core: Core, one: type[P]) -> None:
        self._core = core
        self._one = one

    def __getitem__(self, name: str) -> P:
        make: Any = self._one
        found: P = make(self._core, name)
        return found

    @verb
    async def all(self, /) -> list[dict[str, Any]]:
        """Every pool with its settings, workers and running jobs."""
        body = await self._core.call("list_pools", "GET", "/admin/pools")
        return list(body["items"])

    @verb
    async def shares(self, /) -> list[dict[str, Any]]:
        """What each queue got of all dispatches lately."""
        body = await self._core.call("scheduling_stats", "GET", "/admin/scheduling/stats")
        return list(body["queues"])


class Pools(_Pools[Pool], SyncSide):
    """`hg.pools["general"]`, for callers that block."""


class AsyncPools(_Pools[AsyncPool], AsyncSide):
    """`hg.pools["general"]`, for callers that await."""
