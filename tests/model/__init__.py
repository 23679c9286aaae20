"""The semantics of a job server, slow and obvious: one list of jobs, and every question a scan.

Nothing here is clever on purpose: engines are right when they agree with this.
What it borrows from the product are the words of the contract and the pure rules, which have tests of their own: the decision about a failed attempt, the arithmetic of one gate, of bounds, of turns and of tenants' shares, and the layers of settings.
What it does not borrow is the way in which an engine finds out: after every single thing that happens, everything that follows is looked for anew (`settling`).
"""

from __future__ import annotations

from tests.model.commands import Model
from tests.model.records import Entry, ErrorEntry, Event, Past, Place, Said, Saved

__all__ = ["Entry", "ErrorEntry", "Event", "Model", "Past", "Place", "Said", "Saved"]
