"""What the two sides of one client share."""

from __future__ import annotations

from headgate.client.core import Core
from headgate.client.declared import Register
from headgate.client.enqueue import Enqueue
from headgate.client.settings import Settings


class Parts:
    """One connection to one server, and the handlers that were declared with it."""

    def __init__(
        self, core: Core, enqueue: Enqueue, register: Register, settings: Settings
    ) -> None:
        self.core = core
        self.enqueue = enqueue
        self.register = register
        self.settings = settings
