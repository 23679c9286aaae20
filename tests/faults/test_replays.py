"""A real server, killed with SIGKILL while dead letters start over by rule: each does so exactly as often as it may."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from typing import Any

from tests.faults.client import NoAnswer, call
from tests.faults.server import Server

PATH = "/ojs/v1"
JOBS = 40
REPLAYS = 3
KILLS = 6
LATE_S = 60.0


def ask(server: Server, method: str, path: str, body: Any = None) -> Any:
    found = call(server.address, method, PATH + path, body)
    assert found.status < 300, found.body
    return found.json


def fail_all(server: Server, seconds: float) -> None:
    """Fetch and fail, as fast as it goes, until the server is killed."""

    def work() -> None:
        body = {"queues": ["q", "moved"], "count": 5, "wait_ms": 200, "worker_id": "w"}
        error = {"code": "handler_error", "message": "no", "type": "Broken"}
        try:
            while True:
                for job in ask(server, "POST", "/workers/fetch", body)["jobs"]:
                    call(
                        server.address, "POST", f"{PATH}/workers/nack",
                        {"job_id": job["id"], "claim": job["claim"], "error": error},
                    )  # fmt: skip
        except NoAnswer:
            pass

    worker = threading.Thread(target=work)
    worker.start()
    time.sleep(seconds)
    server.kill()
    worker.join(30)


def jobs(server: Server) -> list[Any]:
    return list(ask(server, "GET", "/admin/jobs?per_page=100")["items"])


def replays(job: Any) -> int:
    return int(job["meta"].get("ojs.replay_count", 0))


def test_every_dead_letter_starts_over_as_often_as_it_may_over_kills(tmp_path: Path) -> None:
    retry = {"max_attempts": 1, "on_exhaustion": "dead_letter"}
    # A claim whose answer was lost with the server comes back soon.
    job = {"type": "a", "args": [], "retry": retry, "visibility_timeout": 1}
    with Server(tmp_path / "jobs.db") as server:
        ask(server, "PUT", "/queues/moved/config", {"dead_letter_queue": "letters"})
        rule = {"delay": "PT0.2S", "max_replays": REPLAYS}
        ask(server, "PUT", "/dead-letter/replay-rules/again", rule)
        batch = [{**job, "queue": queue} for queue in ("q", "moved")] * (JOBS // 2)
        ask(server, "POST", "/jobs/batch", {"jobs": batch})
        seen: dict[str, int] = {}
        for _ in range(KILLS):
            fail_all(server, 0.4)
            server.start()
            for found in jobs(server):
                count = replays(found)
                assert seen.get(found["id"], 0) <= count <= REPLAYS, "nothing answered is undone"
                seen[found["id"]] = count
        assert any(seen.values())
        late = time.monotonic() + LATE_S
        while not all(_is_through(each) for each in jobs(server)) and time.monotonic() < late:
            fail_all(server, 0.5)
            server.start()
        left = jobs(server)
        assert len(left) == JOBS
        assert {_is_through(each) for each in left} == {True}
        for each in left:
            past = ask(server, "GET", f"/jobs/{each['id']}/history?limit=200")["history"]
            told = [change["event"] for change in past]
            assert told[0] == "push"
            assert told.count("retry") == REPLAYS, "the history tells every replay once"
            for before, after in itertools.pairwise(past):
                assert after["previous_state"] == before["state"], "and nothing is left out"
                assert after["at"] >= before["at"]


def _is_through(job: Any) -> bool:
    """Whether it is a dead letter that no rule lets start over any more."""
    return replays(job) == REPLAYS and (job["state"] == "discarded" or "dead_letter" in job)
