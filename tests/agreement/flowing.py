"""Stories about flow alone: few queues, few keys and many limits, so that they soon come to where it matters."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from headgate.core.pools import Pool
from headgate.engines import contract
from headgate.engines.contract import Fetch
from headgate.engines.local import keys
from tests.agreement.flow import FlowRules
from tests.agreement.machine import ids, new_ids
from tests.agreement.wishes import KEYS, SETTINGS, Key, Wish, flow_wishes, pools

days = st.lists(
    st.tuples(
        st.sampled_from(["take", "take", "push", "ack", "requeue", "plain", "wait"]),
        st.integers(0, 3),
    ),
    min_size=4,
    max_size=12,
)


class Wide:
    """Stories in which two queues are as many as thousands: no opening looks at each of them, and only one is told."""

    def __init__(self) -> None:
        self._before = keys.FEW, contract.TOLD_QUEUES
        keys.FEW, contract.TOLD_QUEUES = 0, 1
        super().__init__()

    def teardown(self) -> None:
        try:
            super().teardown()  # type: ignore[misc]
        finally:
            keys.FEW, contract.TOLD_QUEUES = self._before


class FlowStories(FlowRules):
    wishes = flow_wishes(ids)

    @rule(deeds=days)
    def keep_working(self, deeds: list[tuple[str, int]]) -> None:
        """A while of ordinary life, so that windows fill, turns move and tenants take theirs."""
        for deed, which in deeds:
            active = self.model.active()
            if deed == "take":
                pool = ("", "p1", "p2", "default")[which]
                self.fetch(Fetch(["a", "b"], 1, "w1", pool=pool, micros=which))
            elif deed == "push":
                key = Key(KEYS[which % 2])
                self.push(
                    Wish(
                        new_ids(self)[0],
                        queue="ab"[which % 2],
                        keys=(key,) if which else (),
                        tenant=("t1", "t2")[which // 2],
                    )
                )
            elif deed == "wait":
                self.let_time_pass((1, 100, 334, 1_000)[which])
            elif active and deed == "ack":
                self.ack_as_its_holder(active[which % len(active)].id, b"null")
            elif active:
                self.nack_as_its_holder(active[which % len(active)].id, deed, 0.5)

    @initialize(
        a=st.lists(st.sampled_from(list(SETTINGS)), max_size=3),
        b=st.lists(st.sampled_from(list(SETTINGS)), max_size=1),
        served_by=st.lists(pools(), max_size=2),
        deeds=days,
    )
    def furnish(
        self, a: list[str], b: list[str], served_by: list[Pool], deeds: list[tuple[str, int]]
    ) -> None:
        """What somebody has set up, mostly before the first jobs come."""
        for said in a:
            self.configure("a", said)
        for said in b:
            self.configure("b", said)
        for pool in served_by:
            self.set_pool(pool, drop=False)
        self.keep_working(deeds)
