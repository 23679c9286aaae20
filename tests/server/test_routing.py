from __future__ import annotations

import pytest

from headgate.core.errors import MethodNotAllowed, NotFound
from headgate.server.routing import Router
from tests.server.driver import route

PATHS = (
    ("GET", "/ojs/v1/jobs/{id}"),
    ("DELETE", "/ojs/v1/jobs/{id}"),
    ("POST", "/ojs/v1/jobs"),
    ("POST", "/ojs/v1/jobs/batch"),
    ("POST", "/ojs/v1/jobs/bulk/cancel"),
    ("GET", "/ojs/v1/jobs/{id}/result"),
    ("GET", "/ojs/v1/queues/{name}/stats"),
    ("PUT", "/ojs/v1/queues/_default/config"),
    ("GET", "/ojs/v1/schemas/{type}/{version}"),
)


@pytest.fixture
def router() -> Router:
    return Router([route(method, path) for method, path in PATHS])


@pytest.mark.parametrize(
    ("path", "place", "params"),
    [
        ("/ojs/v1/jobs", "/ojs/v1/jobs", ()),
        ("/ojs/v1/jobs/7", "/ojs/v1/jobs/{id}", ("7",)),
        ("/ojs/v1/jobs/batch", "/ojs/v1/jobs/batch", ()),
        ("/ojs/v1/jobs/7/result", "/ojs/v1/jobs/{id}/result", ("7",)),
        ("/ojs/v1/schemas/a.b/3", "/ojs/v1/schemas/{type}/{version}", ("a.b", "3")),
        ("/ojs/v1/jobs/a%2Fb", "/ojs/v1/jobs/{id}", ("a/b",)),
        ("/ojs/v1/jobs/%C3%A4%20b", "/ojs/v1/jobs/{id}", ("ä b",)),
        ("/ojs/v1/j%6fbs", "/ojs/v1/jobs", ()),
        ("/ojs/v1/queues/_default/config", "/ojs/v1/queues/_default/config", ()),
    ],
)
def test_a_path_leads_to_its_place(
    router: Router, path: str, place: str, params: tuple[str, ...]
) -> None:
    found, decoded = router.find(path)
    assert (found.path, decoded) == (place, params)


def test_a_literal_that_leads_nowhere_is_a_parameter_after_all(router: Router) -> None:
    found, params = router.find("/ojs/v1/jobs/batch/result")
    assert (found.path, params) == ("/ojs/v1/jobs/{id}/result", ("batch",))
    found, params = router.find("/ojs/v1/queues/_default/stats")
    assert (found.path, params) == ("/ojs/v1/queues/{name}/stats", ("_default",))


@pytest.mark.parametrize(
    "path",
    ["", "/", "*", "ojs/v1/jobs", "/ojs/v1", "/ojs/v1/jobs/", "/ojs/v1/jobs/7/", "/OJS/v1/jobs",
     "/ojs/v1/jobs/7/nothing", "//ojs/v1/jobs", "/ojs/v1/jobs/%ff", "/a" * 5_000],
)  # fmt: skip
def test_other_paths_lead_nowhere(router: Router, path: str) -> None:
    with pytest.raises(NotFound):
        router.find(path)


def test_a_place_knows_its_methods(router: Router) -> None:
    place, _ = router.find("/ojs/v1/jobs/7")
    assert place.allow == ("DELETE", "GET", "HEAD", "OPTIONS")
    assert place.endpoint("HEAD") is place.endpoint("GET")
    with pytest.raises(MethodNotAllowed) as refused:
        place.endpoint("push")
    assert refused.value.headers == {"Allow": "DELETE, GET, HEAD, OPTIONS"}


def test_only_paths_without_parameters_are_found_at_once(router: Router) -> None:
    assert set(router.fixed) == {path for _, path in PATHS if "{" not in path}


def test_two_answers_for_one_request_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="two routes answer GET /a/"):
        Router([route("GET", "/a/{x}"), route("GET", "/a/{y}")])
