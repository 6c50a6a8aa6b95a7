"""Who may control a broker: clients that have the token, and no page of a browser.

A page that a developer has open can reach loopback addresses. It cannot send another `Host` than the name that it
asked for, and not leave out its `Origin`; and a body of `application/json` it may send only after a question (CORS)
that is never answered with yes. So `Host` must be a loopback name, an address, or a name that was given; a request
with `Origin` is refused; whatever changes something needs JSON.
"""

import hmac
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ottla.broker.admin.http import HttpRequest
from ottla.broker.config.options import ConfigError
from ottla.protocol.address import Address, host_of_header, is_host_of_no_site, parse_address
from ottla.testing.control.problems import Problem

TOKEN_VARIABLE: Final = "OTTLA_CONTROL_TOKEN"
URL_VARIABLE: Final = "OTTLA_CONTROL_URL"
TOKEN_BYTES: Final = 16
TOKEN_LENGTH_MIN: Final = 22
"""128 bits take 32 hexadecimal digits, or 22 characters of base64."""
UNIX: Final = "unix:"
JSON: Final = "application/json"
WITH_BODY: Final = ("POST", "PUT", "PATCH")


class ControlAccess(NamedTuple):
    token: str | None
    """None: every client that reaches the address may, which is for loopback and UNIX sockets."""
    hosts: frozenset[str] = frozenset()
    """Further names that clients may ask for, in lower case."""
    is_unix: bool = False

    def check(self, request: HttpRequest) -> None:
        """Raises Problem."""
        if not self.is_unix and not self._knows(request.headers.get("host", "")):
            raise Problem(403, "foreign-host", "Host is no loopback name, no address, and none of --control-host")
        if "origin" in request.headers:
            raise Problem(403, "foreign-origin", "a request with Origin is that of a page in a browser")
        if self.token is not None and not self._is_token(request.headers.get("authorization", "")):
            raise Problem(
                401,
                "wrong-token",
                "Authorization: Bearer and the token are needed",
                headers=(("WWW-Authenticate", "Bearer"),),
            )
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if request.method in WITH_BODY and kind != JSON:
            raise Problem(415, "not-json", f"{request.method} needs Content-Type: {JSON}")

    def _is_token(self, given: str) -> bool:
        assert self.token is not None, "it was asked for"
        scheme, _, text = given.partition(" ")
        is_same = hmac.compare_digest(text.strip().encode("latin-1"), self.token.encode())
        return is_same and scheme.lower() == "bearer"

    def _knows(self, header: str) -> bool:
        """Whether a Host header names this machine in a way that no page could have chosen."""
        host = host_of_header(header)
        return host in self.hosts or is_host_of_no_site(host)


def parse_control_address(text: str) -> "Address | Path":
    """HOST:PORT, or `unix:PATH`. Raises ValueError with a sentence."""
    if not text.startswith(UNIX):
        return parse_address(text, port_min=0)
    path = text.removeprefix(UNIX)
    if not path:
        raise ValueError(f"{text!r} names no path")
    return Path(path)


def new_token() -> str:
    return secrets.token_hex(TOKEN_BYTES)


def token_of(environment: Mapping[str, str]) -> str | None:
    """The one that is given; None without. Raises ConfigError."""
    token = environment.get(TOKEN_VARIABLE)
    if token is None:
        return None
    if len(token) < TOKEN_LENGTH_MIN or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            f"{TOKEN_VARIABLE}: expected 128 bits, that is {TOKEN_LENGTH_MIN} characters or more; "
            "`openssl rand -hex 16` makes some"
        )
    return token


def write_control_file(path: Path, url: str, token: str | None, bootstrap: str) -> None:
    """For the owner's eyes only, whole or not at all. Raises OSError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"url": url, "token": token, "bootstrap": bootstrap}, file)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
