"""What clients send: for each kind of load, one script per connection.

A script is given the body of the last answer and gives the next request with its verb, or None when it has nothing left to do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from bench.jobs import BATCH, ENVELOPE, QUEUE, batch

Request: TypeAlias = tuple[str, bytes]
Script: TypeAlias = Callable[[bytes], Request | None]

EXCHANGED = 50
"""Jobs in one exchange."""

_ID = re.compile(rb'\{"specversion":"1\.0","id":"([0-9a-f-]{36})"')
_CLAIM = re.compile(rb'"claim":(\d+)\}')


def post(path: str, body: bytes) -> bytes:
    return (
        b"POST /ojs/v1%b HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        b"Content-Type: application/openjobspec+json\r\nContent-Length: %d\r\n\r\n%b"
        % (path.encode(), len(body), body)
    )


ENQUEUE: Request = ("enqueue", post("/jobs", ENVELOPE))
ENQUEUE_BATCH: Request = ("batch", post("/jobs/batch", batch(BATCH)))


def enqueue(_connection: int) -> Script:
    return lambda _answer: ENQUEUE


def enqueue_batch(_connection: int) -> Script:
    return lambda _answer: ENQUEUE_BATCH


def life(connection: int) -> Script:
    """Enqueue, fetch, ack, each by a request of its own."""
    worker = f"worker-{connection}"
    wanted = fetch(worker)
    turn = 0

    def script(answer: bytes) -> Request:
        nonlocal turn
        turn += 1
        match turn % 3:
            case 1:
                return ENQUEUE
            case 2:
                return wanted
            case _:
                return ack(answer, worker)

    return script


def work(connection: int) -> Script:
    """Fetch and ack what is there already, until nothing is left."""
    worker = f"worker-{connection}"
    wanted = fetch(worker)
    holding = False

    def script(answer: bytes) -> Request | None:
        nonlocal holding
        if answer.startswith(b'{"jobs":[]'):
            return None
        holding = answer.startswith(b'{"jobs":')
        return ack(answer, worker) if holding else wanted

    return script


def exchange(connection: int) -> Script:
    """Lives by the batch: enqueue as many as an exchange then fetches, which acks those before."""
    worker = f"worker-{connection}"
    some = ("batch", post("/jobs/batch", batch(EXCHANGED)))
    turn = 0
    held = b""

    def script(answer: bytes) -> Request:
        nonlocal turn, held
        turn += 1
        if turn % 2:
            held = answer
            return some
        return trade(held, worker)

    return script


def verbs(connection: int) -> Script:
    """A mixed life: enqueue, look, fetch, nack, fetch again, heartbeat, ack."""
    worker = f"worker-{connection}"
    wanted = fetch(worker)
    beat = ("heartbeat", post("/workers/heartbeat", b'{"worker_id":"%b"}' % worker.encode()))
    turn = 0
    held = b""

    def script(answer: bytes) -> Request:
        nonlocal turn, held
        turn += 1
        match turn % 7:
            case 1:
                return ENQUEUE
            case 2:
                return look(answer)
            case 3 | 5:
                return wanted
            case 4:
                return nack(answer, worker)
            case 6:
                held = answer
                return beat
            case _:
                return ack(held, worker)

    return script


def fetch(worker: str, wait_ms: int = 0) -> Request:
    wanted = f'{{"queues":["{QUEUE}"],"worker_id":"{worker}","wait_ms":{wait_ms}}}'
    return "fetch", post("/workers/fetch", wanted.encode())


def held_by(answer: bytes) -> list[tuple[bytes, bytes]]:
    """Ids and claims of the jobs that were fetched."""
    return list(zip(_ID.findall(answer), _CLAIM.findall(answer), strict=True))


def ack(answer: bytes, worker: str) -> Request:
    ((job_id, claim),) = held_by(answer)
    body = b'{"job_id":"%b","claim":%b,"worker_id":"%b"}' % (job_id, claim, worker.encode())
    return "ack", post("/workers/ack", body)


def nack(answer: bytes, worker: str) -> Request:
    """Gives the job back, so that it can be fetched again."""
    ((job_id, claim),) = held_by(answer)
    body = (
        b'{"job_id":"%b","claim":%b,"worker_id":"%b","requeue":true,'
        b'"error":{"code":"busy","message":"not now"}}' % (job_id, claim, worker.encode())
    )
    return "nack", post("/workers/nack", body)


def look(answer: bytes) -> Request:
    (job_id,) = _ID.findall(answer)
    return "look", b"GET /ojs/v1/jobs/%b HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % job_id


def trade(answer: bytes, worker: str) -> Request:
    acks = b",".join(
        b'{"job_id":"%b","claim":%b}' % (job_id, claim) for job_id, claim in held_by(answer)
    )
    body = b'{"worker_id":"%b","acks":[%b],"fetch":{"queues":["%b"],"count":%d}}' % (
        worker.encode(), acks, QUEUE.encode(), EXCHANGED,
    )  # fmt: skip
    return "exchange", post("/workers/exchange", body)


SCRIPTS: dict[str, Callable[[int], Script]] = {
    "enqueue": enqueue,
    "batch": enqueue_batch,
    "life": life,
    "work": work,
    "exchange": exchange,
    "verbs": verbs,
}
"""By the names under which the load generator, which runs in another process, knows them."""
