"""The file with PLAIN's users changes while the broker runs (§59.7)."""

import asyncio
from pathlib import Path

import pytest

from ottla.broker.broker import Broker
from ottla.broker.server import sasl_listener
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.asking import Client
from tests.broker.wire import RecordingLog, until
from tests.clients.test_sasl import PASSWORD, USER, address, broker_with_sasl

REPLACED, NOT_REPLACED = "users replaced", "users are not replaced"


async def connected(broker: Broker) -> Client:
    host, _, port = address(broker).rpartition(":")
    return Client(*await asyncio.open_connection(host, int(port)))


async def logs_in(broker: Broker, user: str, password: str) -> bool:
    client = await connected(broker)
    await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = await client.ask(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()), 1)
    await client.close()
    return bool(answer.error_code == 0)


def said(broker: Broker, event: str) -> list[dict[str, str]]:
    log = broker.runtime.log
    assert isinstance(log, RecordingLog)
    return [fields for name, fields in log.events if name == event]


def write(path: Path, text: str, mode: int = 0o600) -> None:
    """As a tool does it that cares for readers."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.chmod(mode)
    new.replace(path)


async def test_a_changed_file_counts_at_the_next_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One has another password, one is new, one is gone; who is logged in stays."""
    monkeypatch.setattr(sasl_listener, "LOOK_EVERY_MS", 20)
    async with broker_with_sasl(tmp_path) as broker:
        stays = await connected(broker)
        await stays.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        await stays.ask(SaslAuthenticateRequest(auth_bytes=f"\0{USER}\0{PASSWORD}".encode()), 1)
        write(tmp_path / "users", f"{USER}:another\nbob:builder\n")
        await until(broker, lambda: bool(said(broker, REPLACED)))

        assert await logs_in(broker, USER, "another")
        assert await logs_in(broker, "bob", "builder")
        assert not await logs_in(broker, USER, PASSWORD)
        write(tmp_path / "users", "bob:builder\n")
        await until(broker, lambda: len(said(broker, REPLACED)) == 2)
        assert not await logs_in(broker, USER, "another")
        refused = await stays.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert refused.error_code == 34, "it is still served"
        await stays.close()
    assert said(broker, REPLACED)[0] == {"listener": "SASL", "users": 2}


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        ("alice\n", 0o600, "is not NAME:PASSWORD"),
        ("alice:another\n", 0o644, "can be read by others than its owner"),
        (None, 0o600, "cannot read"),
    ],
)
async def test_a_broken_file_leaves_the_users_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, mode: int, reason: str
) -> None:
    """It is logged once, without a password, and looked at again when it changes."""
    monkeypatch.setattr(sasl_listener, "LOOK_EVERY_MS", 20)
    async with broker_with_sasl(tmp_path) as broker:
        if text is None:
            (tmp_path / "users").unlink()
        else:
            write(tmp_path / "users", text, mode)
        await until(broker, lambda: bool(said(broker, NOT_REPLACED)))
        assert await logs_in(broker, USER, PASSWORD)
        write(tmp_path / "users", f"{USER}:mended\n")
        await until(broker, lambda: bool(said(broker, REPLACED)))
        assert await logs_in(broker, USER, "mended")
    (complaint,) = said(broker, NOT_REPLACED)
    assert reason in complaint["reason"]
    assert "another" not in complaint["reason"]


async def test_a_broker_that_stops_looks_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sasl_listener, "LOOK_EVERY_MS", 20)
    async with broker_with_sasl(tmp_path) as broker:
        users = broker.server.sasl["SASL"]._users
        assert users is not None
    assert users._timer is not None
    assert not users._timer.pending
