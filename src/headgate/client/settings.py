"""Where a client finds its server, and with what rights: arguments, then variables, then defaults."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from headgate.client.errors import ValidationError

URL: Final = "http://127.0.0.1:8080"


class Settings(Struct, frozen=True):
    """Read from `OJS_…`; of those that Headgate had first, `HEADGATE_URL` and `HEADGATE_TOKEN` win."""

    url: str = URL
    token: str | None = None
    queue: str = "default"
    concurrency: int = 10
    shutdown_s: float = 25.0
    log_level: str = "info"
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_ca_file: str | None = None


def read(variables: Mapping[str, str] | None = None) -> Settings:
    """Raises ValidationError, naming the variable."""
    found = os.environ if variables is None else variables

    def text(*names: str) -> str | None:
        return next((found[name] for name in names if found.get(name)), None)

    return Settings(
        url=text("HEADGATE_URL", "OJS_BACKEND_URL") or URL,
        token=text("HEADGATE_TOKEN", "OJS_AUTH_TOKEN"),
        queue=text("OJS_QUEUE") or "default",
        concurrency=int(_number("OJS_CONCURRENCY", text("OJS_CONCURRENCY"), 10, whole=True)),
        shutdown_s=_number("OJS_SHUTDOWN_TIMEOUT", text("OJS_SHUTDOWN_TIMEOUT"), 25.0),
        log_level=(text("OJS_LOG_LEVEL") or "info").lower(),
        tls_cert_file=text("OJS_TLS_CERT_FILE"),
        tls_key_file=text("OJS_TLS_KEY_FILE"),
        tls_ca_file=text("OJS_TLS_CA_FILE"),
    )


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """For the files that the settings name; None when they name none."""
    if not (settings.tls_cert_file or settings.tls_ca_file):
        return None
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca_file)
        if settings.tls_cert_file:
            context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file)
    except OSError as error:
        raise ValidationError(f"the TLS files cannot be used: {error}") from None
    return context


def _number(name: str, text: str | None, default: float, *, whole: bool = False) -> float:
    if text is None:
        return default
    try:
        value = float(int(text) if whole else float(text))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf") or (whole and value < 1):
        raise ValidationError(f"{name} must be a positive number, not {text!r}")
    return value
