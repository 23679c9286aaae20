"""From a method and a path to the endpoint that answers it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import msgspec

from headgate.core.errors import MethodNotAllowed, NotFound
from headgate.server.route import Handler, Route

_DEEPEST = 16
"""More segments than any path has: longer ones need no walk to be refused."""


class Endpoint:
    """A route with everything computed that does not depend on the request."""

    __slots__ = (
        "body",
        "decode",
        "durable",
        "handler",
        "many",
        "open",
        "owned",
        "roles",
        "route",
        "tenant",
    )

    def __init__(self, route: Route) -> None:
        self.route = route
        self.handler: Handler = route.handler
        self.roles = route.roles
        self.open = not route.roles
        self.body = {"none": 0, "optional": 1, "required": 2}[route.body]
        self.decode: Any = None
        if self.body and route.request is not None:
            self.decode = msgspec.json.Decoder(route.request).decode
        self.many = route.many
        self.durable = route.durable
        self.tenant = {"ignored": 0, "seen": 1, "needed": 2}[route.tenant]
        self.owned = route.owned


class Place:
    """What can be done at one path."""

    __slots__ = ("allow", "endpoints", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.endpoints: dict[str, Endpoint] = {}
        self.allow: tuple[str, ...] = ()

    def add(self, route: Route) -> None:
        if route.method in self.endpoints:
            raise ValueError(f"two routes answer {route.method} {route.path}")
        endpoint = self.endpoints[route.method] = Endpoint(route)
        if route.method == "GET":
            self.endpoints["HEAD"] = endpoint
        self.allow = tuple(sorted({*self.endpoints, "OPTIONS"}))

    def endpoint(self, method: str) -> Endpoint:
        found = self.endpoints.get(method)
        if found is None:
            raise MethodNotAllowed(f"{method} cannot be done at this path", allow=self.allow)
        return found


class _Node:
    __slots__ = ("children", "parameter", "place")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.place: Place | None = None


class Router:
    """Finds places: those without parameters by one look-up, the others by walking a tree.

    A segment that some route names literally is never taken for a parameter, unless nothing lies at the end of that way.
    """

    __slots__ = ("_root", "fixed")

    def __init__(self, routes: Sequence[Route]) -> None:
        self._root = _Node()
        self.fixed: dict[str, Place] = {}
        """By the whole path."""
        for route in routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        node = self._root
        for segment in route.path.split("/")[1:]:
            if segment.startswith("{"):
                if node.parameter is None:
                    node.parameter = _Node()
                node = node.parameter
            else:
                node = node.children.setdefault(segment, _Node())
        if node.place is None:
            node.place = Place(route.path)
            if "{" not in route.path:
                self.fixed[route.path] = node.place
        node.place.add(route)

    def find(self, path: str) -> tuple[Place, tuple[str, ...]]:
        """The place at a path as it was sent, percent-encoded, and the decoded parameters."""
        segments = path.split("/", _DEEPEST + 1)[1:]
        if not path.startswith("/") or len(segments) > _DEEPEST:
            raise NotFound("there is nothing at this path")
        if "%" in path:
            try:
                segments = [unquote(segment, errors="strict") for segment in segments]
            except UnicodeDecodeError:
                raise NotFound("the path is not UTF-8") from None
        found = _walk(self._root, segments, 0)
        if found is None:
            raise NotFound("there is nothing at this path")
        place, parameters = found
        return place, tuple(reversed(parameters))


def _walk(node: _Node, segments: list[str], at: int) -> tuple[Place, list[str]] | None:
    """The parameters come last one first."""
    if at == len(segments):
        return None if node.place is None else (node.place, [])
    segment = segments[at]
    child = node.children.get(segment)
    if child is not None:
        found = _walk(child, segments, at + 1)
        if found is not None:
            return found
    if node.parameter is not None and segment:
        found = _walk(node.parameter, segments, at + 1)
        if found is not None:
            found[1].append(segment)
            return found
    return None
