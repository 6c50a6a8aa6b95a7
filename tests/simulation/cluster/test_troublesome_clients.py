"""Slow readers, hostile clients and topic ids in the simulation: what they do, and that what is wrong is found."""

import random
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.server import socket_server
from ottla.protocol.codec import decode_whole, encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.schema import is_flexible
from tests.fuzz import payloads
from tests.simulation.cluster.hostile.asks import FAMILIES, STRANGER, Surroundings
from tests.simulation.cluster.hostile.client import CLOSES, HEADER_BYTES, Asked, HostileClient, error_codes
from tests.simulation.cluster.slow_reading import LITTLE_BYTES, UNREAD_BYTES_MAX, SlowReader, little_memory
from tests.simulation.cluster.topic_ids import ShortLivedReader
from tests.simulation.cluster.world import ClusterWorld

ID, OTHER_ID = bytes(15) + b"1", bytes(15) + b"2"


def surroundings(seed: int) -> Surroundings:
    return Surroundings(
        random.Random(seed),
        ("alpha", 0),
        leader_epoch=3,
        wall_ms=1_700_000_000_000,
        groups=["group0"],
        transactional_ids=["pay-0"],
        producers=[(1_000, 2)],
        session_ids=[77],
    )


@pytest.mark.parametrize("ask", [ask for family in FAMILIES for ask in family], ids=lambda ask: ask.__name__)
def test_every_hostile_request_can_be_sent(ask: Any) -> None:
    for seed in range(50):
        request, version = ask(surroundings(seed))
        assert encode(request, version)


def test_hostile_requests_act_for_no_member_and_no_producer() -> None:
    asked = [ask(surroundings(seed))[0] for seed in range(50) for family in FAMILIES for ask in family]

    assert {each.member_id for each in asked if hasattr(each, "member_id")} == {STRANGER}
    assert not {(each.producer_id, each.producer_epoch) for each in asked if hasattr(each, "producer_id")} & {
        (1_000, 2)
    }
    assert not {each.session_epoch for each in asked if hasattr(each, "session_epoch") and each.session_id > 0} & {0, 1}


def response(*codes: ErrorCode) -> FetchResponse:
    partitions = [PartitionData(partition_index=0, error_code=int(code), high_watermark=0) for code in codes]
    return FetchResponse(responses=[FetchableTopicResponse(topic="alpha", partitions=partitions)])


def test_error_codes_are_found_at_any_depth() -> None:
    answer = response(ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NONE)

    assert sorted(error_codes(answer)) == [0, 0, ErrorCode.OFFSET_OUT_OF_RANGE]


@pytest.mark.parametrize(
    ("code", "is_found"),
    [(ErrorCode.NONE, True), (ErrorCode.UNKNOWN_SERVER_ERROR, True), (ErrorCode.OFFSET_OUT_OF_RANGE, False)],
)
def test_a_hostile_request_that_is_not_refused_is_found(code: ErrorCode, is_found: bool) -> None:
    world = ClusterWorld(0)

    HostileClient(world, random.Random(0))._judge("fetch", "a request", response(code))
    world.loop.close()

    assert bool(world.judge.violations) is is_found


@pytest.mark.parametrize(
    ("codes", "is_found"),
    [
        ((ErrorCode.NONE,), False),
        ((ErrorCode.UNKNOWN_SERVER_ERROR,), True),
        ((ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR), True),
    ],
)
def test_while_groups_load_only_no_error_is_no_refusal(codes: tuple[ErrorCode, ...], is_found: bool) -> None:
    world = ClusterWorld(0)

    HostileClient(world, random.Random(0))._judge("heartbeat", "a request", response(*codes), may_be_loading=True)
    world.loop.close()

    assert bool(world.judge.violations) is is_found


def groups_of(hosted: Any) -> Any:
    topic = SimpleNamespace(partition_of=lambda _: hosted[0])
    return SimpleNamespace(
        is_serving=True, broker=SimpleNamespace(parts=SimpleNamespace(groups=SimpleNamespace(topic=topic)))
    )


LOADING, LOADED, LOADED_LATER = (SimpleNamespace(is_loading=is_loading) for is_loading in (True, False, False))


@pytest.mark.parametrize(
    ("before", "after", "may_be"),
    [(LOADING, LOADING, True), (LOADED, LOADED_LATER, True), (LOADED, LOADED, False), (None, None, False)],
)
def test_only_a_coordinator_that_loads_answers_strangers(before: Any, after: Any, may_be: bool) -> None:
    hosted = [before]
    asked = Asked(groups_of(hosted), HeartbeatRequest(group_id="group0", generation_id=1, member_id=STRANGER))

    hosted[0] = after

    assert asked.may_have_been_loading is may_be


