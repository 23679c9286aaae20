"""The local engine without a file agrees with the model."""

from __future__ import annotations

from tests.agreement.machine import Stories, stories


class InMemory(Stories):
    def path(self) -> str:
        return ":memory:"


TestInMemory = stories(InMemory)
