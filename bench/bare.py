"""The least that an ASGI application can do on the server's uvicorn, loop and parser: read a body, answer with another.

`python -m bench.bare SIZE` listens on a free port, which it prints.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import uvicorn

from bench.processes import on_loop


def application(size: int) -> Any:
    """Answers with so many bytes and the headers that every answer of the server has."""
    body = b"x" * size
    start = {
        "type": "http.response.start",
        "status": 201,
        "headers": [
            (b"ojs-version", b"1.0"),
            (b"content-type", b"application/openjobspec+json"),
            (b"content-length", str(size).encode()),
        ],
    }
    end = {"type": "http.response.body", "body": body}

    async def answer(_scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send(start)
        await send(end)

    return answer


async def serve(size: int) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        application(size),
        http="httptools",
        ws="none",
        lifespan="off",
        interface="asgi3",
        proxy_headers=False,
        log_config=None,
        access_log=False,
    )
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    await uvicorn.Server(config).serve([listener])


if __name__ == "__main__":
    try:
        on_loop(serve(int(sys.argv[1])))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(0)
