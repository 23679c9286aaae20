from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest

from headgate.core.errors import CATALOGUE
from headgate.server.openapi import PATH, described, document
from headgate.server.routes import ROUTES
from tests.server.driver import call, make_app, route


class Wanted(msgspec.Struct):
    name: str
    anything: msgspec.Raw


class Given(msgspec.Struct):
    wanted: Wanted
    count: int = 0


class Several(msgspec.Struct):
    """Several lines.

    Of which the last one is indented.
    """

    name: str = ""


TOYS = (
    route(
        "PUT",
        "/things/{id}/parts/{part}",
        roles=frozenset({"worker", "admin"}),
        summary="Change a part",
        request=Wanted,
        body="required",
        response=Given,
        status=201,
        query={"dry": "Change nothing."},
        errors=(404, 409),
        tag="things",
    ),
    route("GET", "/open", tag="system", durable=False),
    route("DELETE", "/things/{id}", status=204),
    route("GET", "/events", content="text/event-stream"),
)


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        here = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return here.union(*map(references, value.values()))
    if isinstance(value, list):
        return set().union(*map(references, value))
    return set()


def check(found: dict[str, Any]) -> None:
    """What makes a document whole: every reference leads somewhere, names are unique and legal."""
    for reference in references(found):
        place: Any = found
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
    operations = [each for path in found["paths"].values() for each in path.values()]
    ids = [each["operationId"] for each in operations]
    assert len(set(ids)) == len(ids)
    for group in found["components"].values():
        assert all(re.fullmatch(r"[a-zA-Z0-9._-]+", name) for name in group)
    tags = {tag["name"] for tag in found["tags"]}
    assert all(set(each["tags"]) <= tags for each in operations)
    for path, methods in found["paths"].items():
        for each in methods.values():
            named = {p["name"] for p in each.get("parameters", ()) if p["in"] == "path"}
            assert named == set(re.findall(r"\{(\w+)\}", path))
            assert any(status.startswith("2") for status in each["responses"])


def test_a_route_is_described_whole() -> None:
    found = document(TOYS)
    check(found)
    operation = found["paths"]["/things/{id}/parts/{part}"]["put"]
    assert operation["summary"] == "Change a part"
    assert operation["security"] == [{"token": []}]
    assert "admin, worker" in operation["description"]
    assert [(p["name"], p["in"], p["required"]) for p in operation["parameters"]] == [
        ("id", "path", True),
        ("part", "path", True),
        ("dry", "query", False),
    ]
    body = operation["requestBody"]
    assert body["required"]
    assert set(body["content"]) == {"application/openjobspec+json", "application/json"}
    assert body["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Wanted"}
    assert set(operation["responses"]) == {
        "201", "400", "401", "403", "404", "408", "409", "413", "415", "422", "429", "500", "503",
    }  # fmt: skip
    answer = operation["responses"]["201"]["content"]["application/openjobspec+json"]["schema"]
    assert answer == {"$ref": "#/components/schemas/Given"}
    schema = found["components"]["schemas"]["Wanted"]
    assert schema["properties"] == {"name": {"type": "string"}, "anything": {}}


def test_headers_are_described_where_they_mean_something() -> None:
    paths = document(ROUTES)["paths"]
    push = paths["/ojs/v1/jobs"]["post"]
    headers = {p["name"]: p for p in push["parameters"] if p["in"] == "header"}
    assert set(headers) == {"OJS-Block-Timeout", "X-OJS-Tenant"}
    assert not any(p["required"] for p in headers.values())
    assert "X-OJS-Queue-Pressure" in push["responses"]["201"]["headers"]
    look = paths["/ojs/v1/jobs/{id}"]["get"]
    assert [p["name"] for p in look["parameters"]] == ["id", "X-OJS-Tenant"]
    assert "parameters" not in paths["/ojs/v1/health"]["get"]
    full = document(ROUTES)["components"]["responses"]["Refused429"]["headers"]
    assert {"Retry-After", "X-OJS-Queue-Depth", "X-OJS-Queue-Bound"} <= set(full)


def test_open_routes_and_other_answers_are_told() -> None:
    paths = document(TOYS)["paths"]
    assert paths["/open"]["get"]["security"] == []
    assert {"401", "403", "429", "503"}.isdisjoint(paths["/open"]["get"]["responses"])
    assert "content" not in paths["/things/{id}"]["delete"]["responses"]["204"]
    stream = paths["/events"]["get"]["responses"]["200"]["content"]
    assert stream == {"text/event-stream": {"schema": {"type": "string"}}}


def test_a_refusal_names_its_codes_and_its_headers() -> None:
    responses = document(TOYS)["components"]["responses"]
    assert "envelope_too_large" in responses["Refused413"]["description"]
    assert "Retry-After" in responses["Refused429"]["headers"]
    assert "Retry-After" not in responses["Refused404"]["headers"]
    for name, response in responses.items():
        status = int(name.removeprefix("Refused"))
        for entry in CATALOGUE.values():
            assert (entry.code in response["description"].split(", ")) is (entry.status == status)


def test_the_document_of_the_server_is_whole_and_always_the_same() -> None:
    routes = (*ROUTES, described(ROUTES))
    found = document(routes)
    check(found)
    assert len([1 for path in found["paths"].values() for _ in path]) == len(routes)
    assert json.dumps(found) == json.dumps(document(routes))
    assert all(each.summary for each in routes)


def test_the_errors_schema_fits_what_is_sent() -> None:
    schema = document(TOYS)["components"]["schemas"]["Error"]["properties"]["error"]
    reply = call(make_app(), "GET", "/nothing")
    assert set(schema["required"]) <= set(reply.error)
    assert set(reply.error) <= set(schema["properties"])


@pytest.mark.parametrize("path", ["/openapi.json"])
def test_it_is_served_with_every_application(path: str) -> None:
    reply = call(make_app(*TOYS), "GET", path)
    assert (reply.status, reply.header("content-type")) == (200, "application/json")
    assert reply.json == json.loads(json.dumps(document((*TOYS, described(TOYS)))))
    assert path == PATH
    assert PATH in reply.json["paths"]


def test_it_is_the_same_under_every_python() -> None:
    """Python 3.13 has taken up new names of statuses, and takes the indentation of docstrings away."""
    text = json.dumps(document(ROUTES))
    assert '"description": "Unprocessable Content"' in text
    for name in ("Request Entity Too Large", "Requested Range Not", "Unprocessable Entity"):
        assert name not in text
    assert r"\n    " not in text
    found = document([route("POST", "/many", request=Several, body="required")])
    told = found["components"]["schemas"]["Several"]["description"]
    assert told.strip() == "Several lines.\n\nOf which the last one is indented."
