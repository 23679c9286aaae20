"""The server itself: version, store, settings, tokens, clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from headgate.cli.doctor.facts import Facts, Record
from headgate.cli.doctor.finding import Finding, error, note, warning, well
from headgate.cli.words import counted, joined, span
from headgate.version import VERSION

_SLOW_ANSWER_MS: Final = 1_000
_SLOW_COMMIT_MS: Final = 100
_CLOCK_OFF_MS: Final = 2_000


def judged(facts: Facts) -> Iterator[Finding]:
    yield _answer(facts)
    yield _version(facts)
    yield _store(facts.health)
    yield from _maintenance(facts.health)
    if facts.clock_off_ms is not None:
        yield _clock(facts.clock_off_ms)
    if facts.system is not None:
        yield from _settings(facts.system)
        yield _tokens(facts.system)
    yield from _way(facts)
    for part, why in facts.unseen.items():
        yield note(part, f"not looked at: {why}", "a token with the role admin sees all")


def _answer(facts: Facts) -> Finding:
    up = span(facts.health.get("uptime_seconds", 0) * 1000)
    told = f"{facts.url} answers in {span(facts.answered_ms)}, up {up}"
    if facts.answered_ms > _SLOW_ANSWER_MS:
        return warning("server", told, "look at the load of its machine and the way to it")
    return well("server", told)


def _version(facts: Facts) -> Finding:
    made_by = facts.manifest.get("implementation", {})
    name = made_by.get("name", "headgate")
    version = made_by.get("version") or facts.health.get("version", "")
    if name != "headgate":
        told = f"the server is {name} {version}, of which only the standard requests are known"
        return warning("version", told)
    if version != VERSION:
        told = f"the server is Headgate {version}, here is {VERSION}"
        return warning("version", told, "install the same version on both sides")
    return well("version", f"Headgate {version} on both sides")


def _store(health: Record) -> Finding:
    backend = health.get("backend", {})
    kind, status = backend.get("type", "?"), backend.get("status", health["status"])
    commit_ms = backend.get("latency_ms", 0.0)
    if status != "ok" or health["status"] != "ok":
        return error(
            "store",
            f"the {kind} store is {status}: nothing can be written",
            "look for a full disk, lost permissions, and at the server's log",
        )
    if commit_ms > _SLOW_COMMIT_MS:
        told = f"the last commit took {span(commit_ms)}"
        return warning("store", told, "look at the disk: every answer waits for it")
    if kind == "memory":
        told = "the store is memory: every job is forgotten when the server ends"
        return warning("store", told, "headgate serve --store sqlite:///headgate.db")
    return well("store", f"the {kind} store takes commits, the last in {span(commit_ms)}")


def _maintenance(health: Record) -> Iterator[Finding]:
    known = health.get("maintenance")
    if not known:
        return
    why = f" ({known['reason']})" if known.get("reason") else ""
    ends = f", meant to end at {known['estimated_end']}" if known.get("estimated_end") else ""
    yield warning(
        "maintenance",
        f"the server is in maintenance since {known['enabled_at']}{ends}{why}: no job is given out",
        "headgate maintenance end",
    )


def _clock(off_ms: int) -> Finding:
    if abs(off_ms) <= _CLOCK_OFF_MS:
        return well("clock", "the server's clock and the one here agree")
    side = "ahead of" if off_ms > 0 else "behind"
    told = f"the server's clock is {span(abs(off_ms))} {side} the one here"
    return warning(
        "clock",
        f"{told}: delays and expiries are off by that",
        "let both machines keep their time with NTP",
    )


def _settings(system: Record) -> Iterator[Finding]:
    on_disk = system.get("store") != "memory:"
    if on_disk and system.get("durability") == "normal":
        told = "normal: answered requests survive a killed process, but not a power cut"
        yield note("durability", told, "headgate serve --durability full")
    elif on_disk:
        yield well("durability", "full: answered requests survive a power cut")
    if system.get("test_hooks"):
        told = "test hooks are on: whoever may come in can wipe everything"
        yield error("settings", told, "headgate serve --no-test-hooks")


def _tokens(system: Record) -> Finding:
    from headgate.server.configuration import reachable

    tokens, host = system.get("tokens", []), system.get("host", "")
    if tokens:
        holders = [f"{token['name']} ({', '.join(token['roles'])})" for token in tokens]
        return well("tokens", f"{counted(len(holders), 'token')}: {joined(holders)}")
    if reachable(host):
        told = f"there are no tokens, and others can reach {host}"
        return error("tokens", told, "headgate token new --name NAME --role ROLE")
    return well("tokens", f"there are no tokens, and only this machine can reach {host}")


def _way(facts: Facts) -> Iterator[Finding]:
    from headgate.server.configuration import reachable

    there = urlsplit(facts.url)
    if facts.token and there.scheme == "http" and reachable(there.hostname or ""):
        told = "your token travels to another machine unencrypted"
        yield warning("token", told, "put the server behind TLS and use https://")