def test_a_heartbeat_that_is_answered_after_its_loading_is_over() -> None:
    hosted = [SimpleNamespace(is_loading=True)]
    asked = Asked(groups_of(hosted), HeartbeatRequest(group_id="group0", generation_id=1, member_id=STRANGER))

    hosted[0].is_loading = False

    assert asked.may_have_been_loading


def test_no_damaged_request_makes_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ClusterWorld(0)
    client, rng = HostileClient(world, random.Random(0)), random.Random(0)

    monkeypatch.setattr(client, "_surroundings", lambda: surroundings(rng.randrange(100)))
    frames = [client._damaged_request(rng) for _ in range(500)]
    world.loop.close()

    creations = [frame for frame in frames if int.from_bytes(frame[4:6], "big") == CreateTopicsRequest.API_KEY]
    assert creations
    for frame in creations:
        version = int.from_bytes(frame[6:8], "big")
        # Flexible headers end with their tagged fields.
        start = HEADER_BYTES + is_flexible(CreateTopicsRequest, version)
        (topic,) = decode_whole(CreateTopicsRequest, version, frame, start).topics
        assert topic.num_partitions <= 1


@pytest.mark.parametrize("payload", CLOSES, ids=lambda payload: payload.__name__)
def test_no_broker_waits_behind_what_is_no_frame(payload: payloads.Payload) -> None:
    for seed in range(50):
        assert len(payload(random.Random(seed))) >= 14


def connection(unread_bytes: int, *, held_bytes: int = 0) -> Any:
    return SimpleNamespace(
        is_closed=False,
        transport=SimpleNamespace(get_write_buffer_size=lambda: unread_bytes),
        parked=(),
        _kept=None,
        _memory=SimpleNamespace(held_bytes=held_bytes, _bytes_max=LITTLE_BYTES),
    )


@pytest.mark.parametrize(
    ("kept", "is_found"),
    [
        pytest.param(connection(UNREAD_BYTES_MAX), False, id="as-much-as-is-allowed"),
        pytest.param(connection(UNREAD_BYTES_MAX + 1), True, id="too-much-of-one"),
        pytest.param(connection(0, held_bytes=LITTLE_BYTES + 2 * UNREAD_BYTES_MAX), True, id="too-much-of-all"),
    ],
)
def test_a_broker_that_keeps_too_much_is_found(kept: Any, is_found: bool) -> None:
    world = ClusterWorld(0)

    SlowReader(world, random.Random(0), "slow")._check_held(kept)
    world.loop.close()

    assert [each.partition(":")[0] for each in world.judge.violations] == ["I-27"] * is_found


def test_little_memory_is_given_back() -> None:
    before = socket_server.ConnectionMemory

    with little_memory(is_drawn=True):
        assert socket_server.ConnectionMemory().fetch_room() == LITTLE_BYTES // 2

    assert socket_server.ConnectionMemory is before


@pytest.mark.parametrize(("answered", "found"), [(ID, []), (OTHER_ID, ["answers"])])
def test_an_answer_about_another_topic_id_is_found(answered: bytes, found: list[str]) -> None:
    world = ClusterWorld(0)
    topic = FetchableTopicResponse(topic_id=answered, partitions=[PartitionData(partition_index=0, high_watermark=0)])

    ShortLivedReader(world, random.Random(0), "reader")._took(ID, 0, topic)
    world.loop.close()

    assert [each.partition(":")[0] for each in world.judge.violations] == found


@pytest.mark.parametrize(
    ("has", "counted"),
    [
        pytest.param("slow_readers", {"slow readers that hold a broker up", "records read slowly"}, id="slow-readers"),
        pytest.param("has_hostile_client", {"hostile requests refused", "hostile connections closed"}, id="hostile"),
        pytest.param("uses_topic_ids", {"fetches by topic id", "fetches by the id of a deleted topic"}, id="ids"),
    ],
)
def test_worlds_with_troublesome_clients_hold(has: str, counted: set[str]) -> None:
    seeds = (seed for seed in range(200) if getattr(ClusterWorld(seed).plan, has))
    outcomes = [ClusterWorld(seed).run() for seed in islice(seeds, 2)]

    assert [outcome.violations for outcome in outcomes] == [[], []]
    assert all(sum(outcome.counts.get(name, 0) for outcome in outcomes) for name in counted)
