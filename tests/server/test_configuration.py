from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.server.configuration import SettingInvalid, load, reachable
from headgate.server.settings import Limits, Settings, Token

HASH = "0" * 64


def from_file(tmp_path: Path, text: str, **flags: Any) -> Settings:
    path = tmp_path / "headgate.toml"
    path.write_text(text, encoding="utf-8")
    return load(flags, {}, str(path))


def refusal(*args: Any) -> str:
    with pytest.raises(SettingInvalid) as refused:
        load(*args)
    message = str(refused.value)
    assert "\n" not in message
    return message


def test_nothing_given_means_the_defaults() -> None:
    assert load({"port": None}, {}) == Settings()


def test_flags_win_over_variables_over_the_file_over_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('host = "127.0.0.2"\nport = 1\nlog_level = "error"\nstore = "memory:"\n')
    variables = {"HEADGATE_CONFIG": str(path), "HEADGATE_PORT": "2", "HEADGATE_LOG_LEVEL": "debug"}
    found = load({"port": 3, "log_level": None}, variables)
    assert (found.port, found.log_level, found.store) == (3, "debug", "memory:")
    assert (found.host, found.durability) == ("127.0.0.2", "full")


def test_the_flag_names_the_file_before_the_variable(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("port = 1\n")
    assert load({}, {"HEADGATE_CONFIG": "/nowhere"}, str(path)).port == 1


def test_a_file_sets_everything(tmp_path: Path) -> None:
    found = from_file(
        tmp_path,
        f"""
        host = "0.0.0.0"
        shutdown_s = 5
        strict_queues = true
        [limits]
        body_bytes = 1000
        header_timeout_s = 1.5
        [[tokens]]
        name = "web"
        roles = ["producer", "operator"]
        sha256 = "{HASH}"
        """,
    )
    assert (found.shutdown_s, found.strict_queues) == (5.0, True)
    assert found.limits == Limits(body_bytes=1_000, header_timeout_s=1.5)
    assert found.tokens == (Token("web", ("producer", "operator"), HASH),)


UNSPLIT = ("tokens", "limits", "cors_origins")
"""Settings of many values, which only the file can give."""


def test_what_is_many_values_comes_from_the_file_alone(tmp_path: Path) -> None:
    for name in UNSPLIT:
        with pytest.raises(SettingInvalid, match="only the configuration file can give it"):
            load({}, {f"HEADGATE_{name.upper()}": "x"})
    found = from_file(tmp_path, 'cors_origins = ["https://ops.example.com"]')
    assert found.cors_origins == ("https://ops.example.com",)
    for wrong in ('"*"', '"ops.example.com"', "7"):
        with pytest.raises(SettingInvalid, match=r"^cors_origins"):
            from_file(tmp_path, f"cors_origins = [{wrong}]")


def test_every_setting_has_a_variable() -> None:
    texts = {"str": "x", "int": "7", "float": "0.5", "bool": "true"}
    for struct, prefix in ((Settings, "HEADGATE_"), (Limits, "HEADGATE_LIMITS_")):
        for name, default in msgspec.structs.asdict(struct()).items():
            if name in {*UNSPLIT, "durability", "log_format", "log_level", "host"}:
                continue
            found: Any = load({}, {f"{prefix}{name.upper()}": texts[type(default).__name__]})
            found = found.limits if struct is Limits else found
            assert getattr(found, name) != default, name
            assert type(getattr(found, name)) is type(default)


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("1", True), ("yes", True), ("OFF", False), ("0", False)]
)
def test_booleans_are_written_in_many_ways(text: str, value: bool) -> None:
    assert load({}, {"HEADGATE_TEST_HOOKS": text}).test_hooks is value


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"HEADGATE_PORT": "x"}, "port: must be an integer, not 'x' (from HEADGATE_PORT)"),
        ({"HEADGATE_PORT": "70000"},
         "port: must be an integer <= 65535, not '70000' (from HEADGATE_PORT)"),
        ({"HEADGATE_DURABILITY": "none"},
         "durability: must be one of full, normal, not 'none' (from HEADGATE_DURABILITY)"),
        ({"HEADGATE_ACCESS_LOG": "maybe"},
         "access_log: must be true or false, not 'maybe' (from HEADGATE_ACCESS_LOG)"),
        ({"HEADGATE_LIMITS_KEYS": "0"},
         "limits.keys: must be an integer >= 1, not '0' (from HEADGATE_LIMITS_KEYS)"),
        ({"HEADGATE_CONFIG": "/nowhere/c.toml"},
         "config: /nowhere/c.toml cannot be read: No such file or directory"),
    ],
)  # fmt: skip
def test_a_bad_variable_is_named(variables: dict[str, str], message: str) -> None:
    assert refusal({}, variables) == message


