"""The comparison itself: two brokers of one kind do not differ, and one that is set up otherwise is found out."""

import random
from argparse import Namespace
from collections.abc import Iterator

import pytest

from ottla import BrokerThread
from ottla.broker.server.apis import APIS, METADATA
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource, AlterConfigsResponse
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.broker.requests import produce
from tests.broker.wire import batch
from tests.differential.__main__ import run
from tests.differential.brokers import SHARED
from tests.differential.comparing import Difference, Missing
from tests.differential.connection import Address, Answer, Closed, Outcome, Silence
from tests.differential.drawing import Drawing, names_something_twice
from tests.differential.episode import diverging
from tests.differential.exchange import Asked, Exchange, damaged, is_alike, why_unreadable
from tests.differential.intended import INT32_MAX, MAGIC_AT, MAGIC_MAX, name_of
from tests.differential.readiness import shared_ranges
from tests.differential.report import Report
from tests.differential.world import World


def address(broker: BrokerThread) -> Address:
    host, _, port = broker.bootstrap.rpartition(":")
    return host, int(port)


@pytest.fixture
def original() -> Iterator[Address]:
    with BrokerThread(settings=SHARED, node_id=1) as broker:
        yield address(broker)


def report_of(addresses: tuple[Address, Address], exchanges: int = 250) -> Report:
    options = Namespace(seed=7, exchanges=exchanges, episode=None, api=None)
    return run(addresses, options, barrier=None)


def test_two_brokers_alike_do_not_differ(original: Address, capsys: pytest.CaptureFixture[str]) -> None:
    with BrokerThread(settings=SHARED, node_id=1) as same:
        report = report_of((original, address(same)))

    report.print(1.0, 0.5)
    assert not report.unexpected, capsys.readouterr().out


def test_seeded_difference_is_found_and_printed(original: Address, capsys: pytest.CaptureFixture[str]) -> None:
    with BrokerThread(settings={**SHARED, "offset.metadata.max.bytes": 0}, node_id=1) as other:
        report = report_of((original, address(other)), exchanges=150)

    report.print(1.0, 0.5)
    printed = capsys.readouterr().out
    assert "DIFFERENT OffsetCommit" in printed
    assert "ours 0, Kafka's 12" in printed
    assert "--seed 7 --episode" in printed


@pytest.mark.parametrize(("generation", "name"), [(1, None), (2, "elected leaders")])
def test_leader_of_the_first_generation_may_not_differ(generation: int, name: str | None) -> None:
    answer = Answer(JoinGroupResponse(generation_id=generation))
    difference = Difference("leader", "ours", "theirs")
    exchange = Exchange(Asked(JoinGroupRequest(), 9), answer, answer, [difference])

    assert name_of(exchange, difference) == name
    assert name_of(exchange, Difference("error_code", 0, 25)) is None


@pytest.mark.parametrize(
    ("acks", "rest", "damage_seed", "theirs", "name"),
    [
        (0, b"\x00", None, Silence(), "after a batch"),
        (0, b"\x00", 3, Silence(), None),
        (0, b"", None, Silence(), None),
        (0, b"\x00", None, Answer(ProduceResponse()), None),
        (1, b"\x00", None, Silence(), None),
    ],
)
def test_rest_after_a_batch_may_close_where_nothing_is_answered(
    acks: int, rest: bytes, damage_seed: int | None, theirs: Outcome, name: str | None
) -> None:
    asked = Asked(produce("t", records=batch(b"x") + rest, acks=acks), 9, damage_seed)
    exchange = Exchange(asked, Closed(), theirs, [])

    assert name_of(exchange, Difference("outcome", exchange.ours, theirs)) == name


@pytest.mark.parametrize(
    ("types", "theirs", "name"),
    [
        ((99, 0), Silence(), "named twice"),
        ((99, 2), Silence(), None),
        ((99, 0), Answer(AlterConfigsResponse()), None),
    ],
)
def test_unknown_types_of_one_name_may_go_unanswered(types: tuple[int, ...], theirs: Outcome, name: str | None) -> None:
    resources = [AlterConfigsResource(resource_type=kind, resource_name="1") for kind in types]
    ours = Answer(AlterConfigsResponse())
    exchange = Exchange(Asked(AlterConfigsRequest(resources=resources), 1), ours, theirs, [])

    assert name_of(exchange, Difference("outcome", ours, theirs)) == name


