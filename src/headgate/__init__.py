from __future__ import annotations

from headgate.version import VERSION

__all__ = ["VERSION"]
