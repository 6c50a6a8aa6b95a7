"""The rules of CLIENT handshakes, each of which bites somebody."""

import re
import struct
from pathlib import Path

import pytest

from ottla.broker.handlers import describe_cluster
from ottla.broker.server.apis import APIS
from ottla.protocol.codec import decode_whole
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.broker.wire import Client, batch, client_of, create_topic, produce, produce_request, running_broker

NAMED = ApiVersionsRequest(client_software_name="test-client", client_software_version="1.0")

GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY = 71, 72


@pytest.mark.parametrize("version", range(5))
async def test_the_answer_to_api_versions_has_no_tags_in_its_header(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        client.send(NAMED, version)

        _, body = await client.receive_frame()

    response = decode_whole(ApiVersionsResponse, version, body)
    assert response.error_code == 0
    assert [row.api_key for row in response.api_keys] == list(APIS)


@pytest.mark.parametrize("version", [5, 9, 0x7FFF])
async def test_unknown_api_versions_version_is_answered_in_version_0(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        client.writer.write(struct.pack(">ihhih", 15, 18, version, 7, 1) + b"c" + b"\x00\x02x\x02")

        correlation_id, body = await client.receive_frame()
        response = decode_whole(ApiVersionsResponse, 0, body)
        again = await client.call(NAMED, ApiVersionsResponse, 4)

    assert correlation_id == 7
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert {row.api_key: row.max_version for row in response.api_keys}[18] == 4
    assert again.error_code == 0, "the connection stays open"


@pytest.mark.parametrize("name", ["", "-x", "a b", "x.", "ä"])
async def test_a_client_name_out_of_pattern_is_an_invalid_request(tmp_path: Path, name: str) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        request = ApiVersionsRequest(client_software_name=name, client_software_version="1")

        refused = await client.call(request, ApiVersionsResponse, 3)
        accepted = await client.call(request, ApiVersionsResponse, 0)

    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert accepted.error_code == 0


async def test_versions_that_old_clients_look_for_are_advertised(tmp_path: Path) -> None:
    """librdkafka up to 2.11.0 tests single versions: a missing one silently disables a feature (KAFKA-18659)."""
    wanted = {0: (0, 3, 7), 1: (4, 10), 2: (1,), 10: (0,), 8: (2,), 9: (1,), 22: (0,), 18: (0,), 3: (0,)}
    wanted |= dict.fromkeys((11, 12, 13, 14), (0,))
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        response = await client.call(NAMED, ApiVersionsResponse, 0)

    ranges = {row.api_key: range(row.min_version, row.max_version + 1) for row in response.api_keys}
    assert all(version in ranges[key] for key, versions in wanted.items() for version in versions)


@pytest.mark.parametrize(("api", "version"), [(0, 2), (0, 14), (1, 19), (3, 14), (4, 0), (999, 0), (-1, 0)])
async def test_a_version_that_is_not_served_closes_the_connection(tmp_path: Path, api: int, version: int) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        client.writer.write(struct.pack(">ihhih", 10, api, version, 1, -1))

        assert await client.is_closed_by_broker()
        assert broker.log.reasons() == [f"API {api & 0xFFFF} version {version} is not served"]


async def test_telemetry_is_not_served(tmp_path: Path) -> None:
    """CVE-2026-111073: what clients compress for it is never decompressed."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        response = await client.call(NAMED, ApiVersionsResponse, 3)
        client.writer.write(struct.pack(">ihhih", 10, PUSH_TELEMETRY, 0, 1, -1))

        assert not {GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY} & {row.api_key for row in response.api_keys}
        assert await client.is_closed_by_broker()


async def test_member_of_the_consumer_protocol_is_shown_what_to_set(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        client.writer.write(struct.pack(">ihhih", 10, 68, 0, 1, -1))

        assert await client.is_closed_by_broker()
        assert broker.log.reasons() == [
            "API 68 version 0 is not served: a consumer has group.protocol=consumer; set its group.protocol=classic"
        ]


@pytest.mark.parametrize(("first", "protocol"), [(b"\x16\x03\x01\x02\x00", "TLS"), (b"GET / HTTP/1.1\r\n", "HTTP")])
async def test_protocol_of_a_client_that_is_not_kafkas_is_named(tmp_path: Path, first: bytes, protocol: str) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        client.writer.write(first)

        assert await client.is_closed_by_broker()
        assert broker.log.reasons() == [f"the client speaks {protocol}, and this listener Kafka's protocol without TLS"]


async def test_a_null_client_id_and_unknown_header_tags_are_fine(tmp_path: Path) -> None:
    tags = b"\x02" + b"\x05\x03abc" + b"\x09\x01z"
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        body = struct.pack(">hhih", 3, 9, 5, -1) + tags + b"\x01" + b"\x00\x00\x00\x00"
        client.writer.write(struct.pack(">i", len(body)) + body)

        correlation_id, answer = await client.receive_frame()

    assert correlation_id == 5
    assert decode_whole(MetadataResponse, 9, answer, 1).topics == []


@pytest.mark.parametrize(
    "tags", [b"\x01", b"\x01\x00\x7fab", b"\x02\x05\x00\x05\x00", b"\xff\xff\xff\xff\xff\xff", b"\x7f" + b"\x00" * 40]
)
async def test_malformed_header_tags_close_the_connection(tmp_path: Path, tags: bytes) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        body = struct.pack(">hhih", 3, 9, 5, -1) + tags
        client.writer.write(struct.pack(">i", len(body)) + body)

        assert await client.is_closed_by_broker()


async def test_bytes_after_the_last_field_are_ignored(tmp_path: Path) -> None:
    """librdkafka 2.16 sends Metadata v13 with three of them."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        body = struct.pack(">hhih", 3, 13, 5, -1) + b"\x00" + b"\x00\x00\x00\x00" + b"\x01\x00\x00"
        client.writer.write(struct.pack(">i", len(body)) + body)

        _, answer = await client.receive_frame()

    assert decode_whole(MetadataResponse, 13, answer, 1).cluster_id == broker.cluster_id


async def test_answers_come_in_the_order_of_the_requests(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        sent = [
            client.send(*(pair))
            for pair in [(NAMED, 0), (MetadataRequest(topics=[]), 5), (NAMED, 4), (MetadataRequest(), 1)]
        ]

        answered = [(await client.receive_frame())[0] for _ in sent]

    assert answered == sent


async def test_acks_0_gets_no_answer(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        client.send(produce_request("t", batch(b"a"), acks=0), 9)
        answer = await produce(client, "t", b"b")

    assert answer.base_offset == 1


async def test_acks_0_with_an_error_closes_the_connection(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        client.send(produce_request("nix", batch(b"a"), acks=0), 9)

        assert await client.is_closed_by_broker()
        assert broker.log.reasons() == ["produce with acks=0 to nix-0 failed: UNKNOWN_TOPIC_OR_PARTITION"]


HOSTILE = {
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a negative size": struct.pack(">i", -5) + bytes(20),
    "a size above the limit": struct.pack(">i", (100 << 20) + 1),
    "a size without room for a header": struct.pack(">i", 5) + bytes(5),
    "a size of zero": bytes(4),
    "a hostile count": struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),
    "a client id beyond the frame": struct.pack(">ihhih", 10, 3, 9, 1, 3000),
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_nonsense_closes_its_own_connection_and_no_other(tmp_path: Path, what: str) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as witness, client_of(broker) as client:
        client.writer.write(HOSTILE[what])

        assert await client.is_closed_by_broker()
        assert len(broker.log.reasons()) == 1
        assert (await witness.call(NAMED, ApiVersionsResponse, 0)).error_code == 0


async def test_closings_do_not_flood_the_log(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        for _ in range(50):
            client = await Client.connect(broker)
            client.writer.write(bytes(4))
            assert await client.is_closed_by_broker()

        assert len(broker.log.reasons()) <= 40


async def test_a_handler_that_fails_closes_one_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as witness, client_of(broker) as client:
        monkeypatch.setattr(broker.groups, "ask", lambda *arguments: 1 / 0)
        client.send(HeartbeatRequest(group_id="g"), 3)

        assert await client.is_closed_by_broker()
        assert ("a handler failed", {"api": "Heartbeat", "version": 3, "exc_info": True}) in broker.log.events
        assert (await witness.call(NAMED, ApiVersionsResponse, 0)).error_code == 0


@pytest.mark.parametrize("is_coroutine", [False, True])
async def test_answer_to_a_handler_that_fails_names_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_coroutine: bool
) -> None:
    """Where the response has a place for a sentence; §17.6 of docs/operators.md"""

    def failing(context: object, request: object) -> None:
        raise ZeroDivisionError

    async def failing_later(context: object, request: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(describe_cluster, "handle", failing_later if is_coroutine else failing)
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        answer = await client.call(DescribeClusterRequest(), DescribeClusterResponse, 1)

    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert re.fullmatch("unexpected error [0-9a-f]{8}: the broker's log has more by this id", answer.error_message)


def test_every_response_class_belongs_to_its_row() -> None:
    for api in APIS.values():
        assert api.request_class().API_KEY == api.response_class().API_KEY == api.key
        assert callable(api.handler())
        first, last = api.request_class().VERSIONS
        assert first <= api.min_version <= api.max_version <= last
    assert HeartbeatResponse.API_KEY == 12
