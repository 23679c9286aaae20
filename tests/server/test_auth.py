from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.errors import PermissionDenied, Unauthenticated
from headgate.server.auth import ANONYMOUS, ROLES, Gatekeeper, Identity
from headgate.server.settings import Role, Token


def token(name: str, *roles: Role) -> Token:
    return Token(name, roles, sha256(f"secret-{name}".encode()).hexdigest())


KEEPER = Gatekeeper(
    [token("web", "producer"), token("farm", "worker", "producer"), token("root", "admin")]
)
PRODUCER = frozenset({"producer"})
WORKER = frozenset({"worker"})


def test_without_tokens_everybody_may_do_everything() -> None:
    assert Gatekeeper([]).admit(None, frozenset({"admin"})) == ANONYMOUS
    assert ANONYMOUS.roles == ROLES == {"producer", "worker", "operator", "admin"}


def test_a_token_makes_its_holder_known() -> None:
    assert KEEPER.admit(b"Bearer secret-web", PRODUCER) == Identity("web", PRODUCER)
    assert KEEPER.admit(b"bearer  secret-farm ", WORKER).name == "farm"


@pytest.mark.parametrize("role", sorted(ROLES))
def test_admin_includes_every_role(role: str) -> None:
    assert KEEPER.admit(b"Bearer secret-root", frozenset({role})).name == "root"


def test_one_of_several_roles_is_enough() -> None:
    assert KEEPER.admit(b"Bearer secret-web", PRODUCER | WORKER).name == "web"


def test_a_missing_role_is_named() -> None:
    with pytest.raises(PermissionDenied, match="web lacks the role operator or worker"):
        KEEPER.admit(b"Bearer secret-web", frozenset({"worker", "operator"}))


@pytest.mark.parametrize(
    "header",
    [None, b"", b"Bearer", b"Bearer ", b"Basic secret-web", b"secret-web", b"Bearer secret-we",
     b"Bearer " + sha256(b"secret-web").hexdigest().encode(), b"Bearer \xff"],
)  # fmt: skip
def test_who_shows_no_known_token_is_asked_for_one(header: bytes | None) -> None:
    with pytest.raises(Unauthenticated) as refused:
        KEEPER.admit(header, PRODUCER)
    assert refused.value.headers == {"WWW-Authenticate": "Bearer"}


@given(st.binary(max_size=80))
def test_no_guess_comes_in(guess: bytes) -> None:
    if guess.strip() in {b"secret-web", b"secret-farm", b"secret-root"}:
        return
    with pytest.raises(Unauthenticated):
        KEEPER.admit(b"Bearer " + guess, PRODUCER)


def test_routes_without_roles_are_open_to_all() -> None:
    assert KEEPER.admit(None, frozenset()) == ANONYMOUS
    assert KEEPER.admit(b"Bearer wrong", frozenset()) == ANONYMOUS