@pytest.mark.parametrize(("limit", "name"), [(10, None), (11, "cursors")])
def test_cursor_may_differ_only_where_kafka_overflows(limit: int, name: str | None) -> None:
    cursor = Cursor(topic_name="t", partition_index=INT32_MAX - 10)
    request = DescribeTopicPartitionsRequest(response_partition_limit=limit, cursor=cursor)
    answer = Answer(DescribeTopicPartitionsResponse())
    exchange = Exchange(Asked(request, 0), answer, answer, [])

    assert name_of(exchange, Difference("next_cursor", None, {"topic_name": "t"})) == name
    assert name_of(exchange, Difference("topics[t]", {}, None)) == name
    assert name_of(exchange, Difference("topics[t].error_code", 0, 3)) is None


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("finalized_features[metadata.version]", "versions"),
        ("finalized_features_epoch", "versions"),
        ("api_keys[48]", "versions"),
        ("finalized_features[transaction.version]", None),
    ],
)
def test_features_of_kraft_may_be_missing_and_no_others(path: str, name: str | None) -> None:
    answer = Answer(ApiVersionsResponse())
    exchange = Exchange(Asked(ApiVersionsRequest(), 4), answer, answer, [])

    assert name_of(exchange, Difference(path, Missing(), {})) == name
    assert name_of(exchange, Difference("api_keys[0].max_version", 12, 13)) is None


def test_same_seed_draws_the_same_requests() -> None:
    def drawn() -> list[str]:
        rng = random.Random(1)
        drawing = Drawing(World("e1-"), rng, 0.2)
        return [str(Asked(drawing.request(api, api.max_version), api.max_version)) for api in APIS.values()]

    assert drawn() == drawn()


def test_every_version_of_every_api_can_be_drawn_and_sent() -> None:
    world = World("e1-")
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            for wildness in (0.0, 0.5):
                request = Drawing(world, random.Random(version), wildness).request(api, version)
                assert is_alike(Asked(request, version), world)


def test_damage_leaves_the_size_right_and_the_header_whole() -> None:
    frame = (100).to_bytes(4, "big") + bytes(100)
    for seed in range(50):
        broken = damaged(frame, random.Random(seed))
        assert int.from_bytes(broken[:4], "big") == len(broken) - 4
        assert broken[4:14] == bytes(10)


def test_reason_why_damage_is_unreadable_is_known() -> None:
    request = APIS[METADATA].request_class()(topics=[MetadataRequestTopic(name="name")])
    reasons = {why_unreadable(Asked(request, version, seed)) for version in (4, 12) for seed in range(200)}

    assert {"bytes left", "text that is not UTF-8", "the data ends inside a field", None} <= reasons


@pytest.mark.parametrize(
    ("subscription", "fails"),
    [
        (b"", False),
        (b"\0\0\0\0", False),
        (b"\0\0\0\0\0\0", False),
        (b"\0\0\0\0\0\0\xff\xff\xff\xff", False),
        (b"\xff\xff\0\0\0\0\xff\xff\xff\xff", False),
        (b"\0\1\0\0\0\1\0\1t\0\0\0\1u", False),
        (b"\0\0\xff\xff\xff\xff", True),
        (b"\x9f\xb6\x2b\x16\x0a\x86" + bytes(14), True),
        (b"\0\0\0\0\0\5abcd", True),
        (b"\0\0\0\0\0\2\0\1", True),
        (b"\0\0\0\0\0\1\xff\xff" + bytes(9), True),
        (b"\0\0\0\0\0\1\0\x64" + bytes(9), True),
        (b"\0\0\0\0\0\0\0\0\0\x64abc", True),
    ],
)
def test_joins_that_kafka_does_not_answer_are_recognized(subscription: bytes, fails: bool) -> None:
    """Each was asked of Kafka 4.1."""
    protocols = [JoinGroupRequestProtocol(name="range", metadata=subscription)]
    request = JoinGroupRequest(group_id="g", protocol_type="consumer", protocols=protocols)
    exchange = Exchange(Asked(request, 1), Answer(JoinGroupResponse()), Silence(), [])
    difference = Difference("outcome", exchange.ours, exchange.theirs)

    assert name_of(exchange, difference) == ("subscriptions" if fails else None)


