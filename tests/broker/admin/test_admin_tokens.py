"""Tokens of the admin listener: which pages they open, and which files of them are refused (docs/operators.md §2.7)."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from ottla.broker.config.tls import LOOK_EVERY_MS
from ottla.broker.runtime import StartError
from ottla.broker.server.network import TcpNetwork
from tests.broker.admin.pages import Answer, get
from tests.broker.admin.test_admin_tls import Files, asked, broker_with

pytestmark = pytest.mark.usefixtures("roomy_disk")

METRICS, CLIENTS, HEALTH = "/metrics", "/api/v1/node/connections", "/health/ready"
SECRETS = {"metrics": "scrape-1f2e", "viewer": "look-77ab", "operator": "all-90cd"}


def line(role: str, secret: str, name: str = "") -> str:
    return f"{name or 'a-' + role} {role} {hashlib.sha256(secret.encode()).hexdigest()}\n"


def tokens_file(directory: Path, text: str | None = None) -> Path:
    path = directory / "admin-tokens"
    path.write_text("".join(line(*each) for each in SECRETS.items()) if text is None else text)
    path.chmod(0o600)
    return path


def config(path: Path, host: str = "127.0.0.1", **more: str) -> ServerConfig:
    return ServerConfig({"ottla.admin.listener": f"{host}:0", "ottla.admin.tokens.file": str(path), **more})


@asynccontextmanager
async def broker(directory: Path, host: str = "127.0.0.1") -> AsyncIterator[Broker]:
    async with broker_with(directory, config(tokens_file(directory), host)) as started:
        yield started


async def ask(broker: Broker, path: str, token: str | None = None, scheme: str = "Bearer") -> Answer:
    headers = () if token is None else (f"Authorization: {scheme} {token}",)
    return await get(TcpNetwork(), broker.admin_url.replace("0.0.0.0", "127.0.0.1"), path, *headers)


async def test_pages_open_by_role(tmp_path: Path) -> None:
    """On a loopback address too, and on others for viewers."""
    for host in ("127.0.0.1", "0.0.0.0"):
        (directory := tmp_path / host).mkdir()
        async with broker(directory, host) as served:
            found = {
                role: [(await ask(served, path, secret)).status for path in (HEALTH, METRICS, CLIENTS, "/nowhere")]
                for role, secret in SECRETS.items()
            }

        assert found == {
            "metrics": [200, 200, 403, 404],
            "viewer": [200, 200, 200, 404],
            "operator": [200, 200, 200, 404],
        }


async def test_without_a_known_token_health_alone_is_shown(tmp_path: Path) -> None:
    async with broker(tmp_path) as served:
        for token, scheme in ((None, ""), ("guessed", "Bearer"), ("", "Bearer"), (SECRETS["viewer"], "Basic")):
            statuses = [(await ask(served, path, token, scheme)).status for path in (HEALTH, METRICS, "/nowhere")]
            assert statuses == [200, 401, 401]
        refusal = await ask(served, METRICS)
        hashed = hashlib.sha256(SECRETS["viewer"].encode()).hexdigest()
        assert (await ask(served, METRICS, hashed)).status == 401

    assert refusal.headers["www-authenticate"] == 'Bearer realm="ottla"'
    assert b"ottla.admin.tokens.file" in refusal.body


async def test_scheme_is_read_in_any_case(tmp_path: Path) -> None:
    async with broker(tmp_path) as served:
        assert (await ask(served, CLIENTS, SECRETS["viewer"], "bearer")).status == 200


async def test_certificate_stands_for_a_token(tmp_path: Path) -> None:
    files = Files(tmp_path)
    ssl = {"keystore.location": files.server, "truststore.location": files.ca, "client.auth": "requested"}
    properties = {f"ottla.admin.ssl.{name}": str(value) for name, value in ssl.items()}
    async with broker_with(tmp_path, config(tokens_file(tmp_path), **properties)) as served:
        assert (await asked(served, CLIENTS, files.trusting(shows=True)))[0] == 200
        assert (await asked(served, METRICS, files.trusting()))[0] == 401
        assert (await asked(served, HEALTH, files.trusting()))[0] == 200


async def test_changed_file_is_read_and_a_broken_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.admin.tokens.LOOK_EVERY_MS", 0)
    async with broker(tmp_path) as served:

        async def after(text: str) -> list[int]:
            tokens_file(tmp_path, text)
            return [(await ask(served, METRICS, token)).status for token in (SECRETS["viewer"], "another")]

        assert await after(line("metrics", "another")) == [401, 200]
        assert await after("nonsense\n") == [401, 200]
        assert await after(line("viewer", SECRETS["viewer"])) == [200, 401]
        events = [event for event, _ in served.log.events]  # type: ignore[attr-defined]

    assert [each for each in events if "tokens" in each] == [
        "tokens of the admin listener replaced",
        "tokens of the admin listener are not replaced",
        "tokens of the admin listener replaced",
    ]


async def test_file_is_looked_at_every_ten_seconds(tmp_path: Path) -> None:
    async with broker(tmp_path) as served:
        tokens_file(tmp_path, line("metrics", "another"))

        assert LOOK_EVERY_MS == 10_000
        assert (await ask(served, METRICS, SECRETS["viewer"])).status == 200


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("prometheus metrics\n", "line 1"),
        ("# of Prometheus\n\nprometheus reader " + "0" * 64, "line 3"),
        ("prometheus metrics " + "0" * 63, "line 1"),
        ("prometheus metrics " + "g" * 64, "line 1"),
        (line("metrics", "one", "a") + line("viewer", "two", "a"), "line 2"),
        (line("metrics", "one", "a") + line("viewer", "one", "b"), "line 2"),
        ("# none\n", "there is no token"),
    ],
)
async def test_unusable_file_ends_the_start(tmp_path: Path, text: str, why: str) -> None:
    path = tokens_file(tmp_path, text)

    with pytest.raises(StartError) as refused:
        async with broker_with(tmp_path, config(path)):
            pass

    assert str(refused.value).startswith("ottla.admin.tokens.file: ")
    assert why in str(refused.value)
    assert "0" * 63 not in str(refused.value)


async def test_file_that_others_can_read_ends_the_start(tmp_path: Path) -> None:
    path = tokens_file(tmp_path)
    path.chmod(0o640)

    with pytest.raises(StartError, match="chmod 600"):
        async with broker_with(tmp_path, config(path)):
            pass
