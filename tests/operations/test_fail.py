from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.core.errors import InvalidRequest, NotFound
from headgate.core.job import Job
from headgate.core.retry import Failure
from headgate.engines.contract import Done, Fail, Outcome
from headgate.operations.fail import fail


class Shop:
    """An engine with one job."""

    def __init__(self, **members: Any) -> None:
        self.job = Job("j", "a", "q", 0, b'"args":[]', 1, **members)
        self.failed: list[Fail] = []

    async def find(self, job_id: str, now_ms: int) -> Job | None:
        return self.job if job_id == self.job.id else None

    async def fail(self, fails: Any, now_ms: int) -> list[Outcome]:
        self.failed += fails
        return [Done(self.job)]


def report(shop: Any, key: str, job_id: str = "j") -> str:
    given = Fail(job_id, Failure("c", "m"), hold_until=9)
    asyncio.run(fail(shop, given, 1, key))
    (done,) = shop.failed
    return str(done.hold_key)


KEYS = (("stripe", "wait"), ("@acme/db", "wait"), ("@acme/stripe", "drop"))


@pytest.mark.parametrize(
    ("key", "held"), [("", ""), ("stripe", "stripe"), ("db", "@acme/db"), ("@acme/db", "@acme/db")]
)
def test_a_key_is_named_as_its_producer_named_it(key: str, held: str) -> None:
    assert report(Shop(keys=KEYS, tenant="acme"), key) == held


@pytest.mark.parametrize(("keys", "said"), [(KEYS, "stripe, db, stripe"), ((), "it has none")])
def test_only_the_jobs_own_keys_can_be_held(keys: Any, said: str) -> None:
    shop = Shop(keys=keys, tenant="acme")
    with pytest.raises(InvalidRequest) as caught:
        report(shop, "other")
    assert caught.value.details["field"] == "error.rate_limit_key"
    assert said in caught.value.message
    assert shop.failed == []


def test_a_key_of_a_job_that_is_not_there_is_not_looked_for() -> None:
    with pytest.raises(NotFound):
        report(Shop(keys=KEYS), "stripe", "other")
