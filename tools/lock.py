"""Writes the lock files, those of the benchmark's peers too: names, versions and hashes for every supported Python, and nothing else.

No registry address and no path of this machine may end up in them: an install asks the registry
that the installing machine is configured for, and the hashes guarantee the same files.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PEERS = Path("bench/peers/locks")
COMPILE = (
    sys.executable,
    *("-m", "uv", "pip", "compile", "--quiet", "--upgrade", "--universal"),
    *("--python-version", "3.11", "--generate-hashes", "--no-header", "--no-annotate"),
    *("--no-emit-index-url", "--no-emit-find-links", "--no-config"),
)


def main() -> None:
    lock("requirements.lock", "pyproject.toml", "--group", "build")
    # The developers' lock holds the very versions that are served.
    lock(
        "requirements-dev.lock",
        *("pyproject.toml", "--group", "dev", "--constraint", "requirements.lock"),
    )
    for wanted in sorted(PEERS.glob("*.in")):
        lock(str(wanted.with_suffix(".txt")), str(wanted))


def lock(path: str, *choice: str) -> None:
    """Replaces `path`, or leaves it as it was when its new text would hold an address."""
    made = subprocess.run([*COMPILE, *choice], check=True, capture_output=True, text=True)
    if "://" in made.stdout:
        raise SystemExit(f"{path}: not written, because it would record an address")
    Path(path).write_text(made.stdout, encoding="utf-8")


if __name__ == "__main__":
    main()
