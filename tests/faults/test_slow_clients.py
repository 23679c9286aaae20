"""Clients that do nothing, do it slowly, or never listen cost the others nothing."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

from tests.faults.client import Connection, call
from tests.faults.server import Server

IDLE = 1_000
DEAF = 30
PROMPT_S = 1.0
MOST_MEMORY = 100 << 20
"""More than what was there before; a deaf client costs its outgoing buffer at most."""


def test_a_thousand_lazy_clients_do_not_disturb_a_busy_one(tmp_path: Path) -> None:
    with Server(tmp_path / "slow.db") as server:
        large = {"type": "slow.test", "args": ["x" * 500_000], "options": {"queue": "q"}}
        reply = call(server.address, "POST", "/ojs/v1/jobs", large)
        path = f"/ojs/v1/jobs/{reply.json['job']['id']}"
        before = _resident_bytes(server.pid)
        asyncio.run(_among_lazy_ones(server, path))
        assert _resident_bytes(server.pid) - before < MOST_MEMORY
        assert server.stop() == 0, server.errors


async def _among_lazy_ones(server: Server, large: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for number in range(IDLE):
            connection = await stack.enter_async_context(Connection.open(server.address))
            match number % 4:
                case 0:
                    connection.write(b"POST /ojs/v1/jobs HTTP/1.1\r\nContent-")
                case 1:
                    connection.write(b"POST /ojs/v1/jobs HTTP/1.1\r\nContent-Length: 99\r\n\r\n{")
                case 2:
                    connection.half_close()
                case _:
                    pass
        for _ in range(DEAF):
            connection = await stack.enter_async_context(Connection.open(server.address))
            connection.hear_nothing()
            for _ in range(40):
                connection.send("GET", large)
        busy = await stack.enter_async_context(Connection.open(server.address))
        for number in range(100):
            begun = time.monotonic()
            reply = await busy.post("/jobs", {"type": "slow.test", "args": [number]})
            assert reply.status == 201
            assert time.monotonic() - begun < PROMPT_S
            await asyncio.sleep(0.005)


def _resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise LookupError(pid)
