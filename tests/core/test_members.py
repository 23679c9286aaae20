from __future__ import annotations

import pytest

from headgate.core.errors import InvalidRequest
from headgate.core.members import object_at


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("wait", "body.wait"),
        ("wäit", "body.wäit"),
        (" ", "body"),
        ("a b", "body"),
        ("a\nb", "body"),
        ("", "body"),
        ("x" * 129, "body"),
    ],
)
def test_a_member_that_is_not_known_is_named_by_a_path(name: str, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        object_at({name: None}, "body", ("known",))
    assert refused.value.details["field"] == field
    assert "not known here" in refused.value.message
    assert len(refused.value.message) < 200
