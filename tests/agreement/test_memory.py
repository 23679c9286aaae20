"""The local engine without a file agrees with the model."""

from __future__ import annotations

from tests.agreement.everything import Stories
from tests.agreement.flowing import FlowStories, Wide
from tests.agreement.machine import stories


class InMemory(Stories):
    def path(self) -> str:
        return ":memory:"


class FlowInMemory(FlowStories):
    def path(self) -> str:
        return ":memory:"


class WideInMemory(Wide, FlowInMemory):
    pass


TestInMemory = stories(InMemory, examples=120)
TestFlowInMemory = stories(FlowInMemory, examples=120)
TestWideInMemory = stories(WideInMemory, examples=120)
