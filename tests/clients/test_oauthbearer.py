"""Clients of four kinds log in by OAUTHBEARER with tokens that are signed with a key of a file, which changes."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AsyncTokenProvider
from kafka.net.sasl.oauth import AbstractTokenProvider

from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from tests.broker.wire import RecordingLog
from tests.java_tools import run_tool
from tests.security.tokens import AUDIENCE, ISSUER, claims, key_set, public_jwk, token

WAIT_S = 20
LIFETIME_S = 300
# librdkafka gets another token after four fifths of it, and logs in again after nine tenths.
SHORT_S = 8
RENEWED_WITHIN_S = 60
TOPICS = "org.apache.kafka.tools.TopicCommand"


def fresh(**changed: Any) -> dict[str, Any]:
    now_s = int(time.time())
    return claims(**{"iat": now_s, "exp": now_s + LIFETIME_S} | changed)


@asynccontextmanager
async def broker_with_tokens(directory: Path, *keys: dict[str, Any], **settings: str) -> AsyncIterator[Broker]:
    path = directory / "keys.json"
    path.write_bytes(key_set(*keys))
    static = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": path.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    } | {name.replace("_", "."): value for name, value in settings.items()}
    broker = Broker(ServerConfig(static), data_dir=directory / "data", log=RecordingLog())
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


def address(broker: Broker) -> str:
    return next(each.address for each in broker.listeners.endpoints if each.name == "SASL")


class Tokens(AbstractTokenProvider):
    def __init__(self, text: str) -> None:
        self._text = text

    def token(self) -> str:
        return self._text


class AsyncTokens(AsyncTokenProvider):
    def __init__(self, text: str) -> None:
        self._text = text

    async def token(self) -> str:
        return self._text


COMMON = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}


def of_librdkafka(bootstrap: str, text: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (text, time.time() + LIFETIME_S),
    }


def by_confluent(bootstrap: str, text: str) -> None:
    producer = confluent_kafka.Producer(of_librdkafka(bootstrap, text))
    producer.produce("t", b"x")
    assert producer.flush(WAIT_S) == 0


def by_kafka_python(bootstrap: str, text: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, sasl_oauth_token_provider=Tokens(text), **COMMON)
    assert producer.send("t", b"x").get(WAIT_S).offset == 0
    producer.close()


def of_aiokafka(bootstrap: str, text: str) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=bootstrap, sasl_oauth_token_provider=AsyncTokens(text), **COMMON)


@pytest.mark.parametrize("client", [by_confluent, by_kafka_python])
async def test_client_logs_in_with_a_token(tmp_path: Path, client: Callable[[str, str], None]) -> None:
    async with broker_with_tokens(tmp_path, public_jwk("RSA")) as broker:
        await asyncio.to_thread(client, address(broker), token(fresh()))

        assert broker.server.sasl["SASL"].ended.keys() == {("login", "OAUTHBEARER", "success")}


async def test_aiokafka_logs_in_with_a_token_of_another_kind(tmp_path: Path) -> None:
    text = token(fresh(), kind="EC", algorithm="ES256")
    async with (
        broker_with_tokens(tmp_path, public_jwk("RSA"), public_jwk("EC")) as broker,
        of_aiokafka(address(broker), text) as producer,
    ):
        await producer.send_and_wait("t", b"x")


@pytest.mark.java
@pytest.mark.timeout(300)
async def test_kafkas_tool_logs_in_with_a_token(tmp_path: Path) -> None:
    held = tmp_path / "token"
    held.write_text(token(fresh()))
    package = "org.apache.kafka.common.security.oauthbearer"
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={package}.OAuthBearerLoginModule required;\n"
        f"sasl.login.callback.handler.class={package}.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={held.as_uri()}\n"
    )
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={held.as_uri()}"
    async with broker_with_tokens(tmp_path, public_jwk("RSA")) as broker:
        common = ("--bootstrap-server", address(broker), "--command-config", str(properties))
        await asyncio.to_thread(run_tool, TOPICS, *common, "--create", "--topic", "made-by-java", java=(allowed,))

        assert "made-by-java" in broker.image.topics


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(lambda: token(fresh(exp=int(time.time()) - 60)), id="expired"),
        pytest.param(lambda: token(fresh(iss="https://other.example")), id="another issuer"),
        pytest.param(lambda: token(fresh(aud="other")), id="another audience"),
        pytest.param(lambda: token(fresh(), kind="EC", algorithm="ES256"), id="unknown key"),
    ],
)
async def test_token_that_does_not_count_keeps_clients_out(tmp_path: Path, text: Callable[[], str]) -> None:
    async with broker_with_tokens(tmp_path, public_jwk("RSA")) as broker:
        heard = await asyncio.to_thread(what_confluent_hears, address(broker), text())

        assert broker.server.sasl["SASL"].ended.keys() == {("login", "OAUTHBEARER", "failure")}
    assert "invalid_token" in heard


def what_confluent_hears(bootstrap: str, text: str) -> str:
    heard: list[str] = []
    settings = of_librdkafka(bootstrap, text) | {"error_cb": lambda error: heard.append(error.str())}
    producer = confluent_kafka.Producer(settings)
    deadline = time.monotonic() + WAIT_S
    while not any("SASL" in each for each in heard) and time.monotonic() < deadline:
        producer.poll(0.1)
    return "\n".join(heard)


async def test_new_key_counts_after_one_failed_login(tmp_path: Path) -> None:
    async with broker_with_tokens(tmp_path, public_jwk("RSA")) as broker:
        (tmp_path / "keys.json").write_bytes(key_set(public_jwk("EC")))
        text = token(fresh(), kind="EC", algorithm="ES256")
        ended = broker.server.sasl["SASL"].ended

        await asyncio.to_thread(by_confluent, address(broker), text)

        assert ended["login", "OAUTHBEARER", "success"] >= 1
        assert ended["login", "OAUTHBEARER", "failure"] >= 1


async def test_session_ends_with_its_token_and_is_renewed(tmp_path: Path) -> None:
    async with broker_with_tokens(tmp_path, public_jwk("RSA")) as broker:
        ended = broker.server.sasl["SASL"].ended

        def short_lived(_: str) -> tuple[str, float]:
            now_s = int(time.time())
            return token(fresh(exp=now_s + SHORT_S)), now_s + SHORT_S

        settings = of_librdkafka(address(broker), "") | {"oauth_cb": short_lived}
        producer = confluent_kafka.Producer(settings)
        failed: list[object] = []
        async with asyncio.timeout(RENEWED_WITHIN_S):
            while not ended["renewal", "OAUTHBEARER", "success"]:
                producer.produce("t", b"x", on_delivery=lambda error, _: failed.append(error) if error else None)
                producer.poll(0)
                await asyncio.sleep(0.02)
        assert await asyncio.to_thread(producer.flush, WAIT_S) == 0
        assert failed == []
