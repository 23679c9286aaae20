from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.notation import ABSENT, find, fits

DATA = {"job": {"id": "a", "tags": ["x", "y"]}, "jobs": [{"id": "a", "n": 1}, {"id": "b"}]}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$", DATA),
        ("$.job.id", "a"),
        ("$.job.tags[1]", "y"),
        ("$.job.tags[2]", ABSENT),
        ("$.job.none.id", ABSENT),
        ("$.jobs[1].id", "b"),
        ("$.jobs[*].id", ["a", "b"]),
        ("$.jobs[*].n", [1]),
        ("$.jobs[?(@.id=='b')].id", "b"),
        ("$.jobs[?(@.id=='c')]", ABSENT),
        ("$.job[0]", ABSENT),
    ],
)
def test_paths(path: str, found: Any) -> None:
    assert find(path, DATA) == found


@pytest.mark.parametrize(
    ("expected", "good", "bad"),
    [
        ("plain", "plain", "other"),
        (1, 1.0, 2),
        (1, 1, True),
        (True, True, 1),
        (None, None, ABSENT),
        ([1, "any"], [1, 2], [1, ABSENT]),
        ({"a": 1}, {"a": 1, "b": 2}, {"b": 2}),
        ("absent", ABSENT, None),
        ("exists", 0, ABSENT),
        ("string:nonempty", "a", ""),
        ("string:uuidv7", "019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f", "019461a8"),
        ("string:uuidv7", "019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f", "019461a8-1a2b-4c3d-8e4f-5a6b7c8d9e0f"),
        ("string:datetime", "2026-01-01T00:00:00.5Z", "2026-01-01"),
        ("string:contains:max", "the max_attempts", "attempts"),
        ("number:positive", 1, 0),
        ("number:range(400,422)", 404, 423),
        ("array:min_length:2", [1, 2], [1]),
        ("array:min:2", [1, 2], [1]),
        ("array:length:1", [1], [1, 2]),
        ("array:length(0)", [], [1]),
        ("contains:a", ["a"], ["b"]),
        ("not_contains:a", ["b"], ["a"]),
        ("~1000", 1500, 1501),
        ("one_of:400,422", 422, 404),
        ({"$exists": True}, 0, ABSENT),
        ({"$exists": False}, ABSENT, 0),
        ({"$type": "number"}, 1.5, "1.5"),
        ({"$type": "number"}, 1, True),
        ({"$exists": True, "$type": "string"}, "a", 1),
        ({"$in": ["a", 2]}, 2, 3),
        ({"$eq": "a"}, "a", "b"),
        ({"$match": "^application/json"}, "application/json", "text/plain"),
        ({"$gte": 1}, 1, 0),
        ({"$size": 2}, [1, 2], [1]),
        ({"$size": {"$gte": 1}}, [1], []),
        ({"range": {"min": 1, "max": 3}}, 3, 4),
    ],
)  # fmt: skip
def test_what_fits(expected: Any, good: Any, bad: Any) -> None:
    assert fits(expected, good)
    assert not fits(expected, bad)


def test_what_is_not_known_is_not_passed_over() -> None:
    with pytest.raises(ValueError, match="operator"):
        fits({"$never": 1}, 1)
    with pytest.raises(ValueError, match="path"):
        find("$.a[", {"a": []})
