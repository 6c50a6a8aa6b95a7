"""A blocking connection to one broker, and what may come back on it."""

import select
import socket
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple

from ottla.protocol.client import SIZE_BYTES, WireClient, parse_response
from ottla.protocol.primitives import DecodeError
from ottla.protocol.schema import response_class_of

Address = tuple[str, int]
CLIENT_ID = "tester"
ASKED_WITHIN_S = 10


class Answer(NamedTuple):
    message: Any


class Closed(NamedTuple):
    """The broker has closed the connection instead of answering."""


class Silence(NamedTuple):
    """No answer has come, and the connection is open: the request is parked."""


class Unreadable(NamedTuple):
    """The answer does not follow the message definition."""

    reason: str


Outcome = Answer | Closed | Silence | Unreadable


class Connection:
    """One request at a time."""

    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection(address, timeout=ASKED_WITHIN_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, frame: bytes) -> None:
        # Where it is closed already, the outcome says so.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(frame)

    def receive(self, request_class: type[Any], version: int, within_s: float) -> Outcome:
        self._socket.settimeout(within_s)
        try:
            payload = self._frame()
        except TimeoutError:
            return Silence()
        except (EOFError, ConnectionResetError):
            return Closed()
        try:
            return Answer(parse_response(response_class_of(request_class), version, payload))
        except DecodeError as error:
            return Unreadable(str(error))

    def has_answer(self, within_s: float) -> bool:
        """Whether something can be read, the end of the connection included."""
        readable, _, _ = select.select([self._socket], [], [], within_s)
        return bool(readable)

    def ask(self, request: Any, version: int) -> Any:
        """The answer, or None where none comes."""
        self.send(WireClient(CLIENT_ID).send(request, version))
        outcome = self.receive(type(request), version, ASKED_WITHIN_S)
        return outcome.message if isinstance(outcome, Answer) else None

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _frame(self) -> bytes:
        deadline = time.monotonic() + ASKED_WITHIN_S
        size = int.from_bytes(self._exactly(SIZE_BYTES, deadline), "big")
        return self._exactly(size, deadline)

    def _exactly(self, count: int, deadline: float) -> bytes:
        data = b""
        while len(data) < count:
            if time.monotonic() > deadline:
                raise TimeoutError
            received = self._socket.recv(count - len(data))
            if not received:
                raise EOFError
            data += received
        return data
