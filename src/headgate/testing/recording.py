"""Enqueues as tests see them: what was accepted is noted, and in inline mode run at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from headgate.client.chain import Chain
from headgate.client.core import Core
from headgate.client.draft import Draft, Enqueued, EnqueueMiddleware
from headgate.client.enqueue import Enqueue

Note: TypeAlias = Callable[[dict[str, Any]], None]


class RecordingEnqueue(Enqueue):
    """Sends as ever, and notes every new job as it was sent."""

    def __init__(self, core: Core, middleware: Chain[EnqueueMiddleware], note: Note) -> None:
        super().__init__(core, None, None, middleware, 0.0)
        self._note = note

    async def _send(self, drafts: Sequence[Draft], *, batch: bool) -> list[Enqueued]:
        done = await super()._send(drafts, batch=batch)
        for draft, one in zip(drafts, done, strict=True):
            if not one.deduplicated:
                self._note(draft.body)
        return done


RunInline: TypeAlias = Callable[[Draft], Any]


class InlineEnqueue(RecordingEnqueue):
    """Runs each job when it is enqueued, one after the other."""

    def __init__(
        self, core: Core, middleware: Chain[EnqueueMiddleware], note: Note, run: RunInline
    ) -> None:
        super().__init__(core, middleware, note)
        self._run = run

    async def _send(self, drafts: Sequence[Draft], *, batch: bool) -> list[Enqueued]:
        return [await self._run(draft) for draft in drafts]
