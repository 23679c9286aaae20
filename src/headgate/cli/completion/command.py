"""`headgate completion`"""

from __future__ import annotations

import argparse
from typing import Any


def add(commands: Any) -> None:
    command = commands.add_parser(
        "completion",
        help="print a script that lets a shell complete commands and options",
        epilog='For bash: eval "$(headgate completion bash)" in ~/.bashrc. For zsh: the same with zsh '
        "in ~/.zshrc, after compinit. For fish: headgate completion fish > "
        "~/.config/fish/completions/headgate.fish.",
    )
    command.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    command.set_defaults(run=run)


def run(asked: argparse.Namespace) -> None:
    from headgate.cli.completion import bash, fish, tree, zsh
    from headgate.cli.main import parser

    script = {"bash": bash.script, "zsh": zsh.script, "fish": fish.script}[asked.shell]
    print(script(list(tree.commands(parser()))))
