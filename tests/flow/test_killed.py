"""A real server, killed with SIGKILL in the middle of limited traffic: windows and holders survive."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from typing import Any

from headgate.core.times import instant_ms
from tests.faults.client import NoAnswer, call
from tests.faults.server import Server

PATH = "/ojs/v1"
ERROR = {"code": "handler_error", "message": "given back"}


def ask(server: Server, method: str, path: str, body: Any = None) -> Any:
    found = call(server.address, method, PATH + path, body)
    assert found.status < 300, found.body
    return found.json


def traffic(server: Server, seconds: float, done: list[str], *, answer: bool) -> None:
    """Fetch, and complete or keep, as fast as it goes, until the server is killed."""

    def work() -> None:
        try:
            while True:
                body = {
                    "queues": ["q"],
                    "count": 5,
                    "visibility_timeout_ms": 600_000,
                    "wait_ms": 500,
                }
                for job in ask(server, "POST", "/workers/fetch", body)["jobs"]:
                    if answer:
                        ask(server, "POST", "/workers/ack", {"job_id": job["id"]})
                        done.append(job["id"])
        except NoAnswer:
            pass

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    time.sleep(seconds)
    server.kill()
    for worker in workers:
        worker.join(30)


def starts(server: Server) -> list[int]:
    """When the jobs of the queue started first."""
    items = []
    for page in range(1, 20):
        found = ask(server, "GET", f"/admin/jobs?queue=q&per_page=100&page={page}")["items"]
        items += found
        if len(found) < 100:
            break
    return sorted(instant_ms(job["started_at"]) for job in items if "started_at" in job)


def test_RL_R001_RL_R002_no_kill_grants_a_fresh_window_or_a_shorter_interval(
    tmp_path: Path,
) -> None:
    limit = 25
    policy = {
        "key": "k",
        "rate": {"limit": limit, "period": "PT10M"},
        "throttle": {"limit": 40, "period": "PT1S"},
    }
    job = {"type": "a", "args": [], "queue": "q", "rate_limit": policy}
    with Server(tmp_path / "jobs.db") as server:
        ask(server, "POST", "/jobs/batch", {"jobs": [job] * 200})
        done: list[str] = []
        counts: list[int] = []
        while (counts or [0])[-1] < limit and len(counts) < 30:
            traffic(server, 0.25, done, answer=True)
            server.start()
            counts.append(ask(server, "GET", "/rate-limits/k")["rate"]["current_count"])
        assert 0 < counts[0] < counts[-1] == limit, "the kills came in between"
        at = starts(server)
        assert len(at) == limit
        # A tenth of the 25 ms may be made up, and instants are told in whole milliseconds.
        assert min(after - before for before, after in itertools.pairwise(at)) >= 21
        assert limit - 2 * len(counts) <= len(set(done)) <= limit, "some answers were cut off"
        assert ask(server, "POST", "/workers/fetch", {"queues": ["q"]})["jobs"] == []


def test_RL_001_holders_hold_their_slots_over_kills(tmp_path: Path) -> None:
    policy = {"key": "k", "concurrency": 7}
    job = {"type": "a", "args": [], "queue": "q", "rate_limit": policy}
    with Server(tmp_path / "jobs.db") as server:
        ask(server, "POST", "/jobs/batch", {"jobs": [job] * 100})
        for _ in range(3):
            traffic(server, 0.2, [], answer=False)
            server.start()
            shown = ask(server, "GET", "/rate-limits/k")
            assert shown["concurrency"] == {"limit": 7, "active": 7, "available": 0}
        active = ask(server, "GET", "/admin/jobs?state=active&per_page=100")["items"]
        assert len(active) == 7
        held = [found["id"] for found in ask(server, "GET", "/rate-limits/k/jobs")["allowed"]]
        assert sorted(held) == sorted(found["id"] for found in active)
        # And each gives its slot back once.
        ask(server, "POST", "/workers/ack", {"job_id": held[0]})
        assert (
            len(ask(server, "POST", "/workers/fetch", {"queues": ["q"], "count": 9})["jobs"]) == 1
        )


def test_002_5_3_a_move_goes_on_after_each_kill_and_loses_nothing(tmp_path: Path) -> None:
    job = {"type": "a", "args": [], "queue": "old"}
    with Server(tmp_path / "jobs.db") as server:
        ids: list[str] = []
        for _ in range(8):
            found = ask(server, "POST", "/jobs/batch", {"jobs": [job] * 1_000})
            ids += [each["id"] for each in found["jobs"]]
        ask(server, "POST", "/queues", {"name": "new"})
        held = ask(server, "POST", "/workers/fetch", {"queues": ["old"]})["jobs"][0]["id"]
        body = {"strategy": "move", "target_queue": "new"}
        deleted = ask(server, "DELETE", "/queues/old", body)
        assert (deleted["state"], deleted["jobs_affected"]) == ("draining", 7_999)
        moved = [0]
        while moved[-1] < 7_999 and len(moved) < 40:
            server.kill()
            server.start()
            time.sleep(0.02 * len(moved))
            moved.append(ask(server, "GET", "/queues/new/stats")["stats"]["available"])
            assert moved[-1] >= moved[-2], "nothing goes back"
        assert moved[-1] == 7_999
        ask(server, "POST", "/workers/nack", {"job_id": held, "requeue": True, "error": ERROR})
        assert call(server.address, "GET", f"{PATH}/queues/old").status == 404
        taken: list[str] = []
        while jobs := ask(server, "POST", "/workers/fetch", {"queues": ["new"], "count": 1_000})[
            "jobs"
        ]:
            taken += [each["id"] for each in jobs]
        assert taken == ids, "all of them, once, in their order"


def test_002_configuration_and_maintenance_are_as_they_were_answered(tmp_path: Path) -> None:
    with Server(tmp_path / "jobs.db") as server:
        limits: list[int] = []
        server_is_killed = threading.Event()

        def change() -> None:
            try:
                for n in itertools.count(1):
                    ask(server, "PUT", "/queues/q/config", {"concurrency": n, "max_size": n})
                    limits.append(n)
            except NoAnswer:
                server_is_killed.set()

        begun = ask(server, "POST", "/admin/system/maintenance", {"enabled": True, "reason": "r"})
        job = {"type": "a", "args": [], "queue": "later", "scheduled_at": "+PT1S"}
        scheduled = ask(server, "POST", "/jobs", job)["job"]["id"]
        changing = threading.Thread(target=change)
        changing.start()
        time.sleep(0.3)
        server.kill()
        changing.join(30)
        assert server_is_killed.is_set()
        server.start()
        config = ask(server, "GET", "/queues/q/config")
        assert config["concurrency"] == config["max_size"]
        assert config["concurrency"] in {limits[-1], limits[-1] + 1}
        assert ask(server, "GET", "/health")["maintenance"] == begun
        time.sleep(1.1)
        assert ask(server, "GET", f"/jobs/{scheduled}")["job"]["state"] == "scheduled"
        ask(server, "POST", "/admin/system/maintenance", {"enabled": False})
        found = ask(server, "POST", "/workers/fetch", {"queues": ["later"]})["jobs"]
        assert [each["id"] for each in found] == [scheduled]
