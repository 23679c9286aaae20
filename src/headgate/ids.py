"""The only source of randomness."""

from __future__ import annotations

from random import SystemRandom, getrandbits, random

_VERSION_AND_VARIANT = (0x7 << 76) | (0x2 << 62)
_RANDOM_MASK = (((1 << 12) - 1) << 64) | ((1 << 62) - 1)


def uuid7(now_ms: int) -> str:
    """A UUIDv7 for this millisecond; 74 random bits."""
    text = f"{(now_ms << 80) | _VERSION_AND_VARIANT | (getrandbits(76) & _RANDOM_MASK):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def uniform() -> float:
    """A number in [0, 1), for jitter."""
    return random()


def secret() -> str:
    """256 random bits as hexadecimal text."""
    return f"{SystemRandom().getrandbits(256):064x}"