@pytest.mark.parametrize("number", ["2147483648", "9223372036854775808", "1e300", "inf"])
def test_no_number_is_larger_than_a_server_can_work_with(number: str) -> None:
    numbers = {
        variable: default
        for variable, default in _variables_and_defaults()
        if type(default) in {int, float}
    }
    assert len(numbers) > 20
    for variable in numbers:
        message = refusal({}, {variable: number})
        name = variable.removeprefix("HEADGATE_").lower().replace("limits_", "limits.")
        assert message.startswith(f"{name}: "), message
        assert message.endswith(f", not {number!r} (from {variable})")


def _variables_and_defaults() -> Iterator[tuple[str, Any]]:
    for owner, prefix in ((Settings(), "HEADGATE_"), (Limits(), "HEADGATE_LIMITS_")):
        for name in owner.__struct_fields__:
            yield f"{prefix}{name.upper()}", getattr(owner, name)


@pytest.mark.parametrize(
    "variable",
    ["HEADGATE_PROT", "HEADGATE_LIMITS_BODY", "HEADGATE_LIMITS", "HEADGATE_TOKENS", "HEADGATE_",
     "HEADGATE_port"],
)  # fmt: skip
def test_a_variable_that_is_no_setting_is_named(variable: str) -> None:
    assert refusal({}, {"HEADGATE_PORT": "1", variable: "1"}).startswith(f"{variable}: ")
    assert load({}, {"HEADGATES": "1", "PORT": "1"}) == Settings()


def test_a_bad_flag_is_named() -> None:
    assert refusal({"log_level": "loud"}, {}) == (
        "log_level: must be one of debug, error, info, warning, not 'loud' (from --log-level)"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot = 1", "prot: there is no such setting (in FILE)"),
        ("[limits]\nbody = 1", "limits.body: there is no such setting (in FILE)"),
        ('port = "1"', "port: must be an integer, not '1' (from FILE)"),
        ("limits = 3", "limits: must be an object (from FILE)"),
        ("[[tokens]]\nname = 'a'", "tokens[0]: Object missing required field `roles` (from FILE)"),
        (
            f"[[tokens]]\nname='a'\nroles=['boss']\nsha256='{HASH}'",
            "tokens[0].roles[0]: must be one of admin, operator, producer, worker (from FILE)",
        ),
        (
            "[[tokens]]\nname='a'\nroles=['admin']\nsha256='secret'",
            "tokens[0].sha256: must be a string matching regex '^[0-9a-f]{64}$' (from FILE)",
        ),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    assert refusal({}, {}, str(path)) == message.replace("FILE", str(path))


def test_a_file_that_is_not_toml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(b"port = \xff")
    assert refusal({}, {}, str(path)).startswith(f"config: {path} is not TOML: ")
    path.write_text("port = = 1")
    assert refusal({}, {}, str(path)).startswith(f"config: {path} is not TOML: ")


def test_two_holders_of_one_token_are_refused(tmp_path: Path) -> None:
    token = f"[[tokens]]\nname='a'\nroles=['admin']\nsha256='{HASH}'\n"
    with pytest.raises(SettingInvalid, match="same sha256"):
        from_file(tmp_path, token * 2)


def test_others_may_only_come_in_with_tokens_or_on_purpose(tmp_path: Path) -> None:
    message = refusal({"host": "0.0.0.0"}, {})
    assert message.startswith("host: others can reach 0.0.0.0 and there are no tokens")
    assert load({"host": "0.0.0.0", "insecure": True}, {}).host == "0.0.0.0"
    token = f"[[tokens]]\nname='a'\nroles=['admin']\nsha256='{HASH}'\n"
    assert from_file(tmp_path, token, host="0.0.0.0").host == "0.0.0.0"


@pytest.mark.parametrize(
    ("host", "others"),
    [("127.0.0.1", False), ("127.8.9.1", False), ("::1", False), ("localhost", False),
     ("0.0.0.0", True), ("::", True), ("10.0.0.1", True), ("example.org", True)],
)  # fmt: skip
def test_who_can_reach_an_address(host: str, others: bool) -> None:
    assert reachable(host) is others


def test_variables_of_clients_are_none_of_the_servers_business() -> None:
    found = load({}, {"HEADGATE_URL": "http://elsewhere", "HEADGATE_TOKEN": "t"})
    assert found == Settings()
