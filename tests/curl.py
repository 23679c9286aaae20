"""As much of curl as the documentation uses, for machines that have none, or an old one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener


def main() -> int:
    parser = argparse.ArgumentParser(prog="curl")
    parser.add_argument("-s", action="store_true")
    parser.add_argument("--show-error", action="store_true")
    parser.add_argument("--fail", action="store_true")
    parser.add_argument("-o")
    parser.add_argument("-X")
    parser.add_argument("-H", action="append", default=[])
    parser.add_argument("--json")
    parser.add_argument("url")
    asked = parser.parse_args()

    url = asked.url if "://" in asked.url else f"http://{asked.url}"
    request = Request(url, method=asked.X)
    if asked.json is not None:
        request.data = asked.json.encode()
        request.add_header("Content-Type", "application/json")
        request.add_header("Accept", "application/json")
    for header in asked.H:
        name, _, value = header.partition(":")
        request.add_header(name, value.strip())
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=30) as answer:
            body = answer.read()
    except HTTPError as refusal:
        body = refusal.read()
        refusal.close()
        if asked.fail:
            print(f"curl: the server answered {refusal.code}", file=sys.stderr)
            return 22
    if asked.o:
        Path(asked.o).write_bytes(body)
    else:
        sys.stdout.buffer.write(body)
    return 0


if __name__ == "__main__":
    sys.exit(main())
