"""Bodies that hold job records."""

from __future__ import annotations

from msgspec import Raw, Struct

from headgate.wire.paging import NumberedPagination, Pagination


class JobList(Struct):
    jobs: Raw
    pagination: Pagination


class JobItems(Struct):
    items: Raw
    pagination: NumberedPagination


class JobAnswer(Struct):
    job: Raw


class ChangedJob(Struct):
    job: Raw
    previous_state: str


class ReplayedJob(Struct):
    job: Raw
    re_enqueued_at: str
