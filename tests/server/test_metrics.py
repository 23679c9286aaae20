from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.errors import BackendUnavailable
from headgate.core.gates import GateState, Limits, LimitsChange
from headgate.core.limits import Use
from headgate.engines.contract import KEY_WAITED, Ack, Event, KeyView
from headgate.server.exposition import MOST_SERIES, OTHER, exposition
from headgate.server.gauges import Seen, state
from headgate.server.metrics import Metrics
from tests.server.admin_world import World, in_world

SAMPLE = re.compile(
    r'([a-z_][a-z0-9_]*)(\{(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*"(?:,(?=[a-z])|(?=\})))+\})? '
    r"(\+Inf|-?[0-9.e+]+)"
)


def samples(text: str) -> dict[str, float]:
    """Read an exposition: every sample under its name with its labels, each after its type."""
    found: dict[str, float] = {}
    typed = ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, typed, kind = line.split(" ")
            assert kind in {"counter", "gauge", "histogram"}
            continue
        if line.startswith("# HELP "):
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        assert match[1].startswith(typed)
        sample = match[1] + (match[2] or "")
        assert sample not in found
        found[sample] = float(match[3])
    return found


def text(metrics: Metrics) -> str:
    return exposition([line for some in metrics.happened() for line in some]).decode()


def event(kind: str, queue: str = "q", job_type: str = "t", **data: Any) -> Event:
    return Event(1, kind, 0, "j", job_type, queue, "active", data)


@in_world()
async def test_what_happens_is_counted(world: World) -> None:
    await world.push("mail", type="mail.send", count=3)
    (first, second) = await world.fetch("mail", 2, worker="w")
    await world.beat("w", queues=["mail", "mail", "pay"])
    await world.beat("idle", queues=["mail", "rest"])
    world.now_ms += 700
    await world.engine.cancel(second, "me", "", world.now_ms)
    await world.call("POST", "/queues", {"name": "new"})
    await world.call("DELETE", "/queues/new?strategy=reject")
    await world.bury("bad")
    reply = await world.call("GET", "//metrics")
    assert (reply.status, reply.headers["content-type"]) == (200, "text/plain")
    found = samples(reply.raw.decode())
    mail = 'queue="mail",type="mail.send"'
    bad = 'queue="bad",type="test.echo"'
    for sample, value in (
        (f"ojs_job_enqueued_total{{{mail}}}", 3),
        (f"ojs_job_cancelled_total{{{mail}}}", 1),
        (f"ojs_job_failed_total{{{bad}}}", 1),
        (f"ojs_dead_letter_added_total{{{bad}}}", 1),
        ("ojs_dead_letter_total", 1),
        ("ojs_queue_created_count_total", 3),
        ("ojs_queue_deleted_count_total", 1),
        (f"ojs_job_queue_time_seconds_count{{{mail}}}", 2),
        (f'ojs_job_duration_seconds_count{{{bad},state="failed"}}', 1),
        ('ojs_queue_depth{queue="mail",state="available"}', 1),
        ('ojs_queue_depth{queue="mail",state="active"}', 1),
        ('ojs_queue_depth{queue="default",state="scheduled"}', 0),
        ("ojs_workers_active", 2),
        ('ojs_workers_busy{queue="mail"}', 1),
        ('ojs_workers_busy{queue="pay"}', 1),
    ):
        assert found[sample] == value, sample
    assert 'ojs_workers_busy{queue="rest"}' not in found
    assert first.encode() not in reply.raw


@in_world()
async def test_silent_workers_are_neither_active_nor_busy(world: World) -> None:
    await world.push("mail")
    await world.fetch("mail", worker="w")
    await world.beat("w", queues=["mail"])
    world.now_ms += 20_000
    found = samples((await world.call("GET", "//metrics")).raw.decode())
    assert found["ojs_workers_active"] == 0
    assert 'ojs_workers_busy{queue="mail"}' not in found


@in_world()
async def test_durations_fall_into_buckets_of_seconds(world: World) -> None:
    for metrics, ms in ((world.context.metrics, ms) for ms in (5, 6, 400_000)):
        metrics.observe(event("job.completed", duration_ms=ms))
    found = samples(text(world.context.metrics))
    name = 'ojs_job_duration_seconds_bucket{queue="q",type="t",state="completed",le='
    assert found[f'{name}"0.005"}}'] == 1
    assert found[f'{name}"0.01"}}'] == 2
    assert found[f'{name}"300"}}'] == 2
    assert found[f'{name}"+Inf"}}'] == 3
    plain = 'queue="q",type="t",state="completed"'
    assert found[f"ojs_job_duration_seconds_sum{{{plain}}}"] == 400.011
    assert found[f"ojs_job_duration_seconds_count{{{plain}}}"] == 3


def test_events_of_every_kind_are_survived() -> None:
    metrics = Metrics()
    metrics.observe(Event(1, "job.started", 0, "j", "t", "q", "active", None))
    metrics.observe(Event(1, "job.started", 0, "j", "t", "q", "active", {}))
    metrics.observe(Event(1, "unheard.of", 0, "", "", "", "", None))
    metrics.observe(Event(1, "queue.created", 0, "q", "", "q", "", None))
    samples(text(metrics))


