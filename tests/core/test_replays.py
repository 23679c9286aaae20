from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headgate.core.errors import InvalidRequest
from headgate.core.job import Job, More
from headgate.core.replays import ReplayRule, applies, choose, rule_from, rule_json, stamped


def letter(**members: Any) -> Job:
    more = More(errors=[msgspec.Raw(b'{"type":"Broken"}')], **members.pop("more", {}))
    given = {"queue": "mail", "type": "mail.send", "state": "discarded", **members}
    return Job("j", priority=0, fixed=b"", created_at=1, finished_at=100, more=more, **given)


def test_what_is_not_said_has_its_default() -> None:
    assert rule_from({}, "r") == ReplayRule("r")
    assert rule_from({"filter": None, "delay": None, "enabled": None}, "r") == ReplayRule("r")
    assert (ReplayRule("r").delay_ms, ReplayRule("r").max_replays) == (0, 1)


def test_a_rule_is_read_and_told_in_one_form() -> None:
    given = {
        "name": "r",
        "filter": {"queue": "mail", "type": "mail.*", "error_type": "Broken"},
        "delay": "PT1H",
        "max_replays": 3,
        "enabled": False,
    }
    rule = rule_from(given, "r")
    assert rule == ReplayRule("r", "mail", "mail.*", "Broken", 3_600_000, 3, False)
    found = rule_json(rule)
    assert {name: found[name] for name in given} == given
    assert rule_from({"delay": "PT0S"}, "r").delay_ms == 0


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ([], "body"),
        ({"name": "other"}, "body.name"),
        ({"wait": "PT1S"}, "body.wait"),
        ({"filter": []}, "body.filter"),
        ({"filter": {"state": "discarded"}}, "body.filter.state"),
        ({"filter": {"queue": "Mail"}}, "body.filter.queue"),
        ({"filter": {"type": ""}}, "body.filter.type"),
        ({"filter": {"type": 1}}, "body.filter.type"),
        ({"filter": {"error_type": "x" * 256}}, "body.filter.error_type"),
        ({"delay": 5}, "body.delay"),
        ({"delay": "1h"}, "body.delay"),
        ({"delay": "-PT1S"}, "body.delay"),
        ({"max_replays": 0}, "body.max_replays"),
        ({"max_replays": 1.5}, "body.max_replays"),
        ({"max_replays": True}, "body.max_replays"),
        ({"max_replays": 1_001}, "body.max_replays"),
        ({"enabled": "yes"}, "body.enabled"),
    ],
)
def test_what_cannot_be_a_rule_is_refused_by_name(given: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        rule_from(given, "r")
    assert refused.value.details["field"] == field


@pytest.mark.parametrize("name", ["", "-r", "a b", "r" * 129, "r/s"])
def test_names_that_no_rule_may_have(name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        rule_from({}, name)
    assert refused.value.details["field"] == "name"


@pytest.mark.parametrize(
    ("wanted", "does"),
    [
        ({}, True),
        ({"queue": "mail"}, True),
        ({"queue": "other"}, False),
        ({"type": "mail.send"}, True),
        ({"type": "mail.*"}, True),
        ({"type": "mail"}, False),
        ({"error_type": "Broken"}, True),
        ({"error_type": "Other"}, False),
        ({"enabled": False}, False),
    ],
)
def test_which_letters_a_rule_is_about(wanted: dict[str, Any], does: bool) -> None:
    assert applies(ReplayRule("r", **wanted), letter()) is does


def test_the_queue_of_a_letter_is_the_one_that_it_came_from() -> None:
    moved = letter(queue="dlq", state="available", more={"origin": "mail", "buried_at": 70})
    assert applies(ReplayRule("r", queue="mail"), moved)
    assert not applies(ReplayRule("r", queue="dlq"), moved)
    assert choose([ReplayRule("r", delay_ms=5)], moved) == (75, ReplayRule("r", delay_ms=5))


def test_a_letter_without_errors_has_no_error_type() -> None:
    bare = letter()
    bare.rare().errors.clear()
    assert not applies(ReplayRule("r", error_type="Broken"), bare)
    assert applies(ReplayRule("r"), bare)


def test_the_earliest_rule_that_has_replays_left_is_chosen() -> None:
    soon, later = ReplayRule("z", delay_ms=5), ReplayRule("a", delay_ms=9, max_replays=2)
    twin = ReplayRule("b", delay_ms=5)
    assert choose([later, soon], letter()) == (105, soon)
    assert choose([soon, twin], letter()) == (105, twin), "of equal ones the first by name"
    assert choose([later, soon], letter(more={"replays": 1})) == (109, later)
    assert choose([later, soon], letter(more={"replays": 2})) is None


def test_the_stamp_leaves_everything_else_as_it_came() -> None:
    fixed = b'"args":[1.50,"\\u00e9"],"meta":{"user":{"id":1e3},"ojs.replay_count":9},"x_a":1'
    found = stamped(fixed, "r", 2, 1_770_000_000_000)
    assert b'"args":[1.50,"\\u00e9"]' in found
    assert b'"user":{"id":1e3}' in found
    assert found.endswith(b',"x_a":1')
    assert msgspec.json.decode(b"{%b}" % found)["meta"] == {
        "user": {"id": 1000.0},
        "ojs.replay_count": 2,
        "ojs.last_replayed_at": "2026-02-02T02:40:00.000Z",
        "ojs.replay_rule": "r",
    }
    assert b'"meta":{"ojs.replay_count":1' in stamped(b'"args":[]', "r", 1, 0)
