"""Settings from flags, HEADGATE_* variables and a TOML file, in this order, over the defaults."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from headgate.server.bodies import in_words
from headgate.server.choices import choices
from headgate.server.settings import Limits, Settings

PREFIX = "HEADGATE_"

_TYPES = get_type_hints(Settings, include_extras=True)
_LIMITS = get_type_hints(Limits, include_extras=True)
_UNSPLIT = ("tokens", "limits", "cors_origins")
"""Settings that are more than one value, which only the file can give."""
_VARIABLES = {f"{PREFIX}{name.upper()}": name for name in _TYPES if name not in _UNSPLIT}
_LIMIT_VARIABLES = {f"{PREFIX}LIMITS_{name.upper()}": name for name in _LIMITS}
_FILE = f"{PREFIX}CONFIG"
_OF_CLIENTS = frozenset({f"{PREFIX}URL", f"{PREFIX}TOKEN"})
"""Producers and workers read these, and may run where the server does."""


class SettingInvalid(Exception):
    """One line: the setting, what is wrong with it, and where it came from."""


def load(
    flags: Mapping[str, Any], variables: Mapping[str, str], file: str | None = None
) -> Settings:
    """The settings that hold; flags that are None were not given."""
    values: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    path = file or variables.get(_FILE)
    if path:
        _from_file(path, values, limits)
    _from_variables(variables, values, limits)
    for name, value in flags.items():
        if value is not None:
            values[name] = _value(name, value, _TYPES[name], f"--{name.replace('_', '-')}")
    settings = Settings(**values, limits=Limits(**limits))
    _check(settings)
    return settings


def reachable(host: str) -> bool:
    """Whether others than this machine can come in at this address."""
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def _from_file(path: str, values: dict[str, Any], limits: dict[str, Any]) -> None:
    try:
        text = Path(path).read_text(encoding="utf-8")
        found = tomllib.loads(text)
    except OSError as error:
        raise SettingInvalid(f"config: {path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingInvalid(f"config: {path} is not TOML: {error}") from None
    for name, value in found.items():
        if name == "limits" and isinstance(value, dict):
            for limit, number in value.items():
                limits[limit] = _limit(limit, number, path)
        elif name not in _TYPES:
            raise SettingInvalid(f"{name}: there is no such setting (in {path})")
        else:
            values[name] = _value(name, value, _TYPES[name], path)


def _from_variables(
    variables: Mapping[str, str], values: dict[str, Any], limits: dict[str, Any]
) -> None:
    for variable, text in variables.items():
        if not variable.startswith(PREFIX) or variable == _FILE or variable in _OF_CLIENTS:
            continue
        if variable in _VARIABLES:
            name = _VARIABLES[variable]
            values[name] = _value(name, _bare(text), _TYPES[name], variable, strict=False)
        elif variable in _LIMIT_VARIABLES:
            name = _LIMIT_VARIABLES[variable]
            limits[name] = _limit(name, text, variable, strict=False)
        else:
            raise SettingInvalid(
                f"{variable}: there is no such setting, or only the configuration file can give it"
            )


def _limit(name: str, value: Any, source: str, *, strict: bool = True) -> Any:
    if name not in _LIMITS:
        raise SettingInvalid(f"limits.{name}: there is no such setting (in {source})")
    return _value(f"limits.{name}", value, _LIMITS[name], source, strict=strict)


def _value(name: str, value: Any, kind: Any, source: str, *, strict: bool = True) -> Any:
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        shown = "" if name in _UNSPLIT else f", not {value!r}"
        place = f"{name}{path.rstrip('`')}"
        sentence = _sentence(text, choices(kind, path.rstrip("`")))
        raise SettingInvalid(f"{place}: {sentence}{shown} (from {source})") from None


def _sentence(text: str, allowed: Sequence[str]) -> str:
    if text.startswith("Expected "):
        expected, _, _ = text.removeprefix("Expected ").partition(", got ")
        return f"must be {in_words(expected)}"
    if text.startswith("Invalid enum value"):
        return f"must be one of {', '.join(allowed)}"
    return text


def _bare(text: str) -> str:
    """Booleans as people write them in variables."""
    return {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(text.lower(), text)


def _check(settings: Settings) -> None:
    hashes = [token.sha256 for token in settings.tokens]
    if len(set(hashes)) < len(hashes):
        raise SettingInvalid("tokens: two of them have the same sha256")
    if reachable(settings.host) and not settings.tokens and not settings.insecure:
        raise SettingInvalid(
            f"host: others can reach {settings.host} and there are no tokens; "
            "add some (headgate token new) or say --insecure"
        )
