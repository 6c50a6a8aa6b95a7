"""A request to a control address, from another process: `ottla control`, and the handle of `ottla.testing.remote`."""

import json
import socket
from http.client import HTTPConnection
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from ottla.protocol.address import parse_address

UNIX: Final = "unix:"
HTTP: Final = "http://"
# A wait takes a minute at most.
ANSWER_WITHIN_S: Final = 120


class ControlAnswer(NamedTuple):
    status: int
    document: Any
    """Of JSON, or a list where it is lines of JSON."""


def ask_control(url: str, token: str | None, method: str, path: str, body: Any = None) -> ControlAnswer:
    """Opens a connection for it. Raises OSError, HTTPException, and ValueError where the URL is none of a control
    address, or the answer is no JSON."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    if method != "GET":
        headers["Content-Type"] = "application/json"
    connection = connection_to(url)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read().decode("utf-8")
    finally:
        connection.close()
    if answer.getheader("Content-Type", "").endswith("x-ndjson"):
        return ControlAnswer(answer.status, [json.loads(line) for line in text.splitlines()])
    try:
        return ControlAnswer(answer.status, json.loads(text))
    except ValueError:
        raise ValueError(f"{url} is no control of a broker: its answer is no JSON") from None


def part(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="")


def connection_to(url: str) -> HTTPConnection:
    """Raises ValueError."""
    if url.startswith(UNIX):
        return _UnixConnection(url.removeprefix(UNIX))
    try:
        host, port = parse_address(url.removeprefix(HTTP).rstrip("/"))
    except ValueError:
        raise ValueError(f"{url} is neither {HTTP}HOST:PORT nor {UNIX}PATH") from None
    return HTTPConnection(host, port, timeout=ANSWER_WITHIN_S)


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=ANSWER_WITHIN_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(ANSWER_WITHIN_S)
        self.sock.connect(self._path)
