"""What is special about etcd: it may be away, slow to say so, or one of several."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.cluster.etcd import EtcdStore
from ottla.cluster.etcd_wire import TransactionTooLarge, changes_of, transaction_request, transaction_result
from ottla.cluster.store import (
    ABSENT,
    Changes,
    Delete,
    Entry,
    Expect,
    Put,
    StoreError,
    TooLarge,
    Unavailable,
    parse_store_url,
)
from tests.cluster.etcd_server import EtcdServer
from tests.cluster.stores import Seen, answer, commit, committed, entries, read
from tests.ports import free_ports


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def late_server(tmp_path: Path) -> Iterator[EtcdServer]:
    """One that is not started yet."""
    server = EtcdServer(tmp_path)
    yield server
    server.kill()


async def test_an_etcd_that_is_not_there_is_unavailable_and_said_to_be() -> None:
    reported: list[tuple[bool, str]] = []
    store = EtcdStore(
        [("127.0.0.1", free_ports(1)[0])],
        timeout_ms=300,
        reachable=lambda reachable, why: reported.append((reachable, why)),
    )

    assert isinstance(await read(store), Unavailable)
    assert isinstance(await commit(store, Put("a", b"")), Unavailable)
    assert isinstance(await answer(lambda done: store.grant(2000, done)), Unavailable)
    assert isinstance(await answer(lambda done: store.keep_alive(1, done)), Unavailable)
    assert [reachable for reachable, _ in reported] == [False]
    store.close()
    await store.wait_closed()


async def test_a_dead_endpoint_is_passed_over(server: EtcdServer) -> None:
    store = EtcdStore([("127.0.0.1", free_ports(1)[0]), ("127.0.0.1", server.port)], namespace="/several/")
    await read(store)
    await committed(store, Put("a", b"1"))

    assert [entry.key for entry in await entries(store)] == ["a"]
    store.close()
    await store.wait_closed()


async def test_etcd_back_again_is_said_to_be(late_server: EtcdServer) -> None:
    reported: asyncio.Queue[bool] = asyncio.Queue()
    endpoints = [("127.0.0.1", late_server.port)]
    store = EtcdStore(endpoints, timeout_ms=20_000, reachable=lambda reachable, why: reported.put_nowait(reachable))
    reading = asyncio.ensure_future(read(store))
    assert await reported.get() is False

    late_server.start()
    await reading
    assert await reported.get() is True
    store.close()
    await store.wait_closed()


async def test_a_watch_on_an_endpoint_gone_silent_goes_on_elsewhere(server: EtcdServer) -> None:
    """As on a member that hangs: the connection stays, and nothing comes."""
    proxy = Silenceable(server.port)
    await proxy.start()
    store, seen = EtcdStore([("127.0.0.1", proxy.port), ("127.0.0.1", server.port)], namespace="/silent/"), Seen()
    store.watch("", (await read(store)).revision + 1, seen)
    first = await committed(store, Put("a", b"1"))
    await seen.first(1)

    proxy.silent = True
    await read(store)
    second = await committed(store, Put("a", b"2"))

    assert [event.revision for event in await seen.first(2)] == [first, second]
    store.close()
    await store.wait_closed()
    proxy.close()


async def test_a_callback_that_raises_keeps_no_other_from_being_called(server: EtcdServer) -> None:
    store, seen, reported = EtcdStore([("127.0.0.1", server.port)], namespace="/raises/"), Seen(), []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["exception"]))

    def deliver(event: object) -> None:
        seen(event)
        raise ValueError(event)

    store.watch("", (await read(store)).revision + 1, deliver)
    store.commit([], [Put("a", b"1")], deliver)
    await committed(store, Put("a", b"2"))
    await seen.first(3)
    assert len(reported) == 3
    store.close()
    await store.wait_closed()


async def test_after_closing_nothing_is_answered(server: EtcdServer) -> None:
    store, seen = EtcdStore([("127.0.0.1", server.port)], namespace="/closed/"), Seen()
    store.watch("", 1, seen)
    store.read("", seen)
    store.close()
    store.read("", seen)
    await store.wait_closed()
    assert seen.events == []


def test_urls_name_endpoints() -> None:
    assert parse_store_url("etcd://a:2379,[::1]:2380/") == ([("a", 2379), ("::1", 2380)], False)
    assert parse_store_url("etcds://a:2379") == ([("a", 2379)], True)


def test_a_url_with_a_password_is_refused_and_not_shown() -> None:
    with pytest.raises(StoreError, match=r"ottla\.metadata\.etcd\.password") as refused:
        parse_store_url("etcd://broker:a-secret-of-ours@a:2379")
    assert "a-secret-of-ours" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["etcd:a:1", "http://a:1", "etcd://", "etcd://a", "etcd://a:0", "etcd://a:70000", "etcd://a:x"]
)
def test_urls_that_name_none_are_refused(url: str) -> None:
    with pytest.raises(StoreError):
        parse_store_url(url)


def test_transactions_nest_where_etcd_would_find_them_too_long() -> None:
    request = transaction_request([Expect("a", 1)], [Put(str(index), b"") for index in range(3000)], "/")

    assert widest_branch(request) <= 128
    with pytest.raises(TransactionTooLarge):
        transaction_request([Expect(str(index), ABSENT) for index in range(129)], [Delete("a")], "/")


async def test_transaction_too_large_for_etcd_is_refused_unsent() -> None:
    store = EtcdStore([("127.0.0.1", 1)], timeout_ms=1)
    changes = [Put(f"partitions/t/{index}", bytes(1000)) for index in range(1600)]

    result = await answer(lambda done: store.commit([], changes, done))

    assert isinstance(result, TooLarge)
    assert "at most 1572864 in one transaction" in result.reason
    store.close()
    await store.wait_closed()


def widest_branch(request: dict) -> int:
    nested = [operation["request_txn"] for operation in request["success"] if "request_txn" in operation]
    width = max(len(request["success"]), len(request.get("compare", ())))
    return width + max((widest_branch(each) for each in nested), default=0)


def test_events_are_put_together_by_transaction() -> None:
    def event(key: str, revision: int, **fields: str) -> dict:
        return {"kv": {"key": key, "mod_revision": str(revision)}, **fields}

    result = {"events": [event("L2E=", 5), event("L2I=", 5, type="DELETE"), event("L2E=", 6)]}
    assert list(changes_of(result, "/")) == [
        Changes(5, (Entry("a", b"", 5),), ("b",)),
        Changes(6, (Entry("a", b"", 6),), ()),
    ]


def test_a_refusal_without_a_cause_is_not_believed() -> None:
    with pytest.raises(ValueError, match="all expectations"):
        transaction_result({}, [])


class Silenceable:
    """Forwards connections to a port, until it is to keep everything to itself."""

    def __init__(self, to: int) -> None:
        self.to = to
        self.port = 0
        self.silent = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self.to)
        for source, target in ((reader, inner_writer), (inner_reader, writer)):
            task = asyncio.create_task(self._forward(source, target))
            self._tasks.add(task)

    async def _forward(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                if not self.silent:
                    target.write(data)
        target.close()
