"""Stories about flow alone: few queues, few keys and many limits, so that they soon come to where it matters."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize

from headgate.core.pools import Pool
from tests.agreement.flow import FlowRules
from tests.agreement.machine import ids
from tests.agreement.wishes import SETTINGS, flow_wishes, pools


class FlowStories(FlowRules):
    wishes = flow_wishes(ids)

    @initialize(
        a=st.lists(st.sampled_from(list(SETTINGS)), max_size=3),
        b=st.lists(st.sampled_from(list(SETTINGS)), max_size=1),
        served_by=st.lists(pools(), max_size=2),
    )
    def furnish(self, a: list[str], b: list[str], served_by: list[Pool]) -> None:
        """What somebody has set up, mostly before the first jobs come."""
        for said in a:
            self.configure("a", said)
        for said in b:
            self.configure("b", said)
        for pool in served_by:
            self.set_pool(pool, drop=False)
