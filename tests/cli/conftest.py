from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.asked import Asked
from tests.cli.served import Serve, servers


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """Commands for one server, which the tests of a file share."""
    where = tmp_path_factory.mktemp("cli")
    with servers(where) as serve:
        yield Asked(serve("--store", "memory:"), where)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    with servers(tmp_path) as serve:
        yield serve
