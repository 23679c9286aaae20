"""Dramatiq over Redis. The worker is started by its own command."""

from __future__ import annotations

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.peers import role

dramatiq.set_broker(RedisBroker(url=role.store()))

nop = dramatiq.actor(role.nop)
stamp = dramatiq.actor(role.stamp)

if __name__ == "__main__":
    role.produce(lambda: nop.send(4711), stamp.send)
