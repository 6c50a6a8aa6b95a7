"""Keys of access tokens are fetched beside the loop, and a hostile client has them fetched seldom."""

import asyncio
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.runtime import StartError
from ottla.broker.server.token_keys import (
    BYTES_MAX,
    FILE_INTERVAL_MS,
    NAMES_MAX,
    SAME_NAME_PAUSE_MS,
    KeySetSource,
    TokenKeys,
    fetch_url,
)
from ottla.security.access_token import KeySetError
from tests.broker.virtual_cluster import Cluster
from tests.security.tokens import key_set, public_jwk

OLD, NEW = key_set(public_jwk("RSA")), key_set(public_jwk("EC"))
SOURCE = KeySetSource("https://issuer.example/keys", 3_600_000, 100, 10_000)


class Issuer:
    """Answers with what it has; with an error where that is none."""

    def __init__(self) -> None:
        self.content: bytes | None = OLD
        self.asked = 0

    def fetch(self, _: str) -> bytes:
        self.asked += 1
        if self.content is None:
            raise OSError("cannot be reached")
        return self.content


class World:
    """A broker in virtual time, for its runtime."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.issuer = Issuer()

    def run(self, story: Any, source: KeySetSource = SOURCE) -> None:
        async def whole() -> None:
            (node,) = await self.cluster.started(1)
            keys = TokenKeys(node.broker.runtime, source, self.issuer.fetch)
            await self.cluster.spawn(node, keys.load())
            self.cluster.loop.call_soon(keys.keep_fresh, context=node.context)
            await asyncio.sleep(0)
            await self.cluster.spawn(node, story(keys))
            await self.cluster.stop_all(node)

        self.cluster.run(whole())


@pytest.fixture
def world() -> Iterator[World]:
    cluster = Cluster()
    yield World(cluster)
    cluster.loop.close()


def test_keys_are_fetched_again_from_time_to_time(world: World) -> None:
    async def story(keys: TokenKeys) -> None:
        world.issuer.content = NEW
        await asyncio.sleep(SOURCE.refresh_ms / 1000 - 1)
        assert keys.find("RSA") is not None
        await asyncio.sleep(2)
        assert keys.find("EC") is not None
        assert keys.find("RSA") is None

    world.run(story)


def test_old_keys_count_until_new_ones_are_there(world: World) -> None:
    async def story(keys: TokenKeys) -> None:
        world.issuer.content = None
        await asyncio.sleep(SOURCE.refresh_ms / 1000 + 60)
        # 100 ms doubled up to 10 s.
        assert world.issuer.asked == 1 + 7 + 5
        assert keys.find("RSA") is not None
        world.issuer.content = b"broken"
        await asyncio.sleep(20)
        assert keys.find("RSA") is not None
        world.issuer.content = NEW
        await asyncio.sleep(11)
        assert keys.find("EC") is not None

    world.run(story)


def test_unknown_key_has_them_fetched_at_once(world: World) -> None:
    async def story(keys: TokenKeys) -> None:
        await asyncio.sleep(1)
        world.issuer.content = NEW
        assert keys.find("EC") is None
        await asyncio.sleep(1)
        assert keys.find("EC") is not None

    world.run(story)


def test_same_unknown_key_counts_once_a_minute(world: World) -> None:
    async def story(keys: TokenKeys) -> None:
        for _ in range(100):
            await asyncio.sleep(0.1)
            assert keys.find("mallory") is None
        assert world.issuer.asked == 2
        await asyncio.sleep(SAME_NAME_PAUSE_MS / 1000)
        keys.find("mallory")
        keys.find("x" * 1_001)
        await asyncio.sleep(1)
        assert world.issuer.asked == 3
        for n in range(10 * NAMES_MAX):
            keys.find(f"name-{n}")
        assert len(keys._missed) == NAMES_MAX

    world.run(story)


def test_unknown_keys_of_many_names_count_once_a_second(world: World) -> None:
    """Who has not logged in can name others without an end."""

    async def story(keys: TokenKeys) -> None:
        for n in range(200):
            keys.find(f"name-{n}")
            await asyncio.sleep(0.05)
        assert 10 <= world.issuer.asked <= 12

    world.run(story)


def test_file_is_looked_at_often(world: World) -> None:
    async def story(keys: TokenKeys) -> None:
        world.issuer.content = NEW
        await asyncio.sleep(FILE_INTERVAL_MS / 1000 + 1)
        assert keys.find("EC") is not None

    world.run(story, SOURCE._replace(url="file:///keys"))


def test_start_without_keys_is_refused(world: World) -> None:
    world.issuer.content = None

    with pytest.raises(StartError, match=r"jwks\.endpoint\.url=https://issuer\.example/keys: cannot be reached"):
        world.run(lambda keys: asyncio.sleep(0))


class Answers(http.server.BaseHTTPRequestHandler):
    """By path."""

    def do_GET(self) -> None:
        match self.path:
            case "/keys":
                self.answer(200, OLD)
            case "/large":
                self.answer(200, bytes(BYTES_MAX + 1))
            case "/elsewhere":
                self.send_response(302)
                self.send_header("Location", "/keys")
                self.end_headers()
            case "/garbage":
                self.wfile.write(b"hello\r\n")
            case "/cut":
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(b"ff\r\nhello")
            case _:
                self.answer(404, b"")

    def answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_keys_are_read_from_a_server_or_a_file(url: str, tmp_path: Path) -> None:
    path = tmp_path / "my keys.json"
    path.write_bytes(NEW)

    assert fetch_url(f"{url}/keys") == OLD
    assert fetch_url(path.as_uri()) == NEW


def test_answer_cannot_send_elsewhere_nor_fill_the_memory(url: str) -> None:
    with pytest.raises(OSError, match="the answer was 302"):
        fetch_url(f"{url}/elsewhere")
    with pytest.raises(OSError, match="the answer was 404"):
        fetch_url(f"{url}/other")
    with pytest.raises(KeySetError, match="more than 1,048,576 bytes"):
        fetch_url(f"{url}/large")


@pytest.mark.parametrize("path", ["garbage", "cut"])
def test_answer_that_is_no_http_fails_as_one_that_does_not_come(url: str, path: str) -> None:
    with pytest.raises(OSError, match="no HTTP that can be read"):
        fetch_url(f"{url}/{path}")
