"""The OpenAPI 3.1 document, made from the route table alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from inspect import cleandoc
from typing import Any

import msgspec

from headgate.core.errors import CATALOGUE
from headgate.core.tenants import MAX_NAME, NAME
from headgate.server.context import Context
from headgate.server.route import Answer, Request, Route
from headgate.server.tenancy import HEADER
from headgate.version import VERSION

PATH = "/openapi.json"
OJS = "application/openjobspec+json"

_PLACE = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{(\w+)\}")
_RENAMED = {413: "Content Too Large", 422: "Unprocessable Content"}
"""What RFC 9110 calls them; Python does so since 3.13, and the document is the same under all."""
_ANY_OBJECT: dict[str, Any] = {"type": "object"}
_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "description": "Codes may add members of their own.",
            "required": ["code", "message", "retryable", "request_id"],
            "properties": {
                "code": {"type": "string"},
                "type": {"type": "string", "description": "The category of the code."},
                "message": {"type": "string"},
                "retryable": {"type": "boolean"},
                "request_id": {"type": "string"},
                "hint": {"type": "string"},
                "docs_url": {"type": "string"},
                "details": {"type": "object"},
            },
        }
    },
}
_HEADERS: dict[str, Any] = {
    "OJS-Version": {"schema": {"type": "string", "const": "1.0"}},
    "X-Request-Id": {
        "schema": {"type": "string"},
        "description": "The request's own X-Request-Id, or a new one.",
    },
}
_RETRY_AFTER: dict[str, Any] = {
    "schema": {"type": "integer", "minimum": 1},
    "description": "Seconds after which trying again makes sense.",
}
_FULL: dict[str, Any] = {
    "X-OJS-Queue-Depth": {
        "schema": {"type": "integer"},
        "description": "With QUEUE_FULL: how full the queue is, in the unit of its bound.",
    },
    "X-OJS-Queue-Bound": {
        "schema": {"type": "integer"},
        "description": "With QUEUE_FULL: the bound that is in the way.",
    },
}
_TENANT: dict[str, Any] = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "string", "pattern": f"^{NAME.pattern}$", "maxLength": MAX_NAME},
    "description": "The tenant that the request comes from: nobody else's jobs are seen or touched.",
}
_HEADERS_SENT = ("OJS-Version", "X-Request-Id")


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """The same routes always give the same document."""
    schemas, components = _schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    statuses = sorted({status for route in routes for status in _errors(route)})
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headgate",
            "version": VERSION,
            "summary": "A job server with flow control that speaks the Open Job Spec",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {**dict(sorted(components.items())), "Error": _ERROR},
            "responses": {_name(status): _refusal(status) for status in statuses},
            "headers": {**_HEADERS, **_FULL, "Retry-After": _RETRY_AFTER},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Needed where the server has tokens configured.",
                }
            },
        },
        "tags": [{"name": tag} for tag in dict.fromkeys(route.tag for route in routes)],
    }


def described(routes: Sequence[Route]) -> Route:
    """A route that answers with the document of all routes, itself included."""
    text: list[bytes] = []

    async def answer(_context: Context, _request: Request) -> Answer:
        if not text:
            text.append(msgspec.json.encode(document((*routes, route))))
        return Answer(text[0], content_type=b"application/json")

    route = Route(
        "GET",
        PATH,
        answer,
        frozenset(),
        summary="This document",
        content="application/json",
        durable=False,
        tag="system",
    )
    return route


def _operation(route: Route, schemas: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": _operation_id(route),
        "tags": [route.tag],
        "summary": route.summary,
        "security": [{"token": []}] if route.roles else [],
    }
    if route.roles:
        found["description"] = f"Needs one of the roles: {', '.join(sorted(route.roles))}."
    parameters = [
        *(_parameter(name, "path", "") for name in _PARAMETER.findall(route.path)),
        *(_parameter(name, "query", meaning) for name, meaning in route.query.items()),
        *(_parameter(name, "header", meaning) for name, meaning in route.headers.items()),
    ]
    if route.tenant != "ignored":
        parameters.append(_TENANT)
    if parameters:
        found["parameters"] = parameters
    if route.body != "none":
        schema = schemas.get(route.shape or route.request, _ANY_OBJECT)
        found["requestBody"] = {
            "required": route.body == "required",
            "content": {kind: {"schema": schema} for kind in (OJS, "application/json")},
        }
    body = _success(route, schemas)
    refusals = _errors(route)
    found["responses"] = {
        str(route.status): _answered(route, route.status, body),
        **{str(status): _ref("responses", _name(status)) for status in refusals},
        **{
            str(status): _answered(
                route,
                status,
                {"anyOf": [body, _ref("schemas", "Error")]} if status in refusals else body,
            )
            for status in route.also
        },
    }
    return found


def _answered(route: Route, status: int, body: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "description": _RENAMED.get(status) or HTTPStatus(status).phrase,
        "headers": {name: _ref("headers", name) for name in _HEADERS_SENT}
        | {
            name: {"schema": {"type": "number"}, "description": meaning}
            for name, meaning in route.sends.items()
        },
    }
    if status != HTTPStatus.NO_CONTENT:
        found["content"] = {route.content: {"schema": body}}
    return found


def _success(route: Route, schemas: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    if route.response is not None:
        return schemas.get(route.response, _ANY_OBJECT)
    return _ANY_OBJECT if route.content.endswith("json") else {"type": "string"}


def _parameter(name: str, place: str, meaning: str) -> dict[str, Any]:
    found = {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}}
    if meaning:
        found["description"] = meaning
    return found


def _errors(route: Route) -> list[int]:
    """What the handler may refuse and what the application may, before it is asked."""
    found = {400, 422, 500, *route.errors}
    if route.roles:
        found |= {401, 403, 429}
    if route.body != "none":
        found |= {408, 413, 415}
    if route.durable:
        found.add(503)
    return sorted(found - {route.status})


def _refusal(status: int) -> dict[str, Any]:
    names = (*_HEADERS_SENT, "Retry-After") if status in {429, 503} else _HEADERS_SENT
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        names = (*names, *_FULL)
    return {
        "description": ", ".join(
            entry.code for entry in CATALOGUE.values() if entry.status == status
        ),
        "headers": {name: _ref("headers", name) for name in names},
        "content": {OJS: {"schema": _ref("schemas", "Error")}},
    }


def _name(status: int) -> str:
    return f"Refused{status}"


def _ref(kind: str, name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/{kind}/{name}"}


def _operation_id(route: Route) -> str:
    below = route.path.removeprefix("/ojs/v1")
    place = [] if below != route.path else ["root"]
    return "_".join([route.method.lower(), *place, *re.findall(r"\w+", below)])


def _schemas(routes: Sequence[Route]) -> tuple[dict[Any, dict[str, Any]], dict[str, Any]]:
    """The schema of every type that a route names, and the components that these refer to."""
    named: Iterable[Any] = (
        kind for route in routes for kind in (route.shape or route.request, route.response)
    )
    kinds = [kind for kind in dict.fromkeys(named) if kind is not None and _can_be_described(kind)]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_PLACE)
    for component in components.values():
        if "description" in component:
            # A docstring; Python takes its indentation away since 3.13.
            component["description"] = cleandoc(component["description"])
    return dict(zip(kinds, schemas, strict=True)), components


def _can_be_described(kind: Any) -> bool:
    """A struct with JSON as a member's default has no schema; it is shown as any object."""
    try:
        msgspec.json.schema_components([kind], ref_template=_PLACE)
    except TypeError:
        return False
    return True
