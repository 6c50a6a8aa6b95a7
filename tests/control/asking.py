"""Asking the control address of brokers, and opening one; and a client of theirs that produces."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any, NamedTuple

from confluent_kafka import Producer

from ottla.protocol.address import Address
from ottla.testing.control.access import ControlAccess
from ottla.testing.control.listener import ControlListener
from ottla.testing.testbed import Testbed

TOKEN = "0123456789abcdef0123456789abcdef"
JSON = "application/json"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.body.splitlines()]

    @property
    def problem(self) -> tuple[int, str]:
        """Its status and the last word of its type."""
        assert self.headers["content-type"] == "application/problem+json", self
        assert self.json["status"] == self.status
        return self.status, self.json["type"].rpartition(":")[2]


class Asker:
    """A connection for each question."""

    def __init__(self, url: str, token: str | None = TOKEN) -> None:
        host, _, port = url.removeprefix("http://").rpartition(":")
        self.host, self.port, self.token = host, int(port), token

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """`body`: bytes, a list of bytes for chunks, or what JSON is made of."""
        given = {"Authorization": f"Bearer {self.token}"} if self.token is not None else {}
        is_chunked = isinstance(body, list) and body and isinstance(body[0], bytes)
        if body is not None and not is_chunked and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if method != "GET":
            given["Content-Type"] = JSON
        if is_chunked:
            given["Transfer-Encoding"] = "chunked"
        connection = HTTPConnection(self.host, self.port, timeout=30)
        try:
            connection.request(method, path, body, {**given, **headers}, encode_chunked=is_chunked)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status == 200, answer
        return answer.json

    def post(self, path: str, body: Any = None) -> Any:
        answer = self.ask("POST", path, body)
        assert answer.status in (200, 201), answer
        return answer.json

    def begin(self, path: str, body: Any) -> socket.socket:
        """Sends a POST and does not wait for the answer."""
        text = json.dumps(body)
        asking = socket.create_connection((self.host, self.port), timeout=30)
        asking.sendall(
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n"
            f"Content-Type: {JSON}\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()
        )
        return asking


@contextmanager
def opened_control(bed: Testbed, access: ControlAccess | None = None) -> Iterator[ControlListener]:
    """Of brokers that run, on a free port."""
    control = bed.run(_opened(bed, access or ControlAccess(TOKEN)))
    try:
        yield control
    finally:
        bed.run(control.close())


async def _opened(bed: Testbed, access: ControlAccess) -> ControlListener:
    control = ControlListener(bed, access)
    await control.open(Address("127.0.0.1", 0))
    return control


def produce(bed: Testbed, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": bed.hosted.bootstrap, "client.id": "billing", "retry.backoff.ms": 10})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(20) == 0


def producing(bed: Testbed, topic: str, *values: bytes) -> threading.Thread:
    """In a thread of its own."""
    thread = threading.Thread(target=produce, args=(bed, topic, *values))
    thread.start()
    return thread
