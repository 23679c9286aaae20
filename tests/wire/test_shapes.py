from __future__ import annotations

import msgspec
from hypothesis import given

from headgate.core.job import Job
from headgate.wire.envelope import _READERS, DROPPED, JOB_TYPE, read_envelope
from headgate.wire.jobs import fetched_json, job_json
from headgate.wire.shapes import FetchedJob, JobOptions, JobRecord, JobRequest
from tests.wire.test_jobs import JOBS

NOW = 1_770_892_200_000


class Strict(FetchedJob, forbid_unknown_fields=True, kw_only=True):
    x_new: None = None


def test_the_document_lists_exactly_the_members_that_are_understood() -> None:
    understood = {
        "queue", "priority", "scheduled_at", "expires_at", "delay_until", "retry_policy", "metadata",
        *_READERS,
    }  # fmt: skip
    assert set(JobOptions.__struct_fields__) == understood
    own = set(JobRequest.__struct_fields__) - set(JobOptions.__struct_fields__)
    assert own == {"type", "args", "specversion", "id", "meta", "options"}
    assert not DROPPED & set(JobRequest.__struct_fields__)


@given(JOBS)
def test_records_look_as_the_document_says(job: Job) -> None:
    msgspec.json.decode(job_json(job, NOW), type=JobRecord)
    found = msgspec.json.decode(fetched_json(job, NOW), type=Strict)
    assert found.claim == job.claim


def test_a_request_of_the_documents_shape_is_read() -> None:
    asked = JobRequest(type="a.b", args=[1], options=JobOptions(queue="mail"))
    envelope = read_envelope(msgspec.json.encode(asked), NOW)
    assert (envelope.type, envelope.queue, envelope.args) == ("a.b", "mail", b"[1]")
    assert JOB_TYPE.fullmatch(asked.type)
