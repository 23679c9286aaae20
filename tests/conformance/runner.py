"""Runs official tests against a server.

A test is a list of steps; it ends with the first one that is not answered as expected.
Captures, repetitions, raw bodies and comparisons between steps are carried out as their authors wrote them, where the official runner passes over them.
"""

from __future__ import annotations

import http.client
import json
import queue
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from tests.conformance.notation import ABSENT, find, fits
from tests.faults.client import JSON, Address, Reply
from tests.faults.server import Server

TIMEOUT_S = 30.0
LONGEST_FAILURE = 200

_TEMPLATE = re.compile(r"\{\{(.+?)\}\}")
_CHANGING = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[\d:.]+Z")
_OF_STEP = re.compile(r"steps\.([^.]+)\.response\.body\.?(.*)")


class Test(msgspec.Struct):
    __test__ = False

    path: str
    """Of its file below the suites; official ids are not unique."""
    id: str
    level: str
    name: str
    spec_ref: str
    steps: list[dict[str, Any]]

    @property
    def suite(self) -> str:
        return self.path.partition("/")[0]

    @property
    def sleeps_ms(self) -> int:
        return sum(step.get("delay_ms", 0) + step.get("duration_ms", 0) for step in self.steps)


class Result(msgspec.Struct):
    path: str
    id: str
    name: str
    failure: str
    """The first thing that was not as expected; empty when all was."""


class Unexpected(Exception):
    """What an answer was instead of what the test wants."""


def load(directory: Path) -> list[Test]:
    tests = []
    for file in sorted(directory.rglob("*.json")):
        given = json.loads(file.read_bytes())
        path = file.relative_to(directory).as_posix()
        name, level = given["name"], str(given["level"])
        tests.append(Test(path, given["test_id"], level, name, given["spec_ref"], given["steps"]))
    return tests


def run_all(tests: Sequence[Test], directory: Path, servers: int) -> list[Result]:
    """Every test on one of so many fresh servers, whose files are in the directory."""
    idle: queue.SimpleQueue[Address] = queue.SimpleQueue()

    def run_one(test: Test) -> Result:
        address = idle.get()
        try:
            return run(test, address)
        finally:
            idle.put(address)

    with ExitStack() as stack:
        started = [Server(directory / f"{n}.db", "--test-hooks") for n in range(servers)]
        pool = stack.enter_context(ThreadPoolExecutor(servers))
        for server in pool.map(stack.enter_context, started):
            idle.put(server.address)
        # The long ones first, so that none of them is left alone at the end.
        order = sorted(tests, key=lambda test: -test.sleeps_ms)
        results = {result.path: result for result in pool.map(run_one, order)}
    return [results[test.path] for test in tests]


def run(test: Test, address: Address) -> Result:
    """One test on a server that nobody else uses meanwhile; it is wiped first."""
    wiped = send(address, "POST", "/ojs/v1/admin/reset", {}, None)
    assert wiped.status == 200, wiped
    failure = ""
    try:
        Run(address).all(test.steps)
    except Unexpected as error:
        # Without what differs from run to run.
        failure = _CHANGING.sub("…", str(error))[:LONGEST_FAILURE]
    return Result(test.path, test.id, test.name, failure)


def send(
    address: Address, method: str, path: str, headers: dict[str, str], body: bytes | None
) -> Reply:
    connection = http.client.HTTPConnection(*address, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, found, answer.read())
    except (OSError, http.client.HTTPException) as error:
        raise Unexpected(f"{method} {path} was not answered: {error!r}") from None
    finally:
        connection.close()