@given(st.text(), st.text())
def test_labels_are_escaped(queue: str, job_type: str) -> None:
    metrics = Metrics()
    metrics.observe(event("job.enqueued", queue, job_type))
    (line,) = [
        line for line in text(metrics).split("\n") if line.startswith("ojs_job_enqueued_total{")
    ]
    match = re.fullmatch(
        r'[a-z_]+\{queue="((?:[^"\\\n]|\\.)*)",type="((?:[^"\\\n]|\\.)*)"\} 1', line
    )
    assert match
    read = [
        re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), part) for part in match.groups()
    ]
    assert read == [queue, job_type]


def test_the_number_of_series_is_bounded() -> None:
    metrics = Metrics()
    for n in range(MOST_SERIES + 50):
        metrics.observe(event("job.completed", f"q{n}", duration_ms=1))
    metrics.observe(event("job.completed", "q0", duration_ms=1))
    found = samples(text(metrics))
    other = f'queue="{OTHER}",type="{OTHER}"'
    assert found[f"ojs_job_completed_total{{{other}}}"] == 50
    assert found['ojs_job_completed_total{queue="q0",type="t"}'] == 2
    assert found[f'ojs_job_duration_seconds_count{{{other},state="completed"}}'] == 50
    series = [name for name in found if name.startswith("ojs_job_completed_total{")]
    assert len(series) == MOST_SERIES + 1


@in_world()
async def test_without_a_store_there_is_still_what_was_counted(world: World) -> None:
    await world.push("mail")

    async def lost(now_ms: int) -> Any:
        raise BackendUnavailable

    world.engine.queues = lost  # type: ignore[method-assign]
    reply = await world.call("GET", "//metrics")
    assert reply.status == 200
    found = samples(reply.raw.decode())
    assert found['ojs_job_enqueued_total{queue="mail",type="test.echo"}'] == 1
    assert not any(name.startswith("ojs_queue_depth") for name in found)


@in_world()
async def test_what_flow_control_does_is_measured(world: World) -> None:
    use = Use("api", change=LimitsChange(concurrency=1))
    await world.call("PUT", "/admin/pools/p", {"queues": ["mail"], "concurrency": 4})
    await world.call("PUT", "/queues/mail/config", {"backpressure": {"max_depth": 4}})
    await world.beat("w", pool="p", queues=["mail"])
    first, _ = await world.push("mail", count=2, uses=[use], tenant="acme")
    world.now_ms += 100
    await world.fetch("mail", worker="w")
    world.now_ms += 400
    found = samples((await world.call("GET", "//metrics")).raw.decode())
    for sample, value in (
        ('ojs_rate_limit_active{key="api"}', 1),
        ('ojs_rate_limit_waiting{key="api"}', 1),
        ('ojs_rate_limit_exceeded_total{key="api",strategy="concurrency"}', 1),
        ('ojs_scheduling_dispatch_total{queue="mail",pool="p"}', 1),
        ('ojs_scheduling_dispatch_ratio{queue="mail"}', 1),
        ('ojs_scheduling_queue_wait_duration_seconds_sum{queue="mail"}', 0.1),
        ('ojs_scheduling_pool_utilization{pool="p"}', 0.25),
        ('ojs_backpressure_pressure{queue="mail"}', 0.25),
        ('ojs_queue_max_size{queue="mail"}', 4),
        ('ojs_queue_utilization{queue="mail"}', 0.25),
        ('ojs_queue_oldest_available_age_seconds{queue="mail"}', 0.5),
        ('ojs_queue_oldest_runnable_age_seconds{queue="mail"}', 0),
        ('ojs_tenant_jobs_active{tenant_id="acme"}', 1),
        ('ojs_tenant_queue_depth{tenant_id="acme"}', 1),
        ('ojs_tenant_fairness_share{tenant_id="acme"}', 1),
    ):
        assert found[sample] == value, sample
    await world.engine.ack([Ack(first)], world.now_ms)
    found = samples((await world.call("GET", "//metrics")).raw.decode())
    assert found['ojs_queue_oldest_runnable_age_seconds{queue="mail"}'] == 0.5
    world.now_ms += 50
    await world.fetch("mail", worker="w")
    found = samples((await world.call("GET", "//metrics")).raw.decode())
    assert found['ojs_rate_limit_wait_duration_seconds_sum{key="api"}'] == 0.5
    assert found['ojs_rate_limit_wait_duration_seconds_count{key="api"}'] == 1


@in_world()
async def test_full_queues_are_counted(world: World) -> None:
    await world.call("PUT", "/queues/mail/config", {"backpressure": {"max_depth": 1}})
    await world.push("mail", count=1)
    await world.push("mail", count=1)
    fresh = {"backpressure": {"max_depth": 1, "strategy": "drop_oldest"}}
    await world.call("PUT", "/queues/news/config", fresh)
    await world.push("news", count=1)
    await world.push("news", count=1)
    found = samples((await world.call("GET", "//metrics")).raw.decode())
    assert found['ojs_backpressure_rejected_total{queue="mail"}'] == 1
    assert found['ojs_backpressure_dropped_total{queue="news"}'] == 1
    assert found['ojs_queue_overflow_count_total{queue="mail",policy="reject"}'] == 1
    assert found['ojs_queue_overflow_count_total{queue="news",policy="drop_oldest"}'] == 1


