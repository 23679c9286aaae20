"""`headgate serve`"""

from __future__ import annotations

import argparse
import os
from typing import Any, get_args

from headgate.cli.refusal import Refusal
from headgate.server.settings import Durability, LogFormat, LogLevel, Settings

_DEFAULTS = Settings()
_SWITCH = argparse.BooleanOptionalAction


def add(commands: Any) -> None:
    command = commands.add_parser(
        "serve",
        help="run the server",
        description="Run the server until it is told to stop.",
        epilog="Every option is also a variable (--log-level is HEADGATE_LOG_LEVEL) and a name in "
        "the configuration file; options win over variables, variables over the file.",
    )
    command.add_argument(
        "--config", metavar="FILE", help="a TOML file; HEADGATE_CONFIG names it too"
    )
    command.add_argument("--host", help=f"address to listen at ({_DEFAULTS.host})")
    command.add_argument(
        "--port", type=int, help=f"port to listen at, 0 for any free one ({_DEFAULTS.port})"
    )
    command.add_argument(
        "--store",
        metavar="URL",
        help=f"sqlite:///PATH, sqlite:////ABSOLUTE/PATH or memory: ({_DEFAULTS.store})",
    )
    command.add_argument(
        "--durability",
        choices=get_args(Durability),
        help=f"full survives a power cut, normal a killed process ({_DEFAULTS.durability})",
    )
    command.add_argument(
        "--log-format",
        choices=get_args(LogFormat),
        help=f"one JSON object a line, or text for people ({_DEFAULTS.log_format})",
    )
    command.add_argument(
        "--log-level",
        choices=get_args(LogLevel),
        help=f"the least severe records that are written ({_DEFAULTS.log_level})",
    )
    command.add_argument("--access-log", action=_SWITCH, help="log every request")
    command.add_argument(
        "--strict-queues", action=_SWITCH, help="refuse jobs for queues that nobody created"
    )
    command.add_argument(
        "--strict-tenants", action=_SWITCH, help="refuse producers and workers that name no tenant"
    )
    command.add_argument(
        "--test-hooks", action=_SWITCH, help="let clients wipe everything and direct workers"
    )
    command.add_argument(
        "--insecure", action=_SWITCH, help="listen where others can reach it without any token"
    )
    command.set_defaults(run=run)


def run(asked: argparse.Namespace) -> None:
    from headgate import runtime
    from headgate.engines.local.store import StoreUnusable
    from headgate.server import logs
    from headgate.server.configuration import SettingInvalid, load

    given = {name: value for name, value in vars(asked).items() if name not in {"run", "config"}}
    try:
        settings = load(given, os.environ, asked.config)
        logs.set_up(settings.log_format, settings.log_level)
        runtime.run(settings, lambda line: print(line, flush=True))
    except SettingInvalid as error:
        raise Refusal(str(error), 2) from None
    except (StoreUnusable, runtime.CannotListen) as error:
        raise Refusal(str(error)) from None
