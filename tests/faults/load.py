"""Mixed random traffic that writes down what it was answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from headgate import ids
from tests.faults.client import Address, Connection, NoAnswer, Reply
from tests.faults.ledger import Batch, Claim, Known, Ledger, Wrong, milliseconds

QUEUES = ("alpha", "beta", "gamma")
LOOSE = "loose"
"""The queue of the jobs whose ids the server chooses; nobody works on it."""
VISIBILITY_MS = 800
MOST_WAITING = 400
"""Producers pause beyond it, so that a restart has a bounded number of jobs to verify."""
RETRY = {
    "max_attempts": 100,
    "initial_interval": "PT0.1S",
    "backoff_coefficient": 1.0,
    "jitter": False,
}


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Load:
    """Clients of one server; `run` ends when the server does or when it is told to stop."""

    def __init__(self, ledger: Ledger, random: Random) -> None:
        self.ledger = ledger
        self.random = random
        self.answers = 0
        self.unanswered = 0
        self._stopping = False
        # Jobs and tokens share their numbers, and no number is used twice.
        self._next = len(ledger.jobs) + len(ledger.tokens)

    async def run(self, address: Address) -> None:
        """The clients' errors are raised here; that the server went away is none."""
        clients: list[Callable[[Connection], Awaitable[None]]] = [
            self._produce, self._produce, self._work("w1"), self._work("w2"), self._work("w3"),
            self._exchange("w4"), self._operate,
        ]  # fmt: skip
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(self._client(address, client))

    def stop(self) -> None:
        """Let every client finish the request that it waits for."""
        self._stopping = True

    async def _client(self, address: Address, act: Callable[[Connection], Awaitable[None]]) -> None:
        try:
            async with Connection.open(address) as connection:
                while not self._stopping:
                    await act(connection)
        except NoAnswer:
            self.unanswered += 1
            self._stopping = True

    async def _post(self, connection: Connection, path: str, body: Any, *allowed: int) -> Reply:
        reply = await connection.post(path, body)
        self.answers += 1
        if reply.status not in allowed:
            raise Wrong(f"POST {path} {body}: {reply.status} {reply.body!r}")
        return reply

    # Producers

    async def _produce(self, connection: Connection) -> None:
        if len(self.ledger.live) > MOST_WAITING and len(self.ledger.going_on()) > MOST_WAITING:
            await asyncio.sleep(0.02)
            return
        match self.random.randrange(10):
            case 0:
                await self._enqueue_loose(connection)
            case 1 | 2:
                await self._enqueue_unique(connection)
            case 3 | 4 | 5:
                await self._enqueue_batch(connection)
            case _:
                job = self.ledger.wish(self._wish())
                await self._post(connection, "/jobs", job.wish, 201)
                job.enqueued()

    def _wish(self) -> dict[str, Any]:
        random = self.random
        self._next += 1
        options: dict[str, Any] = {
            "queue": random.choice(QUEUES),
            "priority": random.choice((0, 0, 0, 5)),
            "retry": RETRY,
        }
        if random.random() < 0.1:
            options["scheduled_at"] = "+PT0.3S"
        return {
            "id": ids.uuid7(wall_ms()),
            "type": "kill.test",
            "args": [self._next, {"text": "é\n" * random.randrange(20)}],
            "meta": {"number": self._next},
            "options": options,
        }

    async def _enqueue_loose(self, connection: Connection) -> None:
        self._next += 1
        token = f"token-{self._next}"
        self.ledger.tokens[token] = False
        wish = {"type": "kill.loose", "args": [token], "options": {"queue": LOOSE}}
        await self._post(connection, "/jobs", wish, 201)
        self.ledger.tokens[token] = True

    async def _enqueue_unique(self, connection: Connection) -> None:
        wish = self._wish()
        wish["args"] = [f"unique-{self.random.randrange(8)}"]
        wish["type"] = "kill.unique"
        wish["options"]["unique"] = {
            "keys": ["type", "args"],
            "on_conflict": self.random.choice(("reject", "ignore")),
        }
        job = self.ledger.wish(wish)
        reply = await self._post(connection, "/jobs", wish, 201, 200, 409)
        if reply.status == 201:
            job.enqueued()
            return
        job.exists = False
        if reply.status == 200:
            other = reply.json["job"]["id"]
        else:
            other = reply.json["error"]["details"]["existing_job_id"]
        twin = self.ledger.jobs[other]
        twin.check(twin.wish["args"] == wish["args"], "stands for another unique key")
        twin.check(twin.exists is not False, "stands in the way without being there")
        twin.exists = True

    async def _enqueue_batch(self, connection: Connection) -> None:
        wishes = [self._wish() for _ in range(self.random.randrange(2, 20))]
        batch = Batch([self.ledger.wish(wish) for wish in wishes])
        self.ledger.batches.append(batch)
        await self._post(connection, "/jobs/batch", {"jobs": wishes}, 201)
        for job in batch.jobs:
            job.enqueued()

    # Workers

    def _work(self, worker: str) -> Callable[[Connection], Awaitable[None]]:
        async def work(connection: Connection) -> None:
            body = {**self._wanted(worker), "worker_id": worker}
            reply = await self._post(connection, "/workers/fetch", body, 200)
            for job, claim in self._received(reply.json["jobs"], worker):
                await self._end(connection, job, claim)

        return work

    def _wanted(self, worker: str) -> dict[str, Any]:
        self.ledger.fetching[worker] = VISIBILITY_MS
        return {
            "queues": self.random.sample(QUEUES, self.random.randrange(1, 4)),
            "count": self.random.choice((1, 3, 10)),
            "visibility_timeout_ms": VISIBILITY_MS,
            "wait_ms": self.random.choice((0, 30)),
        }

    def _received(self, records: list[dict[str, Any]], worker: str) -> list[tuple[Known, Claim]]:
        del self.ledger.fetching[worker]
        found = []
        for record in records:
            job = self.ledger.touch(self.ledger.jobs[record["id"]])
            found.append((job, job.fetched(record, worker, VISIBILITY_MS)))
        return found

    async def _end(self, connection: Connection, job: Known, claim: Claim) -> None:
        body = {"job_id": job.id, "worker_id": claim.worker, "claim": claim.number}
        match self.random.randrange(20):
            case 0:
                return  # comes back by itself
            case 1:
                await self._cancel(connection, job)
            case 2 | 3 | 4:
                await self._nack(connection, job, claim, body)
            case 5:
                await self._requeue(connection, claim, body)
            case 6:
                body["error"] = _error("hopeless", retryable=False)
                await self._finish(connection, "/workers/nack", body, job, claim, "discarded")
            case _:
                body["result"] = result = {"claim": claim.number, "by": claim.worker}
                await self._finish(
                    connection, "/workers/ack", body, job, claim, "completed", result
                )

    async def _finish(
        self, connection: Connection, path: str, body: Any, job: Known, claim: Claim,
        state: str, result: Any = None,
    ) -> None:  # fmt: skip
        job.possible.append((state, result))
        late = job.claim is not claim
        claim.given_back = True
        reply = await self._post(connection, path, body, 200, 409)
        job.possible.remove((state, result))
        if reply.status == 200:
            job.check(not late, f"{path} was taken from claim {claim.number}, which was lost")
            job.check(reply.json["state"] == state, f"{path} made it {reply.json['state']}")
            job.ended(state, result)

    async def _nack(self, connection: Connection, job: Known, claim: Claim, body: Any) -> None:
        message = f"failed at claim {claim.number}"
        body["error"] = _error(message, retryable=True)
        claim.given_back = True
        reply = await self._post(connection, "/workers/nack", body, 200, 409)
        if reply.status == 200:
            job.check(reply.json["state"] == "retryable", f"nack made it {reply.json['state']}")
            job.failures.add(message)

    async def _requeue(self, connection: Connection, claim: Claim, body: Any) -> None:
        body |= {"requeue": True, "error": _error("later", retryable=True)}
        claim.given_back = True
        await self._post(connection, "/workers/nack", body, 200, 409)

    def _exchange(self, worker: str) -> Callable[[Connection], Awaitable[None]]:
        """Ends most of what it holds and fetches more, in one request."""
        held: list[tuple[Known, Claim]] = []

        async def exchange(connection: Connection) -> None:
            kept = [each for each in held if self.random.random() < 0.1]
            done = [each for each in held if each not in kept]
            body: dict[str, Any] = {
                "worker_id": worker,
                "acks": [],
                "nacks": [],
                "extend": [{"job_id": job.id, "claim": claim.number} for job, claim in kept],
                "visibility_timeout_ms": VISIBILITY_MS,
            }
            ends: list[tuple[Known, Claim]] = []
            for job, claim in done:
                item: dict[str, Any] = {"job_id": job.id, "claim": claim.number}
                claim.given_back = True
                if self.random.random() < 0.2:
                    body["nacks"].append({**item, "error": _error("later", retryable=True)})
                else:
                    ends.append((job, claim))
                    body["acks"].append({**item, "result": claim.number})
                    job.possible.append(("completed", claim.number))
            body["fetch"] = self._wanted(worker)
            held.clear()
            reply = (await self._post(connection, "/workers/exchange", body, 200)).json
            for (job, claim), item in zip(ends, reply["acks"], strict=True):
                job.possible.remove(("completed", claim.number))
                if "error" not in item:
                    job.check(item["state"] == "completed", f"ack made it {item['state']}")
                    job.ended("completed", claim.number)
            for (job, claim), item in zip(kept, reply["extend"], strict=True):
                if "error" not in item:
                    claim.until_ms = milliseconds(item["visible_until"])
                    held.append((job, claim))
            held.extend(self._received(reply["jobs"], worker))

        return exchange

    # Operators

    async def _operate(self, connection: Connection) -> None:
        alive = [job for job in self.ledger.going_on() if job.exists]
        if not alive:
            await asyncio.sleep(0.01)
            return
        job = self.random.choice(alive)
        if self.random.random() < 0.15:
            await self._cancel(connection, job)
            return
        reply = await connection.request("GET", f"/ojs/v1/jobs/{job.id}")
        self.answers += 1
        job.check(reply.status == 200, f"look-up gives {reply.status}")
        job.compare(reply.json["job"])

    async def _cancel(self, connection: Connection, job: Known) -> None:
        self.ledger.touch(job).possible.append(("cancelled", None))
        for claim in job.claims.values():
            claim.given_back = True
        reply = await connection.request("DELETE", f"/ojs/v1/jobs/{job.id}")
        self.answers += 1
        job.possible.remove(("cancelled", None))
        if reply.status == 200:
            job.ended("cancelled", cancelled_ms=milliseconds(reply.json["cancelled_at"]))
        else:
            job.check(reply.status == 409, f"cancel gives {reply.status}")
            job.refused()


def _error(message: str, *, retryable: bool) -> dict[str, Any]:
    return {"code": "failed", "message": message, "retryable": retryable}
