"""Transactions that make the store say of topics and broker configs what was decided on the image.

Only what the decision rests on is expected: a topic that goes may change its ISR until the last moment, but must not
have grown.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from ottla.cluster.controller import CHANGES_PER_TRANSACTION
from ottla.cluster.encoding import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    TOPICS,
    DeletionMark,
    changes_between,
    config_value,
    deletion_mark,
    deletion_value,
    partition_key,
    partition_value,
    topic_values,
)
from ottla.cluster.image import MetadataImage, TopicInfo
from ottla.cluster.store import ABSENT, Change, Delete, Expect, Put, Transaction
from ottla.cluster.topics import with_new_terms

T = TypeVar("T")

# Each topic has an expectation of its own, and of these etcd takes few with many changes (`etcd_wire`).
TOPICS_PER_TRANSACTION = 32
# What a loop does in a few milliseconds; a topic that has more is by itself.
PARTITIONS_PER_TRANSACTION = 256


def in_transactions(topics: Iterable[T], partitions_of: Callable[[T], int]) -> Iterator[list[T]]:
    """The topics of a request, in order, in lists that any store takes in one transaction each."""
    some: list[T] = []
    partitions = 0
    for topic in topics:
        count = partitions_of(topic)
        if some and (len(some) == TOPICS_PER_TRANSACTION or partitions + count > PARTITIONS_PER_TRANSACTION):
            yield some
            some, partitions = [], 0
        some.append(topic)
        partitions += count
    if some:
        yield some


def replace_topics(image: MetadataImage, topics: Mapping[str, TopicInfo | None]) -> Transaction:
    """Makes these topics as given (None: deleted), out of what the image has."""
    expected: list[Expect] = []
    changes: list[Change] = []
    for name, after in topics.items():
        before = image.topic(name)
        changed = _changes(before, after)
        if before is not None and after is None:
            mark = deletion_mark(before)
            changed.append(Put(mark.key, deletion_value(mark)))
            expected.append(Expect(TOPICS + name, before.revision))
        else:
            expected += _expectations(name, before, changed)
        changes += changed
    return Transaction(tuple(expected), tuple(changes))


def _changes(before: TopicInfo | None, after: TopicInfo | None) -> list[Change]:
    if before is None or after is None or before.topic_id == after.topic_id:
        return changes_between(_values(before), _values(after))
    # Another topic of this name: it is understood by all of its keys, those that stay the same too.
    return changes_between(dict.fromkeys(_values(before), b""), _values(after))


def _expectations(name: str, topic: TopicInfo | None, changed: Iterable[Change]) -> Iterator[Expect]:
    """A key that is new comes with a change of the topic's own, which is expected. With one expectation for each
    partition, a topic of many would have more than a store takes in one transaction."""
    for change in changed:
        revision = _revision(name, topic, change.key)
        if revision != ABSENT or change.key == TOPICS + name:
            yield Expect(change.key, revision)


def replace_broker_configs(owner: str, configs: Mapping[str, str], revision: int) -> Transaction:
    """`revision` is that of the configs they are made out of; ABSENT where there were none."""
    key = BROKER_CONFIGS + owner
    return Transaction((Expect(key, revision),), (Put(key, config_value(configs)),))


def new_terms(topics: Iterable[TopicInfo], leader: int) -> Iterator[Transaction]:
    """A new leader epoch in every partition that `leader` leads."""
    begun = (
        (
            Expect(partition_key(topic.name, index), before.revision),
            Put(partition_key(topic.name, index), partition_value(after)),
        )
        for topic in topics
        for index, (before, after) in enumerate(
            zip(topic.partitions, with_new_terms(topic, leader).partitions, strict=True)
        )
        if after is not before
    )
    for some in _batches(begun):
        yield Transaction(tuple(expect for expect, _ in some), tuple(put for _, put in some))


def without_logs_on(node_id: int, marks: Iterable[DeletionMark], registered: Collection[int]) -> Iterator[Transaction]:
    """Takes a broker out of the marks of deleted topics, and those not registered any more; marks of no broker go."""
    for some in _batches(marks):
        expected = tuple(Expect(mark.key, mark.revision) for mark in some)
        yield Transaction(expected, tuple(_left(mark, node_id, registered) for mark in some))


def has_to_tidy(node_id: int, mark: DeletionMark, registered: Collection[int]) -> bool:
    """Whether the mark names this broker, or no broker that could take itself out."""
    return node_id in mark.brokers or not any(each in registered for each in mark.brokers)


def _left(mark: DeletionMark, node_id: int, registered: Collection[int]) -> Change:
    brokers = tuple(each for each in mark.brokers if each != node_id and each in registered)
    return Put(mark.key, deletion_value(mark._replace(brokers=brokers))) if brokers else Delete(mark.key)


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    left = iter(items)
    while some := list(islice(left, CHANGES_PER_TRANSACTION)):
        yield some


def _values(topic: TopicInfo | None) -> dict[str, bytes]:
    return {} if topic is None else topic_values(topic)


def _revision(name: str, topic: TopicInfo | None, key: str) -> int:
    if topic is None:
        return ABSENT
    if key == TOPICS + name:
        return topic.revision
    if key == TOPIC_CONFIGS + name:
        return topic.configs_revision
    index = int(key.rpartition("/")[2])
    return topic.partitions[index].revision if index < len(topic.partitions) else ABSENT
