"""The metadata image: lookups, and that a change leaves the old image as it was."""

from ottla.cluster.image import BrokerInfo, MetadataImage, PartitionInfo, TopicInfo
from tests.cluster.images import with_broker

STATE = PartitionInfo(leader=1, leader_epoch=0, partition_epoch=0, replicas=(1,), isr=(1,))


def test_a_change_makes_a_new_image_and_leaves_the_old_one() -> None:
    empty = with_broker(MetadataImage("cluster", 1), BrokerInfo(1, "h", 9092))
    topic = TopicInfo("a", b"i" * 16, (STATE, STATE))
    with_topic = empty.with_topics({"a": topic})
    without = with_topic.with_topics({"a": None})

    assert empty.topic("a") is None
    assert with_topic.topic("a") is topic
    assert with_topic.topic_by_id(b"i" * 16) is topic
    assert without.topics == {}
    assert without.topics_by_id == {}


def test_partition_is_found_by_its_index_only_if_it_exists() -> None:
    image = MetadataImage("cluster", 1).with_topics({"a": TopicInfo("a", b"i" * 16, (STATE, STATE))})

    assert image.partition("a", 1) is STATE
    assert image.partition("a", 2) is None
    assert image.partition("a", -1) is None
    assert image.partition("b", 0) is None
    assert [(topic.name, index) for topic, index, _ in image.partitions()] == [("a", 0), ("a", 1)]


def test_internal_topics_say_so() -> None:
    assert TopicInfo("__consumer_offsets", b"i" * 16, (STATE,)).is_internal
    assert not TopicInfo("a", b"i" * 16, (STATE,)).is_internal
