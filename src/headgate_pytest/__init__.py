"""Fixtures for pytest. Nothing of Headgate is imported before a test asks for one of them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headgate import AsyncHeadgate, Headgate
    from headgate.testing import Fake, Harness, Inline, Real

_INI = "headgate_app"
_MISSING = (
    "no application is known: set headgate_app = MODULE:NAME in pytest's configuration, "
    "or write a fixture headgate_app that returns it"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(_INI, "MODULE:NAME of the Headgate application that fixtures use", default="")


@pytest.fixture
def headgate_app(request: pytest.FixtureRequest) -> Headgate | AsyncHeadgate | None:
    """The application under test: what pytest's configuration names. Write one of the same name for another."""
    named = str(request.config.getini(_INI))
    if not named:
        return None
    module, colon, name = named.partition(":")
    if not colon or not module or not name:
        raise pytest.UsageError(f"headgate_app must be MODULE:NAME, not {named!r}")
    found: Headgate | AsyncHeadgate = getattr(import_module(module), name)
    return found


@pytest.fixture
def headgate_fake(headgate_app: Headgate | AsyncHeadgate | None) -> Iterator[Fake]:
    """The application with its jobs in memory; none is run before the test says so."""
    from headgate.testing import Fake

    with Fake(_known(headgate_app)) as fake:
        yield fake


@pytest.fixture
def headgate_inline(headgate_app: Headgate | AsyncHeadgate | None) -> Iterator[Inline]:
    """The application with jobs that run where they are enqueued."""
    from headgate.testing import Inline

    with Inline(_known(headgate_app)) as inline:
        yield inline


@pytest.fixture
def headgate_real(headgate_app: Headgate | AsyncHeadgate | None) -> Iterator[Real]:
    """The application with a server of its own on loopback."""
    from headgate.testing import Real

    with Real(_known(headgate_app)) as real:
        yield real


@pytest.fixture
def harness(headgate_app: Headgate | AsyncHeadgate | None) -> Iterator[Harness]:
    """The real engine in virtual time; applications whose tasks are enqueued through it join by themselves."""
    from headgate.testing import Harness

    with Harness(*(() if headgate_app is None else (headgate_app,))) as found:
        yield found


def _known(app: Headgate | AsyncHeadgate | None) -> Headgate | AsyncHeadgate:
    if app is None:
        pytest.fail(_MISSING, pytrace=False)
    return app
