import socket

import pytest

from ottla.cli.connection import BrokerConnection
from ottla.cli.failures import ClientError, NoAnswer
from ottla.protocol.address import Address
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.schema import Message
from tests.cli.fake_broker import FakeBroker, OtherServer


def local(port: int) -> Address:
    return Address("127.0.0.1", port)


async def failure_of(port: int, timeout_s: float = 5) -> str:
    with pytest.raises(ClientError) as raised:
        await BrokerConnection.open(local(port), timeout_s)
    return str(raised.value).replace(str(port), "PORT")


@pytest.mark.parametrize(("theirs", "asked"), [(4, [4]), (3, [4, 3]), (2, [4, 2]), (0, [4, 0])])
async def test_a_broker_of_any_age_can_be_asked_for_its_versions(theirs: int, asked: list[int]) -> None:
    with FakeBroker(api_versions_max=theirs) as broker:
        connection = await BrokerConnection.open(local(broker.port), 5)
        await connection.close()

    assert broker.versions(ApiVersionsRequest) == asked


async def test_unreadable_refusal_falls_back_to_version_0() -> None:
    with FakeBroker(api_versions_max=3) as broker:
        broker.refuses_oddly = True
        connection = await BrokerConnection.open(local(broker.port), 5)
        await connection.close()

    assert broker.versions(ApiVersionsRequest) == [4, 0]


@pytest.mark.parametrize(
    ("theirs", "version"), [((0, 20), 12), ((0, 1), 1), ((1, 7), 7), ((13, 20), None), (None, None)]
)
async def test_a_request_travels_in_the_highest_version_of_both(
    theirs: tuple[int, int] | None, version: int | None
) -> None:
    ranges = {} if theirs is None else {3: theirs}
    with FakeBroker(ranges=ranges) as broker:
        connection = await BrokerConnection.open(local(broker.port), 5)
        chosen = connection.version_for(MetadataRequest, highest=12)
        await connection.close()

    assert chosen == version


async def test_request_without_a_common_version_is_refused() -> None:
    with FakeBroker(ranges={}) as broker:
        connection = await BrokerConnection.open(local(broker.port), 5)
        with pytest.raises(ClientError, match="does not offer ListGroups in a version that this command speaks"):
            await connection.ask(ListGroupsRequest(), ListGroupsResponse, 5)
        await connection.close()


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (UnregisterBrokerRequest(broker_id=1 << 31), "a number in it is larger than Kafka's protocol can say"),
        (UnregisterBrokerRequest(broker_id=1 << 70), "a number in it is larger than Kafka's protocol can say"),
        (MetadataRequest(topics=[MetadataRequestTopic(name="bad\udcff")]), "a text in it is not UTF-8"),
    ],
)
async def test_what_cannot_be_sent_is_one_sentence(request_: Message, sentence: str) -> None:
    """The connection goes on."""
    ranges = {3: (0, 12), 16: (0, 4), 64: (0, 0)}
    with FakeBroker(ranges=ranges) as broker:
        broker.answer(ListGroupsRequest, ListGroupsResponse())
        connection = await BrokerConnection.open(local(broker.port), 5)
        try:
            with pytest.raises(ClientError, match=sentence):
                await connection.ask(request_, ListGroupsResponse, 5)
            await connection.ask(ListGroupsRequest(), ListGroupsResponse, 5)
        finally:
            await connection.close()


async def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    assert await failure_of(port) == "cannot reach 127.0.0.1:PORT: nothing listens there"


async def test_an_unknown_host_is_said_to_be_unknown() -> None:
    with pytest.raises(NoAnswer, match=r"cannot reach broker\.invalid:9092: the host name is not known"):
        await BrokerConnection.open(Address("broker.invalid", 9092), 5)


@pytest.mark.parametrize(
    ("greeting", "sentence"),
    [
        (b"", "127.0.0.1:PORT closed the connection; is it a Kafka-protocol listener without TLS?"),
        (b"\x15\x03\x03\x00\x02\x02\x0a", "127.0.0.1:PORT speaks TLS: give --ca, --tls or --command-config"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "127.0.0.1:PORT speaks HTTP, not Kafka's protocol"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "127.0.0.1:PORT does not speak Kafka's protocol"),
        (b"\x00\x00\x00\x01\x00", "127.0.0.1:PORT does not speak Kafka's protocol"),
        (
            b"\x00\x00\x00\x06\x7f\x00\x00\x00\x00\x00",
            "127.0.0.1:PORT does not speak Kafka's protocol: a response to request 2130706432 where 1 was next",
        ),
    ],
)
async def test_each_server_that_is_no_broker_has_its_sentence(greeting: bytes, sentence: str) -> None:
    with OtherServer(greeting) as server:
        assert await failure_of(server.port) == sentence


async def test_a_malformed_answer_is_one_sentence() -> None:
    with OtherServer(b"\x00\x00\x00\x07\x00\x00\x00\x01\x00\x00\xff") as server:
        assert "sent a ApiVersionsResponse that is not Kafka's version 4" in await failure_of(server.port)


async def test_a_silent_server_is_given_up() -> None:
    with OtherServer(None) as server:
        assert await failure_of(server.port, timeout_s=0.05) == "127.0.0.1:PORT did not answer within 0.05 s"


def test_addresses_are_written_so_that_they_can_be_read_back() -> None:
    assert [str(Address("localhost", 9092)), str(Address("::1", 9092))] == ["localhost:9092", "[::1]:9092"]
