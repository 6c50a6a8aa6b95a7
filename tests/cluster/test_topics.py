"""Decisions about topics: what may be created, grown and deleted, and where partitions go."""

import random
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cluster.image import CONSUMER_OFFSETS, BrokerInfo, BrokerState, MetadataImage, PartitionInfo, TopicInfo
from ottla.cluster.topics import (
    TopicDefaults,
    TopicSpec,
    check_creatable_by_clients,
    check_deletable,
    check_new_name,
    check_topic_name,
    new_topic_id,
    place,
    plan_more_partitions,
    plan_topic,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.cluster.images import with_broker

DEFAULTS = TopicDefaults(num_partitions=3, replication_factor=1)


def image_with(*topics: TopicInfo, brokers: int = 1) -> MetadataImage:
    image = MetadataImage("cluster", 1)
    for node_id in range(1, brokers + 1):
        image = with_broker(image, BrokerInfo(node_id, "localhost", 9092 + node_id))
    return image.with_topics({topic.name: topic for topic in topics})


def topic_named(name: str, partitions: int = 1) -> TopicInfo:
    state = PartitionInfo(leader=1, leader_epoch=0, partition_epoch=0, replicas=(1,), isr=(1,))
    return TopicInfo(name, uuid.UUID(int=len(name)).bytes, (state,) * partitions)


def plan(spec: TopicSpec, image: MetadataImage | None = None) -> TopicInfo:
    return plan_topic(spec, image or image_with(), DEFAULTS, {}, random.Random(1))


def refusal(action) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        action()
    assert str(raised.value)
    return raised.value.code


@pytest.mark.parametrize("name", ["a", "A-b_c.d", "x" * 249, "__consumer_offsets", "..."])
def test_legal_topic_names_pass(name: str) -> None:
    check_topic_name(name)


def test_names_that_differ_in_dots_and_underscores_collide() -> None:
    image = image_with(topic_named("with.dot"))

    assert refusal(lambda: check_new_name("with_dot", image)) is ErrorCode.INVALID_TOPIC_EXCEPTION
    check_new_name("with-dot", image)


@pytest.mark.parametrize("name", ["", None, ".", "..", "x" * 250, "a b", "ä", "a/b", "a\n", "a:b", "a\0"])
def test_illegal_topic_names_are_refused(name: str | None) -> None:
    assert refusal(lambda: check_topic_name(name)) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_topic_takes_the_brokers_defaults_for_counts_left_open() -> None:
    topic = plan(TopicSpec("a"))

    assert [state.replicas for state in topic.partitions] == [(1,), (1,), (1,)]
    assert topic.partitions[0] == PartitionInfo(leader=1, leader_epoch=0, partition_epoch=0, replicas=(1,), isr=(1,))


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (TopicSpec("a", num_partitions=0), ErrorCode.INVALID_PARTITIONS),
        (TopicSpec("a", num_partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (TopicSpec("a", num_partitions=10_001), ErrorCode.POLICY_VIOLATION),
        (TopicSpec("a", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (TopicSpec("a", replication_factor=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (TopicSpec("a", 1, -1, [(0, [1])]), ErrorCode.INVALID_REQUEST),
        (TopicSpec("a", -1, 1, [(0, [1])]), ErrorCode.INVALID_REQUEST),
        (TopicSpec("a", assignments=[(1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicSpec("a", assignments=[(0, [1]), (0, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicSpec("a", assignments=[(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicSpec("a", assignments=[(0, [1, 1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicSpec("a", assignments=[(0, [9])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicSpec("taken"), ErrorCode.TOPIC_ALREADY_EXISTS),
    ],
)
def test_topics_that_cannot_be_are_refused(spec: TopicSpec, code: ErrorCode) -> None:
    image = image_with(topic_named("taken"), topic_named("with.dot"))

    assert refusal(lambda: plan(spec, image)) is code


def test_replicas_given_by_hand_are_taken_in_partition_order() -> None:
    image = image_with(brokers=3)
    topic = plan(TopicSpec("a", assignments=[(1, [2, 3]), (0, [3, 1])]), image)

    assert [(state.leader, state.isr) for state in topic.partitions] == [(3, (3, 1)), (2, (2, 3))]


def test_replicas_given_by_hand_must_be_equally_many_everywhere() -> None:
    image = image_with(brokers=3)
    spec = TopicSpec("a", assignments=[(0, [1, 2]), (1, [3])])

    assert refusal(lambda: plan(spec, image)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_topic_grows_and_keeps_the_partitions_it_has() -> None:
    topic = topic_named("a", 2)
    grown = plan_more_partitions(topic, 4, None, image_with(topic), random.Random(1))

    assert grown.partitions[:2] == topic.partitions
    assert len(grown.partitions) == 4
    assert grown.topic_id == topic.topic_id


@pytest.mark.parametrize(
    ("count", "assignments", "code"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS),
        (1, None, ErrorCode.INVALID_PARTITIONS),
        (3, [[1], [1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_growth_that_makes_no_sense_is_refused(count, assignments, code: ErrorCode) -> None:
    topic = topic_named("a", 2)
    image = image_with(topic)

    assert refusal(lambda: plan_more_partitions(topic, count, assignments, image, random.Random(1))) is code


def test_the_partition_count_of_consumer_offsets_is_fixed() -> None:
    """§4.1.3: groups are found by it."""
    topic = topic_named(CONSUMER_OFFSETS, 50)
    growth = lambda: plan_more_partitions(topic, 51, None, image_with(topic), random.Random(1))  # noqa: E731

    assert refusal(growth) is ErrorCode.INVALID_REQUEST


def test_clients_neither_create_nor_delete_internal_topics() -> None:
    topic = topic_named(CONSUMER_OFFSETS)

    assert refusal(lambda: check_creatable_by_clients(CONSUMER_OFFSETS, image_with())) is ErrorCode.INVALID_REQUEST
    existing = lambda: check_creatable_by_clients(CONSUMER_OFFSETS, image_with(topic))  # noqa: E731
    assert refusal(existing) is ErrorCode.TOPIC_ALREADY_EXISTS
    deletion = lambda: check_deletable(topic, deletion_enabled=True, says_disabled=True)  # noqa: E731
    assert refusal(deletion) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_no_topic_is_called_as_the_log_of_controllers() -> None:
    creation = lambda: check_creatable_by_clients("__cluster_metadata", image_with())  # noqa: E731

    assert refusal(creation) is ErrorCode.INVALID_REQUEST


def test_deletion_answers_by_what_the_client_understands() -> None:
    topic = topic_named("a")
    old = lambda: check_deletable(topic, deletion_enabled=False, says_disabled=False)  # noqa: E731
    new = lambda: check_deletable(topic, deletion_enabled=False, says_disabled=True)  # noqa: E731
    absent = lambda: check_deletable(None, deletion_enabled=True, says_disabled=True)  # noqa: E731

    assert refusal(old) is ErrorCode.INVALID_REQUEST
    assert refusal(new) is ErrorCode.TOPIC_DELETION_DISABLED
    assert refusal(absent) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert check_deletable(topic, deletion_enabled=True, says_disabled=True) is topic


@settings(max_examples=100)
@given(st.integers(0, 2**64))
def test_topic_ids_are_version_4_uuids_and_new(seed: int) -> None:
    rng = random.Random(seed)
    first = new_topic_id(rng, {})
    again = new_topic_id(random.Random(seed), {first: None})

    assert uuid.UUID(bytes=first).version == 4
    assert again != first


@settings(max_examples=100)
@given(partitions=st.integers(1, 30), brokers=st.integers(1, 6), factor=st.integers(1, 6), seed=st.integers())
def test_placement_spreads_leaders_and_never_repeats_a_broker(partitions, brokers, factor, seed) -> None:
    factor = min(factor, brokers)
    infos = [BrokerInfo(node_id, "h", 1, f"rack{node_id % 2}") for node_id in range(brokers)]
    placed = place(partitions, factor, infos, random.Random(seed))

    leaders = [replicas[0] for replicas in placed]
    counts = [leaders.count(node_id) for node_id in range(brokers)]
    assert max(counts) - min(counts) <= 1
    assert all(len(set(replicas)) == factor for replicas in placed)


def test_neighbours_in_the_round_stand_in_different_racks() -> None:
    infos = [
        BrokerInfo(1, "h", 1, "a"),
        BrokerInfo(2, "h", 1, "a"),
        BrokerInfo(3, "h", 1, "b"),
        BrokerInfo(4, "h", 1, "b"),
    ]
    placed = place(4, 2, infos, random.Random(1))

    rack = {info.node_id: info.rack for info in infos}
    assert all(rack[first] != rack[second] for first, second in placed)


def test_what_one_broker_leads_is_followed_by_all_others() -> None:
    """So that its load is shared when it fails."""
    infos = [BrokerInfo(node_id, "h", 1) for node_id in (1, 2, 3)]
    placed = place(12, 2, infos, random.Random(1))

    for node_id in (1, 2, 3):
        assert {follower for leader, follower in placed if leader == node_id} == {1, 2, 3} - {node_id}


@settings(max_examples=50)
@given(brokers=st.integers(3, 9), racks=st.integers(2, 4), seed=st.integers())
def test_replicas_stand_in_as_many_racks_as_there_are(brokers: int, racks: int, seed: int) -> None:
    infos = [BrokerInfo(node_id, "h", 1, f"rack{node_id % racks}") for node_id in range(brokers)]
    there = min(3, len({info.rack for info in infos}))

    for replicas in place(2 * brokers, 3, infos, random.Random(seed)):
        assert len({infos[node_id].rack for node_id in replicas}) == there


def test_replicas_are_on_active_brokers_while_there_are_enough() -> None:
    image = with_broker(image_with(brokers=2), BrokerInfo(3, "h", 1, state=BrokerState.FENCED))

    assert {replica for state in plan(TopicSpec("a", 9, 2), image).partitions for replica in state.replicas} == {1, 2}


def test_fenced_broker_gets_the_replica_no_active_one_can_have() -> None:
    image = with_broker(image_with(brokers=2), BrokerInfo(3, "h", 1, state=BrokerState.FENCED))
    states = plan(TopicSpec("a", 9, 3), image).partitions

    assert {(state.replicas[2], state.leader in (1, 2), len(state.isr)) for state in states} == {(3, True, 2)}
    assert all(3 not in state.isr for state in states)
    assert refusal(lambda: plan(TopicSpec("a", 9, 4), image)) is ErrorCode.INVALID_REPLICATION_FACTOR


def test_fenced_broker_given_by_hand_gets_a_replica_out_of_sync() -> None:
    image = with_broker(image_with(brokers=2), BrokerInfo(3, "h", 1, state=BrokerState.FENCED))
    (state,) = plan(TopicSpec("a", assignments=[(0, [3, 1, 2])]), image).partitions

    assert (state.leader, state.isr) == (1, (1, 2))


def test_a_topic_needs_an_active_replica_to_begin_with() -> None:
    fenced = BrokerInfo(1, "h", 1, state=BrokerState.FENCED)
    image = with_broker(image_with(brokers=2), fenced)

    assert refusal(lambda: plan(TopicSpec("a", assignments=[(0, [1])]), image)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    dark = with_broker(MetadataImage("cluster", 1), fenced)
    assert refusal(lambda: plan(TopicSpec("a", 1, 1), dark)) is ErrorCode.INVALID_REPLICATION_FACTOR
    grown = lambda: plan_more_partitions(topic_named("a"), 2, None, dark, random.Random(1))  # noqa: E731
    assert refusal(grown) is ErrorCode.INVALID_REPLICATION_FACTOR
