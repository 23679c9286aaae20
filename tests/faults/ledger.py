"""What a client knows for certain about the jobs of a server that may be killed at any moment.

Every answer is a fact that no later answer may contradict.
A request without an answer is a possibility: it happened as a whole or not at all, and the first look at the server after the restart settles which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

TERMINAL = {"completed", "cancelled", "discarded"}
MOST_ERRORS = 10
"""So many entries of its history a job keeps for certain."""


class Wrong(AssertionError):
    """The server contradicts what it answered before."""


class Claim:
    """One reservation that a fetch was answered with."""

    def __init__(self, worker: str, number: int, from_ms: int, until_ms: int) -> None:
        self.worker = worker
        self.number = number
        self.from_ms = from_ms
        self.until_ms = until_ms
        self.given_back = False
        """It may have ended before its time: an end was asked for."""


class Known:
    """One job, whose id the client chose."""

    def __init__(self, wish: dict[str, Any]) -> None:
        self.wish = wish
        self.id: str = wish["id"]
        self.queue: str = wish["options"]["queue"]
        self.exists: bool | None = None
        """None while its enqueue is without an answer."""
        self.final = ""
        self.result: Any = None
        self.possible: list[tuple[str, Any]] = []
        """Ends that were asked for without an answer so far."""
        self.failures: set[str] = set()
        """The messages of the nacks that were answered and are in its history."""
        self.claims: dict[int, Claim] = {}
        self.blind: tuple[str, int] = ("", 0)
        """Who reserved it in a fetch that was never answered, and until when."""
        self.cancelled_ms = 0

    @property
    def claim(self) -> Claim | None:
        return self.claims[max(self.claims)] if self.claims else None

    def check(self, told: bool, what: str) -> None:
        if not told:
            claims = [(c.number, c.worker, c.from_ms, c.until_ms) for c in self.claims.values()]
            raise Wrong(
                f"{self.id} in {self.queue}: {what} (final {self.final!r}, claims {claims})"
            )

    # Answers

    def enqueued(self) -> None:
        self.exists = True

    def fetched(self, record: dict[str, Any], worker: str, visibility_ms: int) -> Claim:
        self.check(self.exists is not False, "fetched, but its enqueue never happened")
        self.exists = True
        self.compare(record)
        self.check(record["state"] == "active", f"fetched as {record['state']}")
        self.check(record["worker_id"] == worker, "fetched for somebody else")
        number = record["claim"]
        self.check(number not in self.claims, f"claim {number} was given twice")
        begun = milliseconds(record["started_at"])
        # The answer to a cancel may overtake that of the fetch before it.
        self.check(not self.final or begun <= self.cancelled_ms, "fetched after its end")
        self.check(begun >= self.blind[1], f"claim {number} at {begun} while {self.blind} held it")
        for claim in self.claims.values():
            over = claim.given_back or (
                claim.until_ms <= begun if claim.number < number else begun < claim.from_ms
            )
            self.check(over, f"claim {number} at {begun} while {claim.number} held it")
        claim = Claim(worker, number, begun, begun + visibility_ms)
        self.claims[number] = claim
        return claim

    def ended(self, state: str, result: Any = None, cancelled_ms: int = 0) -> None:
        self.check(not self.final, f"ended again, as {state}")
        self.final = state
        self.result = result
        self.cancelled_ms = cancelled_ms

    def refused(self) -> None:
        """A 409 to a cancel: the job has ended, however."""
        if not self.final:
            self.check(bool(self.possible), "not cancelled, though nothing could have ended it")

    # What the server shows when nothing is on its way

    def seen(self, record: dict[str, Any] | None, now_ms: int, blind_ms: Mapping[str, int]) -> None:
        """`blind_ms` says which workers' fetches went without an answer, and for how long they reserve."""
        if record is None:
            self.check(self.exists is not True, "is gone")
            self.exists = False
            self.possible.clear()
            return
        self.check(self.exists is not False, "appeared, though it was not there before")
        self.exists = True
        self.compare(record)
        self._see_end(record)
        self._see_history(record)
        if not self.final:
            self._see_claim(record, now_ms, blind_ms)
        self.possible.clear()

    def compare(self, record: dict[str, Any]) -> None:
        wish = self.wish
        for name in ("id", "type", "args"):
            self.check(record[name] == wish[name], f"{name} is {record[name]!r}")
        self.check(record["meta"] == wish.get("meta", {}), f"meta is {record['meta']!r}")
        self.check(record["queue"] == self.queue, f"queue is {record['queue']!r}")
        priority = wish["options"].get("priority", 0)
        self.check(record["priority"] == priority, f"priority is {record['priority']!r}")

    def _see_end(self, record: dict[str, Any]) -> None:
        state = record["state"]
        result = record.get("result")
        if self.final:
            self.check(state == self.final, f"is {state}")
            self.check(result == self.result, f"has the result {result!r}")
        elif state in TERMINAL:
            self.check((state, result) in self.possible, f"is {state} with {result!r} by itself")
            self.final, self.result = state, result

    def _see_history(self, record: dict[str, Any]) -> None:
        errors = {entry["message"] for entry in record.get("errors", ())}
        if len(errors) < MOST_ERRORS:
            lost = self.failures - errors
            self.check(not lost, f"lost {lost} from its history")

    def _see_claim(self, record: dict[str, Any], now_ms: int, blind_ms: Mapping[str, int]) -> None:
        claim = self.claim
        if claim is not None and not claim.given_back and now_ms < claim.until_ms:
            self.check(record["state"] == "active", f"is {record['state']} while it is reserved")
            self.check(record["worker_id"] == claim.worker, "is reserved for somebody else")
        if record["state"] != "active":
            return
        worker, begun = record["worker_id"], milliseconds(record["started_at"])
        known = any(
            each.from_ms == begun and each.worker == worker for each in self.claims.values()
        )
        if not known and self.blind[0] != worker:
            self.check(worker in blind_ms, f"is active at {worker}, which never fetched it")
        if not known and worker in blind_ms:
            self.blind = (worker, begun + blind_ms[worker])


