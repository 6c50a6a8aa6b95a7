"""Topics and configs in a metadata store: what is written is read back, and a change touches only what changed."""

import json
from dataclasses import replace

import pytest

from ottla.cluster.encoding import (
    ENTRIES_PER_SLICE,
    broker_of,
    changes_between,
    deletion_mark,
    deletion_marks,
    deletion_value,
    registration_value,
    topic_values,
    topics_in_slices,
    topics_of,
)
from ottla.cluster.image import BrokerInfo, BrokerState, PartitionInfo, TopicInfo
from ottla.cluster.store import Delete, Entry, Put, StoreError


def state(leader: int) -> PartitionInfo:
    return PartitionInfo(leader=leader, leader_epoch=4, partition_epoch=5, replicas=(1, 2), isr=(2,))


TOPIC = TopicInfo("a.b", bytes(range(16)), (state(1), state(2)), {"retention.ms": "5"})


def entries(values: dict[str, bytes]) -> list[Entry]:
    return [Entry(key, value, 1) for key, value in sorted(values.items())]


def test_a_topic_is_read_back_as_it_was_written() -> None:
    assert topics_of(entries(topic_values(TOPIC))) == [TOPIC]


def test_a_change_of_one_partition_touches_one_key() -> None:
    changed = TopicInfo(TOPIC.name, TOPIC.topic_id, (state(1), state(1)), TOPIC.configs)

    changes = changes_between(topic_values(TOPIC), topic_values(changed))

    assert [(type(change), change.key) for change in changes] == [(Put, "partitions/a.b/1")]


def test_a_deletion_takes_every_key_and_leaves_a_mark() -> None:
    mark = deletion_mark(TOPIC)
    changes = changes_between(topic_values(TOPIC), {mark.key: deletion_value(mark)})

    assert {change.key for change in changes if isinstance(change, Delete)} == set(topic_values(TOPIC))
    assert deletion_marks(entries({mark.key: deletion_value(mark)})) == [mark._replace(revision=1)]
    assert mark.brokers == (1, 2)


@pytest.mark.parametrize("key", ["topics/a.b", "partitions/a.b/1"])
def test_damage_is_named(key: str) -> None:
    with pytest.raises(StoreError, match=r"a\.b"):
        topics_of(entries(topic_values(TOPIC) | {key: b"{"}))
    with pytest.raises(StoreError, match=r"a\.b"):
        topics_of(entries(topic_values(TOPIC) | {key: b'{"partitions":3}'}))


def test_the_rare_parts_of_a_partition_are_read_back() -> None:
    rare = PartitionInfo(
        -1, 4, 5, (1, 2, 3), (), elr=(2,), last_known_elr=(1,), last_leader=1, adding=(3,), removing=(1,)
    )
    topic = TopicInfo("a", bytes(range(16)), (rare,))

    assert topics_of(entries(topic_values(topic))) == [topic]


def test_partitions_written_before_there_was_an_elr_are_read() -> None:
    values = topic_values(TOPIC)
    values["partitions/a.b/0"] = b'{"leader":1,"leader_epoch":4,"partition_epoch":5,"replicas":[1,2],"isr":[2]}'
    values["partitions/a.b/1"] = b'{"leader":2,"leader_epoch":4,"partition_epoch":5,"replicas":[1,2],"isr":[2]}'

    assert topics_of(entries(values)) == [TOPIC]
    assert topic_values(TOPIC)["partitions/a.b/0"] == (
        b'{"isr":[2],"leader":1,"leader_epoch":4,"partition_epoch":5,"replicas":[1,2]}'
    )


def test_topics_are_parsed_a_few_at_a_time() -> None:
    topics = [replace(TOPIC, name=f"t{number:03}", topic_id=number.to_bytes(16)) for number in range(ENTRIES_PER_SLICE)]
    stored = entries({key: value for topic in topics for key, value in topic_values(topic).items()})

    slices = list(topics_in_slices(stored))

    assert [topic for some in slices for topic in some] == topics
    at_once = ENTRIES_PER_SLICE // (1 + len(TOPIC.partitions)) + 1
    assert all(len(some) <= at_once for some in slices)


def test_registration_without_admin_url_can_be_read() -> None:
    """Brokers of before did not write it."""
    broker = BrokerInfo(1, "h", 9092, admin_url="http://h:9644", state=BrokerState.FENCED)
    value = json.loads(registration_value(broker))
    del value["admin_url"]

    assert broker_of(Entry("brokers/1", registration_value(broker), 0)) == broker
    assert broker_of(Entry("brokers/1", json.dumps(value).encode(), 0)) == replace(broker, admin_url="")
