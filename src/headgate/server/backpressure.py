"""What producers and the server tell each other in headers about full queues."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from headgate.core.bounds import tightest
from headgate.core.errors import InvalidRequest
from headgate.engines.contract import Duplicate, Pushed
from headgate.server.route import Request

BLOCK_TIMEOUT: Final = "OJS-Block-Timeout"
MOST_BLOCKED_S: Final = 60
MAY_WAIT: Final = {
    BLOCK_TIMEOUT: f"How many seconds to wait for room before a full queue with the strategy `block`: 0 (default) to {MOST_BLOCKED_S}, decimals allowed."
}
"""What producers may ask for, for the document."""
WARNINGS: Final = {
    "X-OJS-Queue-Depth": "How full the queue is, where producers are to be warned: in the unit of its bound.",
    "X-OJS-Queue-Bound": "The bound that this is of.",
    "X-OJS-Queue-Pressure": "The one divided by the other.",
}
"""What an answer to an enqueue carries near a bound, for the document."""

_SECONDS: Final = re.compile(rb"[0-9]{1,9}(?:\.[0-9]{1,9})?")


def block_ms(request: Request) -> int:
    """How long the request is ready to wait for room; 0 when it is not."""
    given = request.known.get(b"ojs-block-timeout")
    if given is None:
        return 0
    seconds = float(given) if _SECONDS.fullmatch(given) else -1
    if not 0 <= seconds <= MOST_BLOCKED_S:
        raise InvalidRequest(field=BLOCK_TIMEOUT, expected=f"0 to {MOST_BLOCKED_S} seconds")
    return round(seconds * 1000)


def warnings(outcomes: Iterable[Pushed | Duplicate | object]) -> list[tuple[bytes, bytes]]:
    """Headers that warn of the fullest of the queues which these jobs went to, if any is to be warned of."""
    loads = [o.load for o in outcomes if isinstance(o, Pushed) and o.load is not None]
    load = tightest(loads)
    if load is None:
        return []
    return [
        (b"x-ojs-queue-depth", b"%d" % load.depth),
        (b"x-ojs-queue-bound", b"%d" % load.bound),
        (b"x-ojs-queue-pressure", str(round(load.pressure, 4)).encode()),
    ]