class Batch:
    """Jobs that came in one request."""

    def __init__(self, jobs: list[Known]) -> None:
        self.jobs = jobs

    def check(self) -> None:
        if len({job.exists for job in self.jobs}) != 1:
            raise Wrong(f"half of a batch: {[(job.id, job.exists) for job in self.jobs]}")


class Ledger:
    def __init__(self) -> None:
        self.jobs: dict[str, Known] = {}
        self.changed: dict[str, Known] = {}
        """Since the last restart."""
        self.batches: list[Batch] = []
        """Since the last restart."""
        self.live: dict[str, Known] = {}
        """Those that may exist and have not ended, as far as anybody knows."""
        self.fetching: dict[str, int] = {}
        """Workers whose fetch has no answer yet, and for how long it reserves."""
        self.tokens: dict[str, bool] = {}
        """Jobs whose id the server chooses: whether their enqueue was answered."""

    def wish(self, wish: dict[str, Any]) -> Known:
        job = Known(wish)
        self.jobs[job.id] = self.changed[job.id] = self.live[job.id] = job
        return job

    def touch(self, job: Known) -> Known:
        self.changed[job.id] = job
        return job

    def going_on(self) -> list[Known]:
        for job in list(self.live.values()):
            if job.final or job.exists is False:
                del self.live[job.id]
        return list(self.live.values())

    def unsettled(self) -> list[Known]:
        """What has to be looked at after a restart: all that goes on, all that changed lately."""
        return list({**self.changed, **{job.id: job for job in self.going_on()}}.values())

    def settled(self) -> None:
        """Everything was looked at."""
        for batch in self.batches:
            batch.check()
        unique: dict[str, str] = {}
        for job in self.going_on():
            if "unique" in job.wish["options"]:
                twin = unique.setdefault(job.wish["args"][0], job.id)
                job.check(twin == job.id, f"{twin} has the same unique key")
        self.batches.clear()
        self.changed.clear()
        self.fetching.clear()

    def compare(self, records: Iterable[dict[str, Any]], now_ms: int) -> None:
        """With everything that the server has."""
        seen: set[str] = set()
        tokens: dict[str, int] = {}
        for record in records:
            if record["id"] in seen:
                raise Wrong(f"{record['id']} is there twice")
            seen.add(record["id"])
            job = self.jobs.get(record["id"])
            if job is not None:
                job.seen(record, now_ms, self.fetching)
            else:
                token = record["args"][0]
                if token not in self.tokens:
                    raise Wrong(f"nobody asked for {record}")
                tokens[token] = tokens.get(token, 0) + 1
        for job in self.jobs.values():
            if job.id not in seen:
                job.seen(None, now_ms, self.fetching)
        for token, answered in self.tokens.items():
            count = tokens.get(token, 0)
            if count > 1 or (answered and count != 1):
                raise Wrong(f"{token} is there {count} times")
        self.settled()


def milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
