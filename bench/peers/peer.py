"""What a peer is: where it comes from, what keeps its jobs, which commands enqueue and work."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Store = Literal["headgate", "redis", "postgres", "none"]


class Peer(Struct, frozen=True):
    name: str
    how: str
    """Its configuration and what that means for jobs, in a sentence."""
    store: Store
    produce: tuple[str, ...]
    """A command; `{bin}` is where the programs of its environment are."""
    work: tuple[str, ...]
    lock: str = ""
    """The file that names what is installed for it; nothing is without one."""
    variables: tuple[tuple[str, str], ...] = ()
    durability: str = ""
    """Of Headgate's store; by default the one that is measured."""


def module(app: str) -> tuple[str, ...]:
    """The command that runs a module of `bench.peers.apps`."""
    return ("{bin}/python", "-m", f"bench.peers.apps.{app}")
