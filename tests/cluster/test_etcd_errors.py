"""What an error of etcd's gateway says of a transaction: that it was not done, or nothing."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ottla.cluster.etcd import EtcdStore
from ottla.cluster.store import Committed, LeaseLost, Put, Unavailable
from tests.cluster.stores import commit, read


class Gateway:
    """Answers each request with the next of its answers."""

    def __init__(self, *answers: tuple[int, object]) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        (length,) = (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        await reader.readexactly(length)
        status, answer = self.answers[self.asked]
        self.asked += 1
        body = json.dumps(answer).encode()
        writer.write(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (status, len(body), body))
        await writer.drain()
        writer.close()


@asynccontextmanager
async def store_on(gateway: Gateway) -> AsyncIterator[EtcdStore]:
    server = await asyncio.start_server(gateway.serve, "127.0.0.1", 0)
    store = EtcdStore([("127.0.0.1", server.sockets[0].getsockname()[1])])
    try:
        yield store
    finally:
        store.close()
        await store.wait_closed()
        server.close()


def error(message: str, code: int) -> dict[str, object]:
    return {"error": message, "message": message, "code": code}


DONE = 200, {"header": {"revision": "7"}, "succeeded": True}


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (503, error("etcdserver: server stopped", 14)),
        (503, error("etcdserver: request timed out", 14)),
        (503, error("etcdserver: request timed out, possibly due to previous leader failure", 14)),
        (503, error("error reading from server: EOF", 14)),
        (503, error("transport is closing", 14)),
        (499, error("etcdserver: request cancelled", 1)),
        (500, error("etcdserver: something", 2)),
        (504, error("context deadline exceeded", 4)),
        (500, error("panic", 13)),
        (429, error("grpc: received message larger than max (5 vs. 4)", 8)),
        (500, {"error": "no code"}),
        (502, ["not", "etcd"]),
    ],
)
async def test_a_transaction_that_may_have_been_done_is_not_sent_again(status: int, answer: object) -> None:
    gateway = Gateway((status, answer), DONE)
    async with store_on(gateway) as store:
        result = await commit(store, Put("a", b""))

    assert isinstance(result, Unavailable)
    assert "may have been done" in result.reason
    assert gateway.asked == 1


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (503, error("etcdserver: no leader", 14)),
        (429, error("etcdserver: too many requests", 8)),
    ],
)
async def test_a_transaction_that_was_not_proposed_is_sent_again(status: int, answer: object) -> None:
    gateway = Gateway((status, answer), DONE)
    async with store_on(gateway) as store:
        assert await commit(store, Put("a", b"")) == Committed(7)


async def test_a_refusal_for_good_is_not_in_doubt() -> None:
    gateway = Gateway((400, error("etcdserver: duplicate key given in txn request", 3)))
    async with store_on(gateway) as store:
        result = await commit(store, Put("a", b""))

    assert isinstance(result, Unavailable)
    assert "may have been done" not in result.reason


async def test_a_lease_that_is_not_found_is_lost() -> None:
    gateway = Gateway((404, error("etcdserver: requested lease not found", 5)))
    async with store_on(gateway) as store:
        assert isinstance(await commit(store, Put("a", b"", 3)), LeaseLost)


async def test_a_read_is_asked_again_whatever_the_error_says() -> None:
    gateway = Gateway((503, error("etcdserver: server stopped", 14)), (200, {"header": {"revision": "7"}}))
    async with store_on(gateway) as store:
        assert (await read(store)).revision == 7


async def test_no_answer_names_the_address_and_the_reason() -> None:
    store = EtcdStore([("127.0.0.1", 1)], timeout_ms=50)
    try:
        result = await read(store, "k")
    finally:
        store.close()
        await store.wait_closed()

    assert isinstance(result, Unavailable)
    assert result.reason == "etcd at 127.0.0.1:1 did not answer within 0.05 s: connection refused"
