"""A broker logs in to another: before its first request, again before its session ends, and everything that can go
wrong in between."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla import ClusterThread
from ottla.broker import broker as broker_module
from ottla.broker.broker import Broker
from ottla.broker.server import listeners as listeners_module
from ottla.broker.server.network import SocketOptions
from ottla.broker.server.peer_connection import Peer, PeerError
from ottla.protocol.address import parse_address
from ottla.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.schema import Message
from ottla.security.client import CLIENT_MECHANISMS, LoginCredentials, Secret
from ottla.security.scram import ScramClient
from tests.broker.test_peer_connection import serving
from tests.broker.wire import running_broker
from tests.cluster_processes import wait_for
from tests.fakes.frames import response_frame
from tests.security.servers import SaslDoors, SaslUser

PASSWORD = "the password of brokers"
KAFKA = LoginCredentials("PLAIN", "kafka", Secret(PASSWORD))
VERSIONS: dict[int, tuple[type[Message], int]] = {
    SaslHandshakeRequest.API_KEY: (SaslHandshakeResponse, 1),
    SaslAuthenticateRequest.API_KEY: (SaslAuthenticateResponse, 2),
    ListOffsetsRequest.API_KEY: (ListOffsetsResponse, 7),
}
WITHIN_S = 30

Answer = Message | bytes


def a_request() -> ListOffsetsRequest:
    return ListOffsetsRequest(replica_id=-1)


class Script:
    """A server that answers the requests of all its connections with these in turn, then with what is `always` there
    for an API, and closes a connection for which there is nothing; `asked` are the API keys that came."""

    def __init__(self, *answers: Answer, always: dict[int, Answer] | None = None) -> None:
        self._answers = list(answers)
        self._always = always or {}
        self.asked: list[int] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                api_key = int.from_bytes(frame[:2], "big")
                self.asked.append(api_key)
                answer = self._answers.pop(0) if self._answers else self._always.get(api_key)
                if answer is None:
                    break
                if isinstance(answer, Message):
                    cls, version = VERSIONS[api_key]
                    assert isinstance(answer, cls), f"{type(answer).__name__} was scripted for API {api_key}"
                    answer = response_frame(answer, version, int.from_bytes(frame[4:8], "big"))
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


@asynccontextmanager
async def peer_at(
    tmp_path: Path, serve: Callable[..., Any], login: LoginCredentials | None = KAFKA, **settings: object
) -> AsyncIterator[Peer]:
    """Not connected yet."""
    async with running_broker(tmp_path, **settings) as broker, serving(serve) as address:
        peer = Peer(broker.runtime, broker.network, address, "broker-1-fetcher-0", SocketOptions(), login)
        try:
            yield peer
        finally:
            peer.close()


def peer_of(broker: Broker, login: LoginCredentials) -> Peer:
    return Peer(
        broker.runtime, broker.network, parse_address(broker.bootstrap), "broker-1-test", SocketOptions(), login
    )


async def refusal(tmp_path: Path, *answers: Answer, **settings: object) -> str:
    """What a login says that is answered so; the connection is closed, and the password stays hidden."""
    async with peer_at(tmp_path, Script(*answers).serve, **settings) as peer:
        with pytest.raises(PeerError) as raised:
            await peer.connect()
        assert not peer.is_open
    assert PASSWORD not in f"{raised.value!r} {raised.value.__cause__!r} {raised.value.__context__!r}"
    return str(raised.value)


@pytest.mark.parametrize("mechanism", CLIENT_MECHANISMS)
async def test_login_comes_before_the_first_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mechanism: str
) -> None:
    doors = SaslDoors(SaslUser("kafka", PASSWORD))
    monkeypatch.setattr(broker_module, "TcpNetwork", doors.network)
    async with running_broker(tmp_path) as broker:
        peer = peer_of(broker, KAFKA._replace(mechanism=mechanism))
        await peer.connect()

        assert isinstance(await peer.ask(a_request()), ListOffsetsResponse)
        peer.close()

    assert doors.logins == [("broker-1-test", "kafka")]
    assert doors.requests_behind == ["broker-1-test"]


async def test_a_wrong_password_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doors = SaslDoors(SaslUser("kafka", "another password"))
    monkeypatch.setattr(broker_module, "TcpNetwork", doors.network)
    async with running_broker(tmp_path) as broker:
        peer = peer_of(broker, KAFKA)
        with pytest.raises(PeerError) as raised:
            await peer.connect()

    assert str(raised.value) == "no login as kafka: Authentication failed: Invalid username or password"
    assert doors.failures == ["broker-1-test"]


OK = SaslHandshakeResponse(mechanisms=["PLAIN"])


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        (
            [SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-256"])],
            "the listener does not offer the SASL mechanism PLAIN, but SCRAM-SHA-256",
        ),
        ([SaslHandshakeResponse(error_code=34)], "the listener has no SASL, and wants no login"),
        ([OK, SaslAuthenticateResponse(error_code=58, error_message="go away")], "go away"),
        ([], "the connection was lost: closed by the other side"),
        ([OK], "the connection was lost: closed by the other side"),
        ([b"\x15\x03\x03\x00\x02\x02\x0a"], "an answer of 352518912 bytes, at most"),
        ([b"\0\0\0\x05\0\0\0\x01\0"], "malformed response to SaslHandshakeRequest"),
        ([b"\0\0\0\x04\0\0\0\x07"], "a response to request 7 where 1 was next"),
    ],
    ids=["mechanism", "no SASL", "password", "closed", "closed later", "TLS", "malformed", "another's"],
)
async def test_each_failure_of_a_login_has_its_sentence(tmp_path: Path, answers: list[Answer], why: str) -> None:
    assert (await refusal(tmp_path, *answers)).startswith(f"no login as kafka: {why}")


async def test_a_silent_listener_is_given_up(tmp_path: Path) -> None:
    settings = {"replica_socket_timeout_ms": 60, "replica_fetch_wait_max_ms": 50}

    assert await refusal(tmp_path, b"", **settings) == "no login as kafka: no answer within 60 ms"


async def test_a_listener_that_wants_a_login_is_supposed(tmp_path: Path) -> None:
    async with peer_at(tmp_path, Script().serve, None) as peer:
        await peer.connect()
        with pytest.raises(PeerError, match="before its first answer, as by a listener that wants a login"):
            await peer.ask(a_request())


async def test_without_a_login_nothing_precedes_a_request(tmp_path: Path) -> None:
    script = Script(ListOffsetsResponse())
    async with peer_at(tmp_path, script.serve, None) as peer:
        await peer.connect()
        await peer.ask(a_request())

    assert script.asked == [ListOffsetsRequest.API_KEY]


async def test_a_session_is_renewed_between_two_requests(tmp_path: Path) -> None:
    lasting = SaslAuthenticateResponse(session_lifetime_ms=100)
    script = Script(always={17: OK, 36: lasting, 2: ListOffsetsResponse()})
    async with peer_at(tmp_path, script.serve) as peer:
        await peer.connect()
        while script.asked.count(17) < 3:
            await peer.ask(a_request())

    assert re.fullmatch("(L2*){3}", "".join(map(str, script.asked)).replace("1736", "L"))
    assert script.asked.count(2) > 2


async def test_a_session_that_does_not_end_is_not_renewed(tmp_path: Path) -> None:
    script = Script(always={17: OK, 36: SaslAuthenticateResponse(), 2: ListOffsetsResponse()})
    async with peer_at(tmp_path, script.serve) as peer:
        await peer.connect()
        for _ in range(5):
            await peer.ask(a_request())

    assert script.asked == [17, 36, 2, 2, 2, 2, 2]


async def test_session_that_cannot_be_renewed_ends(tmp_path: Path) -> None:
    refused = SaslHandshakeResponse(error_code=34)
    script = Script(OK, SaslAuthenticateResponse(session_lifetime_ms=1), refused)
    async with peer_at(tmp_path, script.serve) as peer:
        await peer.connect()
        with pytest.raises(PeerError, match="no login as kafka: the listener has no SASL"):
            await peer.ask(a_request())
        assert not peer.is_open


async def test_proof_of_a_password_is_made_off_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doors = SaslDoors(SaslUser("kafka", PASSWORD))
    monkeypatch.setattr(broker_module, "TcpNetwork", doors.network)
    threads: list[threading.Thread] = []
    final = ScramClient.final

    def noted(self: ScramClient, server_first: bytes) -> bytes:
        threads.append(threading.current_thread())
        return final(self, server_first)

    monkeypatch.setattr(ScramClient, "final", noted)
    async with running_broker(tmp_path) as broker:
        peer = peer_of(broker, KAFKA._replace(mechanism="SCRAM-SHA-256"))
        await peer.connect()
        peer.close()

    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


async def test_a_cancelled_login_closes_its_connection(tmp_path: Path) -> None:
    script = Script(b"")
    async with peer_at(tmp_path, script.serve) as peer:
        connecting = asyncio.ensure_future(peer.connect())
        async with asyncio.timeout(WITHIN_S):
            while not script.asked:  # noqa: ASYNC110 - the server is the test's own
                await asyncio.sleep(0.001)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting

        assert not peer.is_open


def test_brokers_of_a_cluster_log_in_to_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """For all that they ask of each other: records to copy, markers, transactions to verify, events. No connection of a
    broker goes on without a login, and sessions of two seconds are renewed."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    doors = SaslDoors(
        SaslUser("kafka", PASSWORD), lifetime_ms=2000, must_log_in=lambda client_id: client_id.startswith("broker-")
    )
    monkeypatch.setattr(broker_module, "TcpNetwork", doors.network)
    monkeypatch.setattr(listeners_module, "inter_broker_login", lambda *_: KAFKA._replace(mechanism="SCRAM-SHA-512"))
    settings = {
        "ottla.events.enable": True,
        "ottla.events.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "min.insync.replicas": 3,
    }
    with ClusterThread(brokers=3, settings=settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("t", 3, 3)])["t"].result(WITHIN_S)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "id"})
        producer.init_transactions(WITHIN_S)

        def transact() -> None:
            producer.begin_transaction()
            for partition in range(3):
                producer.produce("t", b"value", partition=partition)
            producer.commit_transaction(WITHIN_S)

        transact()
        wait_for(lambda: _purposes(doors) >= PURPOSES, WITHIN_S, lambda: f"only {_purposes(doors)} have logged in")
        fetchers = {client_id for client_id, _ in doors.logins if "fetcher" in client_id}
        wait_for(lambda: fetchers <= {*doors.renewals}, WITHIN_S, "a fetcher has not renewed its session")
        transact()

    assert doors.failures == []
    assert {user for _, user in doors.logins} == {"kafka"}


PURPOSES = {"fetcher", "markers", "transactions", "events"}


def _purposes(doors: SaslDoors) -> set[str]:
    """What the client ids of those who have logged in say: broker-1-fetcher-0, broker-1-markers."""
    return {client_id.split("-")[2] for client_id, _ in doors.logins}
