"""Asking brokers in testing mode over HTTP, for `ottla control` (docs/control.md)."""

import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from ottla.cli.failures import ClientError, NoAnswer
from ottla.testing.control.client import connection_to

URL_VARIABLE: Final = "OTTLA_CONTROL_URL"
TOKEN_VARIABLE: Final = "OTTLA_CONTROL_TOKEN"
PIECE_BYTES: Final = 1 << 16


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
        try:
            return connection_to(self.url)
        except ValueError as error:
            raise ClientError(str(error)) from None

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer, of JSON, or a list where it is lines of JSON. Raises ControlRefused, NoAnswer, ClientError."""
        with self._answered(method, path, body) as answer:
            text = answer.read().decode("utf-8")
        if answer.getheader("Content-Type", "").endswith("x-ndjson"):
            return [json.loads(line) for line in text.splitlines()]
        return self._document(answer, text)

    def fetch(self, path: str, file: Path) -> int:
        """What is answered to a GET, into a file for its owner alone; gives its bytes. A file that is there is written
        over when all has come. Raises ControlRefused, NoAnswer, ClientError."""
        with self._answered("GET", path) as answer:
            if answer.status >= 400:
                self._document(answer, answer.read().decode("utf-8"))
            expected = int(answer.getheader("Content-Length", "0"))
            beside = file.with_name(f".{file.name}.{os.getpid()}")
            try:
                size = 0
                with open(beside, "wb", opener=_open_privately) as out:
                    while piece := self._read(answer):
                        size += out.write(piece)
                if size != expected:
                    raise NoAnswer(f"{self.url} has sent {size} bytes of {expected}")
                beside.replace(file)
            except OSError as error:
                raise ClientError(f"cannot write {file}: {error.strerror or error}") from None
            finally:
                beside.unlink(missing_ok=True)
        return size

    @contextmanager
    def _answered(self, method: str, path: str, body: Any = None) -> Generator[HTTPResponse]:
        """Raises NoAnswer, ClientError."""
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        if method != "GET":
            headers["Content-Type"] = "application/json"
        connection = self.connection()
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            yield connection.getresponse()
        except (OSError, HTTPException) as error:
            raise NoAnswer(f"{self.url} does not answer: {error}") from None
        finally:
            connection.close()

    def _read(self, answer: HTTPResponse) -> bytes:
        """Raises NoAnswer."""
        try:
            return answer.read(PIECE_BYTES)
        except (OSError, HTTPException) as error:
            raise NoAnswer(f"{self.url} does not answer any more: {error}") from None

    def _document(self, answer: HTTPResponse, text: str) -> Any:
        """Raises ControlRefused, ClientError."""
        try:
            document = json.loads(text)
        except ValueError:
            raise ClientError(f"{self.url} is no control of a broker: its answer is no JSON") from None
        if answer.status >= 400:
            raise ControlRefused(answer.status, document)
        return document


def _open_privately(path: str, flags: int) -> int:
    """Records of users are for their owner's eyes."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
