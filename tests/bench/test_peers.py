"""The comparison with other job queues, with peers made here: nothing is installed."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import msgspec
import pytest

from bench.peers.actors import acting, members
from bench.peers.environments import LOCKS, OURS, Unavailable, prepared
from bench.peers.known import PEERS, headgates
from bench.peers.life import Found
from bench.peers.measure import beside, chosen, prepare, rows
from bench.peers.peer import Peer
from bench.peers.stage import Ready
from bench.report import Row
from bench.sizes import Size
from tests.pages import ROOT

PROGRAM = ("{bin}/python", "tests/bench/fake_peer.py")
TINY = Size(2, 1, 1, 0.1, load_s=0.1, warm_s=0.1, connections=1, wakes=3, idle_s=0.1)


def fake(name: str, *work: str) -> Ready:
    peer = Peer(name, "made here", "none", (*PROGRAM, "produce"), (*PROGRAM, *work))
    return Ready(peer, OURS)


def by_subject(found: list[Row]) -> dict[tuple[str, str], Row]:
    return {(row.about.partition(",")[0], row.name): row for row in found}


def test_headgate_and_a_peer_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ready = [*prepare(headgates("full")[:1]), fake("fake", "work")]
    found = by_subject(beside(ready, "normal", tmp_path, msgspec.structs.replace(TINY, rounds=1)))
    assert {row.value > 0 for row in found.values()} == {True}
    subjects = {subject for subject, _ in found}
    assert len(subjects) == 4
    assert {name for _, name in found} == {"Headgate full, coroutines", "fake"}
    for subject in subjects:
        assert "Headgate full by it" in found[subject, "fake"].more
        assert "Headgate full by it" not in found[subject, "Headgate full, coroutines"].more
    assert "left out" not in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_who_fails_is_left_out_and_the_rest_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ready = [fake("broken", "sulk"), fake("good", "work")]
    found = beside(ready, "normal", tmp_path, TINY)
    assert {row.name for row in found} == {"good"}
    said = capsys.readouterr().err
    assert "broken is left out: worker ended with 1: no such thing" in said
    assert said.count("broken is left out") == 1


def test_ratios_are_of_one_round() -> None:
    peers = [one.peer for one in (fake("fake", "work"),)]
    ours = headgates("full")
    twice = Found(200.0, 1.0, 1.0, 20.0, 0.0, 1.0)
    once = Found(100.0, 1.0, 1.0, 10.0, 0.0, 4.0)
    found = rows([*ours, *peers], {"fake": once, **{one.name: twice for one in ours}}, "full")
    shown = {(row.about.partition(",")[0], row.name): row.more for row in found}
    assert shown["no-op jobs worked off", "fake"]["Headgate full by it"] == 2.0
    assert shown["from enqueue to run", "fake"]["Headgate full by it"] == 0.25
    # Nobody enqueued batches, so nothing is said of them.
    assert not any("100 at once" in row.about for row in found)


def test_all_that_was_started_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "pids"
    command = [str(OURS.bin / "python"), PROGRAM[1], "cling", str(told)]
    variables = {"BENCH_MARKS": str(tmp_path / "marks")}
    monkeypatch.setattr("bench.peers.actors._ASKED_S", 0.01)
    with acting("worker", command, tmp_path, variables) as actor:
        until = time.monotonic() + 30
        while not (told.exists() and told.read_text().count(" ")) and time.monotonic() < until:
            time.sleep(0.01)
        parent, child = map(int, told.read_text().split())
        assert parent == actor.pid
        assert child in members(parent)
    assert not {parent, child} & _running()


def _running() -> set[int]:
    """Processes that are more than an entry that nobody has read yet."""
    found = set()
    for one in Path("/proc").glob("[0-9]*"):
        try:
            state = (one / "stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in "ZX":
            found.add(int(one.name))
    return found


def test_names_choose_peers() -> None:
    assert [one.name for one in chosen(["rq", "BullMQ"])] == [
        "RQ, simple worker",
        "RQ, forking worker",
        "BullMQ on Node.js",
    ]
    assert chosen([]) == list(PEERS)


def test_an_environment_is_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = tmp_path / "nothing.txt"
    lock.write_text("--no-index\n")
    first = prepared(lock.name, tmp_path / "cache", tmp_path)
    assert os.access(first.bin / "python", os.X_OK)
    (first.place / "kept").touch()
    assert prepared(lock.name, tmp_path / "cache", tmp_path) == first
    assert (first.place / "kept").exists()
    assert capsys.readouterr().err.count("installing nothing") == 1
    lock.write_text("--no-index\n# another\n")
    assert prepared(lock.name, tmp_path / "cache", tmp_path) != first


def test_what_cannot_be_installed_is_left_out_and_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "missing.txt"
    lock.write_text(f"--no-index\nis-nowhere==1.0 --hash=sha256:{'0' * 64}\n")
    for _ in range(2):
        with pytest.raises(Unavailable, match="is-nowhere"):
            prepared(lock.name, tmp_path / "cache", tmp_path)
    assert capsys.readouterr().err.count("installing missing") == 2


def test_peers_are_locked_without_addresses() -> None:
    for lock in {one.lock for one in PEERS}:
        text = (LOCKS / lock).read_text()
        assert "://" not in text
        pinned = re.findall(r'^[\w.-]+==|^    "node_modules/', text, flags=re.MULTILINE)
        hashes = re.findall(r'--hash=sha256:|"integrity": "sha512-', text)
        assert 1 < len(pinned) <= len(hashes)


def test_every_peer_is_described() -> None:
    page = (ROOT / "docs/benchmarks.md").read_text()
    for one in PEERS:
        assert f"| {one.name} |" in page