class Run:
    """What one test remembers from step to step."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._answers: dict[str, Any] = {}
        self._captured: dict[str, Any] = {}

    def all(self, steps: Sequence[dict[str, Any]]) -> None:
        rest = list(steps)
        while rest:
            # Steps that name each other as parallel stand side by side.
            together = [rest.pop(0)]
            while rest and "parallel_with" in together[0] and "parallel_with" in rest[0]:
                together.append(rest.pop(0))
            with ThreadPoolExecutor(len(together)) as pool:
                list(pool.map(self._step, together))

    def _step(self, step: dict[str, Any]) -> None:
        time.sleep((step.get("delay_ms", 0) + step.get("duration_ms", 0)) / 1000)
        try:
            match step["action"]:
                case "WAIT":
                    pass
                case "ASSERT":
                    self._compare(step["assertions"])
                case _:
                    for _ in range(step.get("repeat", 1)):
                        self._ask(step)
        except Unexpected as error:
            raise Unexpected(f"{step['id']}: {error}") from None

    def _ask(self, step: dict[str, Any]) -> None:
        headers = dict(step.get("headers", {}))
        body = None
        if "raw_body" in step:
            body = step["raw_body"].encode()
        elif "body" in step:
            body = json.dumps(self._filled(step["body"])).encode()
        if body is not None:
            headers.setdefault("Content-Type", JSON)
        reply = send(self._address, step["action"], self._filled(step["path"]), headers, body)
        try:
            answer = reply.json if reply.body else ABSENT
        except ValueError:
            answer = ABSENT
        self._answers[step["id"]] = answer
        self._check(step.get("assertions", {}), reply, answer)
        for name, path in {**step.get("capture", {}), **step.get("captures", {})}.items():
            self._captured[name] = find(path, answer)

    def _check(self, wanted: dict[str, Any], reply: Reply, answer: Any) -> None:
        for name in ("status", "status_in", "status_one_of"):
            if name in wanted:
                allowed = wanted[name]
                if isinstance(allowed, list):
                    allowed = {"$in": allowed}
                _expect("status", allowed, reply.status)
        for name, expected in wanted.get("headers", {}).items():
            _expect(name, expected, reply.headers.get(name.lower(), ABSENT))
        for path, expected in wanted.get("body", {}).items():
            if path == "$or":
                if not any(self._holds(choice, answer) for choice in expected):
                    raise Unexpected(f"none of {json.dumps(expected)} is {answer}")
            else:
                _expect(path, self._filled(expected), find(self._filled(path), answer))

    def _holds(self, choice: dict[str, Any], answer: Any) -> bool:
        if choice == {"$empty": True}:
            return answer is ABSENT
        return all(fits(expected, find(path, answer)) for path, expected in choice.items())

    def _compare(self, wanted: dict[str, Any]) -> None:
        for left, right in wanted.get("equality", {}).items():
            values = (self._value(left.removeprefix("$.")), self._filled(right))
            if values[0] != values[1]:
                raise Unexpected(f"{left} and {right} differ: {values}")
        claim = wanted.get("exclusive_claim")
        if claim is not None:
            job_id = self._filled(claim["job_id"])
            fetches = [[job["id"] for job in self._filled(jobs)] for jobs in claim["fetches"]]
            if sorted(fetches) != [[], [job_id]]:
                raise Unexpected(f"the fetches gave {fetches}")

    def _filled(self, given: Any) -> Any:
        """With what earlier steps were answered in place of its templates."""
        if isinstance(given, dict):
            return {name: self._filled(value) for name, value in given.items()}
        if isinstance(given, list):
            return [self._filled(value) for value in given]
        if not isinstance(given, str):
            return given
        whole = _TEMPLATE.fullmatch(given)
        if whole is not None:
            return self._value(whole[1])
        return _TEMPLATE.sub(lambda found: str(self._value(found[1])), given)

    def _value(self, name: str) -> Any:
        if name in self._captured:
            value = self._captured[name]
        else:
            of_step = _OF_STEP.fullmatch(name)
            if of_step is None or of_step[1] not in self._answers:
                raise Unexpected(f"nothing is known as {name!r}")
            value = find(f"$.{of_step[2]}" if of_step[2] else "$", self._answers[of_step[1]])
        if value is ABSENT:
            raise Unexpected(f"{name} is not there")
        return value


def _expect(what: str, expected: Any, value: Any) -> None:
    if not fits(expected, value):
        raise Unexpected(f"{what} is {value!r}, expected {json.dumps(expected)}")
