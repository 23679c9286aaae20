"""The parts of the documentation that the code itself can say best, as Markdown."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
from collections.abc import Iterable, Sequence
from typing import Any, get_args

import msgspec

from headgate.cli.asking import add_server
from headgate.cli.main import parser
from headgate.core.errors import CATALOGUE, Entry
from headgate.core.states import mermaid
from headgate.server import settings
from headgate.server.gauges import Seen, state
from headgate.server.metrics import Metrics
from headgate.server.openapi import described
from headgate.server.route import Route
from headgate.server.routes import ROUTES
from headgate.server.settings import Limits, Settings

ALL_ROUTES = (*ROUTES, described(ROUTES))
TAGS = tuple(dict.fromkeys(route.tag for route in ALL_ROUTES))

_NOT_VALUES = ("tokens", "limits")
_ABOUT_OWN = (
    "These stand in a job's `error` and `errors`, never in an answer.",
    "A worker chooses them in its nack; the names here are those that the Open Job Spec knows.",
)


def states() -> str:
    return f"```mermaid\n{mermaid()}```"


# Settings


def settings_table() -> str:
    flags = {name for action in _options(_command("serve")) for name in action.option_strings}
    rows = []
    for name, default, meaning in _members(Settings):
        if name in _NOT_VALUES:
            continue
        flag = f"--{name.replace('_', '-')}"
        rows.append(
            (f"`{name}`", f"`{flag}`" if flag in flags else "", f"`{_toml(default)}`", meaning)
        )
    return _table(("Name", "Flag", "Default", "Meaning"), rows)


def limits_table() -> str:
    rows = [
        (f"`{name}`", f"`{_toml(default)}`", meaning) for name, default, meaning in _members(Limits)
    ]
    return _table(("Name", "Default", "Meaning"), rows)


def _members(struct: type[msgspec.Struct]) -> Iterable[tuple[str, Any, str]]:
    """Name, default and the sentence that stands below the member in the source."""
    values = struct()
    said = _sentences(struct.__name__)
    for field in msgspec.structs.fields(struct):
        if field.name not in _NOT_VALUES and not said.get(field.name):
            raise SystemExit(f"settings.py: {struct.__name__}.{field.name} says not what it means")
        meaning = said.get(field.name, "")
        choices = _choices(field.type)
        if choices:
            meaning += " One of " + ", ".join(f"`{choice}`" for choice in choices) + "."
        yield field.name, getattr(values, field.name), meaning


def _sentences(name: str) -> dict[str, str]:
    for node in ast.parse(inspect.getsource(settings)).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return {
                above.target.id: " ".join(str(below.value.value).split())
                for above, below in zip(node.body, node.body[1:], strict=False)
                if isinstance(above, ast.AnnAssign)
                and isinstance(above.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
            }
    raise SystemExit(f"settings.py: there is no class {name}")


def _choices(kind: Any) -> Sequence[str]:
    found = get_args(kind)
    return found if found and all(isinstance(each, str) for each in found) else ()


def _toml(value: Any) -> str:
    if value == ():
        return "[]"
    return str(value).lower() if isinstance(value, bool) else str(value)


# Commands


def commands() -> str:
    top = parser()
    shared = _shared_options()
    parts = ["Most commands ask a server, and all of these have:", _option_table(shared.values())]
    for name, command, about in _leaves(top, ""):
        parts += [f"### headgate {name}", _sentence(command.description or about)]
        options = _options(command)
        own = [action for action in options if _meaning(action) not in shared]
        if own:
            parts.append(_option_table(own))
        if command.epilog:
            parts.append(command.epilog)
        of_all = [f"`{action.option_strings[0]}`" for action in options if action not in own]
        if of_all:
            parts.append(f"Besides: {', '.join(of_all)}.")
    return "\n\n".join(parts)


def _shared_options() -> dict[str, argparse.Action]:
    """Those of every command that asks a server, by what they mean."""
    found = argparse.ArgumentParser()
    add_server(found)
    return {_meaning(action): action for action in _options(found)}


def _option_table(actions: Iterable[argparse.Action]) -> str:
    rows = [
        (", ".join(f"`{spelling}`" for spelling in _spellings(action)), _meaning(action))
        for action in actions
    ]
    return _table(("Option", "Meaning"), rows)


def commands_and_options() -> Iterable[tuple[str, list[str]]]:
    """Every command that can be run, and all spellings of its options."""
    for name, command, _ in _leaves(parser(), ""):
        yield name, [option for action in _options(command) for option in action.option_strings]


def _leaves(
    found: argparse.ArgumentParser, path: str, about: str = ""
) -> Iterable[tuple[str, argparse.ArgumentParser, str]]:
    inner = _subcommands(found)
    if inner is None:
        yield path, found, about
        return
    said = {choice.dest: choice.help or "" for choice in inner._choices_actions}  # noqa: SLF001 - argparse has no other way to look
    for name, command in inner.choices.items():
        yield from _leaves(command, f"{path} {name}".strip(), said.get(name, ""))


def _subcommands(found: argparse.ArgumentParser) -> Any:
    for action in found._actions:  # noqa: SLF001 - as above
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            return action
    return None


def _command(name: str) -> argparse.ArgumentParser:
    found = _subcommands(parser()).choices[name]
    assert isinstance(found, argparse.ArgumentParser)
    return found


def _options(command: argparse.ArgumentParser) -> list[argparse.Action]:
    """All but the help."""
    return [action for action in command._actions if action.dest != "help"]  # noqa: SLF001 - as above


def _spellings(action: argparse.Action) -> list[str]:
    if isinstance(action.metavar, str):
        value = f" {action.metavar}"
    elif action.choices:
        value = " " + "|".join(map(str, action.choices))
    else:
        value = "" if action.nargs == 0 else f" {action.dest.upper()}"
    if not action.option_strings:
        many = action.nargs in {"*", "+"}
        return [f"{value.strip()} …" if many else value.strip()]
    return [f"{name}{value}" for name in action.option_strings]


def _meaning(action: argparse.Action) -> str:
    if not action.help:
        raise SystemExit(f"cli: {'/'.join(action.option_strings)} has no help")
    # Some versions of Python call an argument required of which there may be none.
    required = action.required and action.nargs not in {"*", "?"}
    return f"{action.help}; required" if required else action.help


def _sentence(text: str) -> str:
    text = text.rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."


# Routes, metrics, errors


def routes(tag: str) -> str:
    rows = [
        (f"`{route.method} {route.path}`", route.summary, _roles(route))
        for route in ALL_ROUTES
        if route.tag == tag
    ]
    return _table(("Request", "What it does", "Roles"), rows)


def _roles(route: Route) -> str:
    if not route.roles:
        return "everybody, without a token"
    if len(route.roles) == 4:
        return "any"
    return ", ".join(sorted(route.roles))


def metrics() -> str:
    lines = [line for some in Metrics().happened() for line in some]
    lines += state(Seen(), 0)
    kinds = {}
    rows = []
    for line in lines:
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ", 3)
            kinds[name] = kind
    for line in lines:
        if line.startswith("# HELP "):
            _, _, name, meaning = line.split(" ", 3)
            rows.append((f"`{name}`", kinds[name], meaning))
    return _table(("Metric", "Kind", "Meaning"), rows)


def errors() -> str:
    answers = [entry for entry in CATALOGUE.values() if entry.status]
    own = [entry for entry in CATALOGUE.values() if not entry.status]
    parts = [
        "## Codes of answers",
        *(_error(entry) for entry in sorted(answers, key=lambda entry: entry.status)),
        "## Codes of failed attempts",
        "\n".join(_ABOUT_OWN),
        *(_error(entry) for entry in own),
    ]
    return "\n\n".join(parts)


def _error(entry: Entry) -> str:
    facts = [f"`{entry.id}`", f"type `{entry.type}`"]
    if entry.status:
        facts.insert(0, f"Status {entry.status}")
    facts.append("may be tried again" if entry.retryable else "trying again does not help")
    return f"### {entry.code}\n\n{', '.join(facts)}.\n\n{entry.meaning}\n\n{entry.hint}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text)
