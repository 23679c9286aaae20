"""Progress and checkpoints on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Protocol

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from headgate.core.times import instant_text

_encode = msgspec.json.Encoder().encode


class ProgressRequest(Struct):
    """At least one of `progress` and `data`."""

    progress: float | None = None
    """From 0 to 1; what lies outside is taken for the nearest end."""
    data: Raw | UnsetType = UNSET
    """Any JSON value."""
    message: Annotated[str, Meta(max_length=4_096)] | None = None
    checkpoint: Raw | UnsetType = UNSET
    """Saved as by the checkpoint's own address."""


class ProgressAnswer(Struct):
    job_id: str
    state: str
    progress: float | None
    data: Any
    message: str | None
    updated_at: str | None


class CheckpointRequest(Struct):
    state: Raw
    """Any JSON value; it replaces what was saved before."""


class CheckpointFace(Struct):
    job_id: str
    state: Any
    sequence: int
    created_at: str


class CheckpointAnswer(Struct):
    job_id: str
    state: Any
    sequence: int
    created_at: str
    checkpoint: CheckpointFace


class DroppedCheckpoint(Struct):
    deleted: bool
    job_id: str


class Known(Protocol):
    """What is known of a job's progress."""

    @property
    def progress(self) -> float | None: ...
    @property
    def data(self) -> bytes | None: ...
    @property
    def message(self) -> str | None: ...
    @property
    def updated_at(self) -> int: ...


def progress_json(job_id: str, state: str, known: Known) -> bytes:
    return _encode(
        ProgressAnswer(
            job_id,
            state,
            known.progress,
            None if known.data is None else Raw(known.data),
            known.message,
            instant_text(known.updated_at) if known.updated_at else None,
        )
    )


def checkpoint_json(job_id: str, state: bytes, sequence: int, saved_at: int) -> bytes:
    face = CheckpointFace(job_id, Raw(state), sequence, instant_text(saved_at))
    return _encode(CheckpointAnswer(job_id, face.state, sequence, face.created_at, face))
