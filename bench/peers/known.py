"""The peers, each in the configuration that its own documentation recommends for throughput, and what that means."""

from __future__ import annotations

from bench.peers.peer import Peer, module

CONCURRENCY = "100"


def _headgate(durability: str) -> tuple[Peer, Peer]:
    asynchronous, threads = module("headgate_async"), module("headgate_thread")
    return (
        Peer(
            f"Headgate {durability}, coroutines",
            "one worker process, 100 coroutines at once, exchange; acks after the job; a job whose worker dies runs again",
            "headgate",
            (*asynchronous, "produce"),
            (*asynchronous, "work", CONCURRENCY),
            durability=durability,
        ),
        Peer(
            f"Headgate {durability}, threads",
            "the same with plain functions in 100 threads",
            "headgate",
            (*threads, "produce"),
            (*threads, "work", CONCURRENCY),
            durability=durability,
        ),
    )


def headgates(configuration: str) -> list[Peer]:
    """Headgate as asked, and as it is by default."""
    found = [*_headgate("full")]
    return found if configuration == "full" else [*_headgate(configuration), *found]


PEERS = (
    Peer(
        "RQ, simple worker",
        "SimpleWorker, which runs one job after the other in its own process; no results kept; a job whose worker dies is marked failed",
        "redis",
        (*module("rq"), "produce"),
        (*module("rq"), "simple"),
        "rq.txt",
    ),
    Peer(
        "RQ, forking worker",
        "`rq worker` as it comes: a fork for every job",
        "redis",
        (*module("rq"), "produce"),
        (*module("rq"), "forking"),
        "rq.txt",
    ),
    Peer(
        "Celery",
        "prefork, a process for each core, prefetch 32, acks before the job runs (its default: a job whose worker dies is lost), results ignored, no gossip, mingle, heartbeat",
        "redis",
        module("celery"),
        ("{bin}/celery", "--app", "bench.peers.apps.celery", "worker", "--concurrency", "{cores}",
         "--loglevel", "ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"),
        "celery.txt",
    ),
    Peer(
        "Dramatiq",
        "a process for each core with 8 threads each (its default), acks after the job, no results",
        "redis",
        module("dramatiq"),
        ("{bin}/dramatiq", "--processes", "{cores}", "--threads", "8", "bench.peers.apps.dramatiq"),
        "dramatiq.txt",
    ),
    Peer(
        "SAQ",
        "one process, 100 coroutines at once, uvloop and hiredis, jobs deleted when done; a job whose worker dies is found by its sweeper",
        "redis",
        module("saq"),
        ("{bin}/saq", "bench.peers.apps.saq.settings"),
        "saq.txt",
    ),
    Peer(
        "Huey",
        "one process, 4 threads, no results; a job leaves the store before it runs, so one whose worker dies is lost",
        "redis",
        module("huey"),
        ("{bin}/huey_consumer", "bench.peers.apps.huey.huey", "--workers", "4",
         "--worker-type", "thread", "--quiet"),
        "huey.txt",
    ),
    Peer(
        "Taskiq, list",
        "a process for each core, up to 100 coroutines each (its default), uvloop, no results; a list, which keeps no job whose worker dies",
        "redis",
        module("taskiq"),
        ("{bin}/taskiq", "worker", "--workers", "{cores}", "--log-level", "ERROR",
         "bench.peers.apps.taskiq:broker"),
        "taskiq.txt",
    ),
    Peer(
        "Taskiq, stream",
        "the same over a stream with acks after the job",
        "redis",
        module("taskiq"),
        ("{bin}/taskiq", "worker", "--workers", "{cores}", "--log-level", "ERROR",
         "bench.peers.apps.taskiq:broker"),
        "taskiq.txt",
        (("BENCH_VARIANT", "stream"),),
    ),
    Peer(
        "BullMQ on Node.js",
        "one process, 100 jobs at once, ioredis, jobs removed when done; a job whose worker dies is run again",
        "redis",
        ("{bin}/node", "bench/peers/apps/bullmq.mjs", "produce"),
        ("{bin}/node", "bench/peers/apps/bullmq.mjs", "work", CONCURRENCY),
        "bullmq.json",
    ),
    Peer(
        "PgQueuer",
        "one process, asyncpg and uvloop, 100 jobs in a fetch; a job whose worker dies is picked again; Postgres as it is by default, with fsync at every commit in all configurations",
        "postgres",
        (*module("pgqueuer"), "produce"),
        (*module("pgqueuer"), "work"),
        "pgqueuer.txt",
    ),
)  # fmt: skip
"""Only jobs that ran are counted, so results are off wherever they can be."""
