"""The names that the Open Job Spec gives to the parts of a client library."""

from __future__ import annotations

from headgate.client.admin import AsyncAdmin as OjsAdmin
from headgate.client.app import AsyncHeadgate as OjsClient
from headgate.worker.signals import Discard as DiscardError
from headgate.worker.signals import Snooze as SnoozeError
from headgate.worker.worker import Worker as OjsWorker

SPEC_VERSION = "1.0"

__all__ = ["SPEC_VERSION", "DiscardError", "OjsAdmin", "OjsClient", "OjsWorker", "SnoozeError"]
