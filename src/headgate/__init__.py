"""All public names, imported when the first of them is used: a server, and most commands, need none of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate.public import *  # noqa: F403 - public.py says which
    from headgate.public import __all__ as __all__

_LOWER = ("__all__", "current")
"""Public names that begin like those of modules; for modules nothing may be imported here."""


def __getattr__(name: str) -> Any:
    if not name[:1].isupper() and name not in _LOWER:
        raise AttributeError(f"module 'headgate' has no attribute {name!r}")
    public = import_module("headgate.public")
    if name not in public.__all__ and name not in _LOWER:
        raise AttributeError(f"module 'headgate' has no attribute {name!r}")
    globals()[name] = found = getattr(public, name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
