"""Huey over Redis. The worker is started by its own command."""

from __future__ import annotations

from huey import RedisHuey

from bench.peers import role

huey = RedisHuey("bench", url=role.store(), results=False)

nop = huey.task(name="nop")(role.nop)
stamp = huey.task(name="stamp")(role.stamp)

if __name__ == "__main__":
    role.produce(lambda: nop(4711), stamp)
