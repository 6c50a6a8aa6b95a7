"""Transactions about topics: what they expect of the store, and what they change."""

from dataclasses import replace

from ottla.cluster.image import MetadataImage, TopicInfo
from ottla.cluster.store import ABSENT, Expect
from ottla.cluster.topic_changes import replace_topics
from tests.cluster.images import TOPIC_ID, image, state

MANY = 1000


def stored(partitions: int) -> MetadataImage:
    """A topic whose keys have revisions."""
    found = image(*(replace(state(), revision=70 + index) for index in range(partitions)))
    return found.with_topics({"t": replace(found.topics["t"], revision=60, configs_revision=61)})


def grown(topic: TopicInfo, count: int) -> TopicInfo:
    return replace(topic, partitions=topic.partitions + (state(),) * (count - len(topic.partitions)))


def test_a_new_topic_rests_on_nothing_but_its_absence() -> None:
    transaction = replace_topics(MetadataImage("cluster", 1), {"t": TopicInfo("t", TOPIC_ID, (state(),) * MANY)})

    assert transaction.expected == (Expect("topics/t", ABSENT),)
    assert len(transaction.changes) == MANY + 2


def test_a_topic_that_grows_is_the_one_that_was_seen() -> None:
    before = stored(2)

    transaction = replace_topics(before, {"t": grown(before.topics["t"], MANY)})

    assert transaction.expected == (Expect("topics/t", 60),)
    assert len(transaction.changes) == MANY - 2 + 1


def test_what_a_topic_has_already_changes_only_as_it_was_seen() -> None:
    before = stored(2)
    topic = before.topics["t"]
    moved = replace(topic, configs={"retention.ms": "1"}, partitions=(topic.partitions[0], state("12")))

    transaction = replace_topics(before, {"t": moved})

    assert set(transaction.expected) == {Expect("configs/topics/t", 61), Expect("partitions/t/1", 71)}