@pytest.mark.parametrize(("operation", "name"), [(1, "a broker's minimum"), (0, None)])
def test_a_minimum_removed_from_a_broker_is_recognized(operation: int, name: str | None) -> None:
    config = AlterableConfig(name="min.insync.replicas", config_operation=operation, value="0")
    resource = IncrementalResource(resource_type=4, resource_name="1", configs=[config])
    asked = Asked(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    answer = Answer(IncrementalAlterConfigsResponse())
    difference = Difference("responses[4/1].error_code", 0, 40)

    assert name_of(Exchange(asked, answer, answer, [difference]), difference) == name


@pytest.mark.parametrize(("code", "name"), [(25, "departed members"), (27, None)])
def test_a_sync_whose_member_has_left_is_recognized(code: int, name: str | None) -> None:
    exchange = Exchange(Asked(SyncGroupRequest(), 3), Answer(SyncGroupResponse(error_code=code)), Silence(), [])

    assert name_of(exchange, Difference("outcome", exchange.ours, exchange.theirs)) == name


def of_unknown_magic(acks: int) -> Asked:
    records = bytearray(batch(b"x"))
    records[MAGIC_AT] = MAGIC_MAX + 1
    return Asked(produce("t", records=bytes(records), acks=acks), 6)


def test_a_batch_of_an_unknown_format_is_recognized() -> None:
    ours, theirs = (Answer(answered("t", code)) for code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 2))
    difference = Difference("responses[t].partition_responses[0].error_code", 3, 2)

    for asked, name in (
        (of_unknown_magic(-1), "beside a bad batch"),
        (Asked(produce("t", records=batch(b"x")), 6), None),
    ):
        assert name_of(Exchange(asked, ours, theirs, [difference]), difference) == name


def test_a_topic_without_name_and_id_is_recognized() -> None:
    difference = Difference("topics[].error_code", 17, -1)
    theirs = Answer(MetadataResponse(topics=[MetadataResponseTopic(error_code=-1, name="")]))
    for name, expected in ((None, "server errors"), ("t", None)):
        asked = Asked(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12)
        assert name_of(Exchange(asked, Answer(MetadataResponse()), theirs, [difference]), difference) == expected


def answered(topic: str, code: int) -> ProduceResponse:
    partition = PartitionProduceResponse(index=0, error_code=code)
    return ProduceResponse(responses=[TopicProduceResponse(name=topic, partition_responses=[partition])])


@pytest.mark.parametrize(("acks", "paths"), [(0, ["outcome"]), (1, [])])
def test_an_episode_ends_where_nothing_says_what_was_written(acks: int, paths: list[str]) -> None:
    assert list(diverging(Exchange(of_unknown_magic(acks), Closed(), Closed(), []))) == paths


def test_rest_after_a_batch_is_recognized_in_topics_by_id() -> None:
    request = produce("", records=batch(b"x") + bytes(4))
    request.topic_data[0].topic_id = b"i" * 16
    refused = Answer(answered("", ErrorCode.INVALID_RECORD))
    difference = Difference(f"responses[{b'i' * 16!r}].partition_responses[0].record_errors", [], [{}])
    other = difference._replace(path=difference.path.replace("i", "j"))
    exchange = Exchange(Asked(request, 13), refused, refused, [difference])

    assert [name_of(exchange, each) for each in (difference, other)] == ["after a batch", None]


def test_groups_that_kafka_named_by_itself_are_recognized() -> None:
    asked = Asked(ListGroupsRequest(), 4)
    for group_id, name in (("\ufffd1-group-0", "damaged requests"), ("e1-group-0", None)):
        listed = {"group_id": group_id, "protocol_type": "connect", "group_state": "PreparingRebalance"}
        difference = Difference(f"groups[{group_id}]", Missing(), listed)
        answer = Answer(ListGroupsResponse())
        assert name_of(Exchange(asked, answer, answer, [difference]), difference) == name


def test_something_named_twice_is_recognized() -> None:
    api = APIS[ProduceRequest.API_KEY]
    request = Drawing(World("e1-"), random.Random(3), 0.0).request(api, 9)
    assert not names_something_twice(request)
    request.topic_data *= 2
    assert names_something_twice(request)


def test_ranges_are_what_both_serve(original: Address) -> None:
    ranges = shared_ranges((original, original))

    assert {key: (max(api.min_version, low), high) for key, (low, high) in ranges.items() for api in [APIS[key]]} == {
        key: (api.min_version, api.max_version) for key, api in APIS.items()
    }
