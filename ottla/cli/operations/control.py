"""Asking brokers in testing mode over HTTP, for `ottla control` (docs/control.md)."""

import json
import os
import socket
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final, NamedTuple, cast
from urllib.parse import quote

from ottla.cli.failures import ClientError, NoAnswer
from ottla.protocol.address import parse_address

URL_VARIABLE: Final = "OTTLA_CONTROL_URL"
TOKEN_VARIABLE: Final = "OTTLA_CONTROL_TOKEN"
UNIX: Final = "unix:"
HTTP: Final = "http://"
# A wait takes a minute at most.
ANSWER_WITHIN_S: Final = 120


class ControlRefused(ClientError):
    """The answer is a problem document."""

    def __init__(self, status: int, document: Mapping[str, Any]) -> None:
        self.status = status
        self.document = document
        # Of a wait that is over, the text has all that is known.
        super().__init__(str(document.get("text") or document.get("detail") or f"the answer is {status}"))


class ControlAddress(NamedTuple):
    url: str
    token: str | None

    @classmethod
    def found(cls, url: str | None, file: Path | None) -> "ControlAddress":
        """What the options say, else the environment. Raises ClientError."""
        token = os.environ.get(TOKEN_VARIABLE)
        if file is not None:
            try:
                given = cast("dict[str, Any]", json.loads(file.read_text(encoding="utf-8")))
                url, token = url or str(given["url"]), given.get("token") or token
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise ClientError(f"{file} is no file of `ottla serve --control-file`: {error}") from None
        url = url or os.environ.get(URL_VARIABLE)
        if not url:
            raise ClientError(f"where is the control of the broker? Give --url or --file, or set {URL_VARIABLE}")
        return cls(url, token)

    def connection(self) -> HTTPConnection:
        """Raises ClientError."""
        if self.url.startswith(UNIX):
            return _UnixConnection(self.url.removeprefix(UNIX))
        try:
            host, port = parse_address(self.url.removeprefix(HTTP).rstrip("/"))
        except ValueError:
            raise ClientError(f"{self.url} is neither {HTTP}HOST:PORT nor {UNIX}PATH") from None
        return HTTPConnection(host, port, timeout=ANSWER_WITHIN_S)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer, of JSON, or a list where it is lines of JSON. Raises ControlRefused, NoAnswer, ClientError."""
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        if method != "GET":
            headers["Content-Type"] = "application/json"
        connection = self.connection()
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read().decode("utf-8")
        except (OSError, HTTPException) as error:
            raise NoAnswer(f"{self.url} does not answer: {error}") from None
        finally:
            connection.close()
        if answer.getheader("Content-Type", "").endswith("x-ndjson"):
            return [json.loads(line) for line in text.splitlines()]
        try:
            document = json.loads(text)
        except ValueError:
            raise ClientError(f"{self.url} is no control of a broker: its answer is no JSON") from None
        if answer.status >= 400:
            raise ControlRefused(answer.status, document)
        return document


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=ANSWER_WITHIN_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(ANSWER_WITHIN_S)
        self.sock.connect(self._path)


def part(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="")
