"""`headgate token new`"""

from __future__ import annotations

import argparse
from typing import Any, get_args

from headgate.cli.asking import add_json
from headgate.server.settings import Role


def add(commands: Any) -> None:
    command = commands.add_parser("token", help="make tokens for those who may come in")
    kinds = command.add_subparsers(metavar="COMMAND", required=True)
    new = kinds.add_parser("new", help="make a token and the configuration that admits it")
    new.add_argument("--name", required=True, help="who will hold it")
    new.add_argument(
        "--role",
        required=True,
        action="append",
        choices=get_args(Role),
        help="what it allows; may be given several times",
    )
    add_json(new)
    new.set_defaults(run=run)


def run(asked: argparse.Namespace) -> None:
    import json
    from hashlib import sha256

    from headgate.ids import secret

    token = secret()
    roles = list(dict.fromkeys(asked.role))
    digest = sha256(token.encode()).hexdigest()
    if asked.json:
        entry = {"name": asked.name, "roles": roles, "sha256": digest}
        print(json.dumps({"token": token, "configuration": entry}))
        return
    # JSON's strings and arrays are TOML's.
    print(f"""\
Give this token to its holder; it is not shown again and cannot be found out:

{token}

Put this into the file that HEADGATE_CONFIG or --config names, and start the server anew:

[[tokens]]
name = {json.dumps(asked.name)}
roles = {json.dumps(roles)}
sha256 = "{digest}\"""")
