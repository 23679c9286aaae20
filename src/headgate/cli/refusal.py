"""Why a command ends without having done what it was asked, and the exit codes that say so."""

from __future__ import annotations

from typing import Any, Final

FAILED: Final = 1
"""It was tried and did not work, or something was found to be wrong."""
WRONG: Final = 2
"""It cannot be asked like this."""
MISSING: Final = 3
"""There is nothing with that name or id."""
UNREACHABLE: Final = 4
"""No answer from the server."""
FORBIDDEN: Final = 5
"""The server lets only others do that."""
LATER: Final = 6
"""The server has no room now; the same again may work later."""
INTERRUPTED: Final = 130


class Refusal(Exception):
    """A command cannot do what it was asked; message and hint are one line."""

    def __init__(self, message: str, code: int = FAILED, hint: str = "", reason: str = "") -> None:
        super().__init__(" ".join(message.split()))
        self.code = code
        self.hint = " ".join(hint.split()).rstrip(".")
        """What to do about it."""
        self.reason = reason
        """The server's own word for it."""

    def line(self) -> str:
        return f"{self} ({self.hint})" if self.hint else str(self)

    def record(self) -> dict[str, Any]:
        """The same for programs."""
        found = {"code": self.reason, "message": str(self), "hint": self.hint}
        return {"error": {name: text for name, text in found.items() if text}}
