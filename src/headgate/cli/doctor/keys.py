"""Rate-limit keys that nothing will open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headgate.cli.doctor.facts import Facts, Record
from headgate.cli.doctor.finding import Finding, error, note, warning, well
from headgate.cli.words import counted, moment

_LONG_HOLD_MS: Final = 3_600_000


def judged(facts: Facts) -> Iterator[Finding]:
    if facts.keys is None:
        return
    found = [each for key in facts.keys for each in _key(key, facts.now_ms)]
    yield from found
    if not any(each.level in {"warning", "error"} for each in found):
        yield well("keys", f"{counted(len(facts.keys), 'key')}, none of them closed for good")


def _key(key: Record, now_ms: int) -> Iterator[Finding]:
    override = key.get("override") or {}
    endless = bool(override) and not override.get("expires_at")
    if key.get("concurrency", {}).get("limit") == 0:
        if "concurrency" not in override:
            how = "by its jobs, which say concurrency 0"
            yield _closed(key, how, f"headgate limit set {_name(key)} --concurrency …")
        elif endless:
            how = "by an override without end"
            yield _closed(key, how, f"headgate limit clear {_name(key)}")
    elif endless:
        told = f"key {key['key']} has an override without end"
        yield note("keys", told, f"headgate limit clear {_name(key)}")
    yield from _hold(key, now_ms)


def _closed(key: Record, how: str, remedy: str) -> Finding:
    told = f"key {key['key']} is closed {how}"
    if not key["waiting_count"]:
        return warning("keys", told, remedy)
    return error("keys", f"{told}; it keeps {counted(key['waiting_count'], 'job')} waiting", remedy)


def _hold(key: Record, now_ms: int) -> Iterator[Finding]:
    from headgate.core.times import instant_ms

    hold = key.get("hold")
    if not hold or not key["waiting_count"]:
        return
    if instant_ms(hold["until"]) - now_ms > _LONG_HOLD_MS:
        kept = counted(key["waiting_count"], "job")
        told = f"key {key['key']} is held until {moment(hold['until'], now_ms)}"
        yield warning(
            "keys", f"{told}; it keeps {kept} waiting", f"headgate limit clear {_name(key)}"
        )


def _name(key: Record) -> str:
    return f"{key['key']} --tenant {key['tenant']}" if key.get("tenant") else str(key["key"])
