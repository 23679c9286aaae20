"""Celery over Redis. The worker is started by its own command."""

from __future__ import annotations

from celery import Celery

from bench.peers import role

app = Celery(broker=role.store())
app.conf.task_ignore_result = True
app.conf.worker_prefetch_multiplier = 32
app.conf.worker_hijack_root_logger = False
app.conf.broker_connection_retry_on_startup = True

nop = app.task(role.nop, name="nop")
stamp = app.task(role.stamp, name="stamp")

if __name__ == "__main__":
    role.produce(lambda: nop.delay(4711), stamp.delay)
