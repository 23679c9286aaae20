"""The local engine without a file agrees with the model."""

from __future__ import annotations

from tests.agreement.everything import Stories
from tests.agreement.flowing import FlowStories
from tests.agreement.machine import stories


class InMemory(Stories):
    def path(self) -> str:
        return ":memory:"


class FlowInMemory(FlowStories):
    def path(self) -> str:
        return ":memory:"


TestInMemory = stories(InMemory, examples=150)
TestFlowInMemory = stories(FlowInMemory, examples=200)