def told(kind: str, queue: str = "q", at_ms: int = 0, **data: Any) -> Event:
    return Event(1, kind, at_ms, data.get("key", queue), "", queue, "", data)


def test_the_waits_of_jobs_for_their_keys_are_summed_up() -> None:
    metrics = Metrics()
    for key, wait_ms in (("k", 2_000), ("k", 3_000), ("other", 7)):
        metrics.observe(told(KEY_WAITED, key=key, wait_ms=wait_ms))
    metrics.observe(told("rate_limit.exceeded", "a", 1_000, key="k", strategy="rate"))
    metrics.observe(told("rate_limit.exceeded", "b", 1_500, key="k", strategy="rate"))
    found = samples(text(metrics))
    assert found['ojs_rate_limit_wait_duration_seconds_count{key="k"}'] == 2
    assert found['ojs_rate_limit_wait_duration_seconds_sum{key="k"}'] == 5
    assert found['ojs_rate_limit_exceeded_total{key="k",strategy="rate"}'] == 2


def test_no_more_keys_than_labels_are_remembered() -> None:
    metrics = Metrics()
    for n in range(10_500):
        metrics.observe(told("rate_limit.exceeded", key=f"k{n}", strategy="rate"))
        metrics.observe(told(KEY_WAITED, key=f"k{n}", wait_ms=1))
    found = samples(text(metrics))
    waited = [name for name in found if name.startswith("ojs_rate_limit_wait_duration_seconds_c")]
    assert len(waited) == 1_001
    assert found['ojs_rate_limit_wait_duration_seconds_count{key="_other"}'] == 9_500
    series = [name for name in found if name.startswith("ojs_rate_limit_exceeded_total")]
    assert len(series) == MOST_SERIES + 1
    other = f'ojs_rate_limit_exceeded_total{{key="{OTHER}",strategy="{OTHER}"}}'
    assert found[other] == 10_500 - MOST_SERIES


def test_pools_and_tenants_are_counted_with_the_jobs() -> None:
    metrics = Metrics()
    for n in range(60):
        metrics.observe(event("job.started", wait_ms=1, pool=f"p{n}", tenant_id="acme"))
    metrics.observe(event("job.started", "other", wait_ms=1))
    metrics.observe(event("job.completed", duration_ms=1, tenant_id="acme"))
    metrics.observe(event("job.failed", duration_ms=1, tenant_id="acme"))
    metrics.observe(event("job.enqueued", priority=1, tenant_id="acme"))
    metrics.observe(event("job.enqueued", priority=1))
    found = samples(text(metrics))
    assert found['ojs_scheduling_dispatch_total{queue="q",pool="p0"}'] == 1
    assert found[f'ojs_scheduling_dispatch_total{{queue="q",pool="{OTHER}"}}'] == 10
    assert found['ojs_scheduling_dispatch_total{queue="other",pool="default"}'] == 1
    for name in ("enqueued", "processed", "failed"):
        sample = f'ojs_tenant_jobs_{name}_total{{tenant_id="acme",queue="q"}}'
        assert found[sample] == 1


def test_waits_of_a_queue_are_those_of_all_its_types() -> None:
    metrics = Metrics()
    metrics.observe(event("job.started", "q", "a", wait_ms=100))
    metrics.observe(event("job.started", "q", "b", wait_ms=300))
    metrics.observe(event("job.started", "r", "a", wait_ms=700))
    found = samples(text(metrics))
    name = "ojs_scheduling_queue_wait_duration_seconds"
    assert found[f'{name}_sum{{queue="q"}}'] == 0.4
    assert found[f'{name}_bucket{{queue="q",le="0.1"}}'] == 1
    assert found[f'{name}_bucket{{queue="q",le="0.5"}}'] == 2
    assert found[f'{name}_count{{queue="r"}}'] == 1


def test_starved_queues_are_counted() -> None:
    metrics = Metrics()
    metrics.observe(told("scheduling.queue_starved", duration=30_000, available_count=5))
    assert samples(text(metrics))['ojs_scheduling_starvation_events_total{queue="q"}'] == 1


def test_keys_beyond_the_first_thousand_are_added_up() -> None:
    gate = GateState(Limits(5), 2, 3, 0, None, None, 0, "", None)
    keys = [KeyView(f"k{n}", gate, 1) for n in range(MOST_SERIES + 20)]
    found = samples(exposition(state(Seen(keys=keys), 0)).decode())
    assert found['ojs_rate_limit_active{key="k0"}'] == 2
    assert found[f'ojs_rate_limit_active{{key="{OTHER}"}}'] == 40
    assert found[f'ojs_rate_limit_waiting{{key="{OTHER}"}}'] == 20
