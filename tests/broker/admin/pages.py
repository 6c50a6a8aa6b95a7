"""Asking the admin listener for a page, on any network."""

import asyncio
import json
from typing import Any, NamedTuple

from ottla.broker.server.network import Network


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def failing(self) -> list[str]:
        """The names of the checks that are not ok."""
        return [check["name"] for check in self.json["checks"] if not check["ok"]]


class RawClient(asyncio.Protocol):
    """Sends bytes and keeps what comes back."""

    def __init__(self) -> None:
        self.received = b""
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changed: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def answer(self) -> Answer:
        """The next one; waits for it."""
        while (found := _parsed(self.received)) is None:
            assert not self.closed.done(), f"closed after {self.received!r}"
            self._changed = asyncio.get_running_loop().create_future()
            await self._changed
        answer, length = found
        self.received = self.received[length:]
        return answer

    async def get(self, target: str, *headers: str, method: str = "GET", host: str = "localhost") -> Answer:
        lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *headers, "", ""]
        self.transport.write("\r\n".join(lines).encode())
        return await self.answer()


async def connect(network: Network, url: str) -> RawClient:
    host, _, port = url.removeprefix("http://").rpartition(":")
    client = RawClient()
    await network.connect(lambda: client, host, int(port))  # type: ignore[arg-type,return-value]
    return client


async def get(network: Network, url: str, target: str, *headers: str) -> Answer:
    client = await connect(network, url)
    answer = await client.get(target, *headers)
    client.transport.close()
    return answer


def _parsed(data: bytes) -> tuple[Answer, int] | None:
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        return None
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    length = int(headers.get("content-length", "0"))
    if len(body) < length:
        return None
    return Answer(int(status.split()[1]), headers, body[:length]), len(head) + 4 + length
