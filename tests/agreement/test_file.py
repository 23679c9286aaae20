"""The local engine on a file agrees with the model, over restarts and killed processes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.agreement.everything import Stories
from tests.agreement.flowing import FlowStories, Wide
from tests.agreement.machine import Machine, stories

pauses = st.sampled_from([1, 2, 1_000, 60_000])


class OnFile(Machine):
    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headgate-"))
        self.file = self.folder / "jobs.db"
        self.generation = 0
        super().__init__()

    def path(self) -> str:
        return str(self.file)

    @rule(ms=pauses)
    def restart(self, ms: int) -> None:
        """The process ends as it should and starts again a while later."""
        self.leave_all()
        self.mark_the_time()
        self.alone(self.engine.close())
        self.start_again(ms)

    @rule(ms=pauses)
    def kill(self, ms: int) -> None:
        """The process is gone from one moment to the next: only the files are left.

        They are copied while the engine is open, because this process cannot be killed.
        """
        self.leave_all()
        self.mark_the_time()
        self.generation += 1
        self.file = self.folder / f"jobs-{self.generation}.db"
        before = self.engine._path
        for suffix in ("", "-wal"):
            if Path(before + suffix).exists():
                shutil.copyfile(before + suffix, str(self.file) + suffix)
        self.alone(self.engine.close())
        self.start_again(ms)

    def mark_the_time(self) -> None:
        """Have something recorded, because an instant of which nothing was recorded is not remembered, nor a part of it."""
        self.now = max(self.now, self.model.state.now) + 1
        self.model.remember("bulk", "last", b"", self.now, self.now)
        self.both(None, self.engine.remember("bulk", "last", b"", self.now, self.now))

    def start_again(self, ms: int) -> None:
        self.now = max(self.now, self.model.state.now) + ms
        self.model.restart(self.now)
        self.engine = self.alone(self.open())
        self.watcher.restart()
        self.agree()

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            shutil.rmtree(self.folder)


class StoriesOnFile(OnFile, Stories):
    pass


class FlowOnFile(OnFile, FlowStories):
    pass


class WideOnFile(Wide, FlowOnFile):
    pass


TestOnFile = stories(StoriesOnFile, examples=40)
TestFlowOnFile = stories(FlowOnFile, examples=50)
TestWideOnFile = stories(WideOnFile, examples=40)
