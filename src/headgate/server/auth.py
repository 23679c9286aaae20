"""Who is calling, and what that allows."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from hmac import compare_digest
from typing import get_args

from msgspec import Struct

from headgate.core.errors import PermissionDenied, Unauthenticated
from headgate.server.settings import Role, Token

ROLES: frozenset[str] = frozenset(get_args(Role))


class Identity(Struct, frozen=True):
    """A caller. Admin includes every other role."""

    name: str
    roles: frozenset[str]


ANONYMOUS = Identity("anonymous", ROLES)
"""Everybody, where no tokens are configured."""


class Gatekeeper:
    """Decides from the Authorization header who calls and whether a route is open to them."""

    __slots__ = ("_known", "_open")

    def __init__(self, tokens: Iterable[Token]) -> None:
        self._known = [
            (
                token.sha256.encode(),
                Identity(token.name, ROLES if "admin" in token.roles else frozenset(token.roles)),
            )
            for token in tokens
        ]
        self._open = not self._known

    def admit(self, authorization: bytes | None, needed: frozenset[str]) -> Identity:
        """The caller, who has one of the roles needed; no roles needed means everybody."""
        if self._open or not needed:
            return ANONYMOUS
        if authorization is None:
            raise Unauthenticated("the request carries no Authorization header")
        scheme, _, token = authorization.partition(b" ")
        if scheme.lower() != b"bearer":
            raise Unauthenticated("Authorization must be: Bearer, a space, the token")
        sent = sha256(token.strip()).hexdigest().encode()
        identity = None
        # All are compared, each in a time that does not depend on where they differ.
        for known, caller in self._known:
            if compare_digest(known, sent):
                identity = caller
        if identity is None:
            raise Unauthenticated("the token is not known here")
        if needed.isdisjoint(identity.roles):
            raise PermissionDenied(f"{identity.name} lacks the role {' or '.join(sorted(needed))}")
        return identity
