from __future__ import annotations


class Refusal(Exception):
    """A command cannot do what it was asked; the message is one line."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(" ".join(message.split()))
        self.code = code
