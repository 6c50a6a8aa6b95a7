"""Updates of the metadata as events about leaders and ISRs."""

from collections.abc import Sequence

from ottla.broker.events.broker_facts import IsrChanged, LeaderChanged
from ottla.broker.events.leadership import last_leader, leadership_facts
from ottla.cluster.image import NO_LEADER, MetadataImage, PartitionInfo, TopicInfo
from ottla.cluster.updates import ImageUpdate

CONTROLLER = 3
EMPTY = MetadataImage("c", CONTROLLER)


def state(leader: int, isr: Sequence[int], leader_epoch: int = 4, last: int = NO_LEADER) -> PartitionInfo:
    return PartitionInfo(leader, leader_epoch, 10 * leader_epoch + len(isr), (1, 2, 3), tuple(isr), last_leader=last)


def image(*partitions: PartitionInfo, name: str = "t", topic_id: bytes = b"1" * 16) -> MetadataImage:
    return EMPTY.with_topics({name: TopicInfo(name, topic_id, partitions)})


def published(before: MetadataImage, after: MetadataImage, node_id: int) -> list[LeaderChanged | IsrChanged]:
    names = {*before.topics, *after.topics}
    longest = max(len(topic.partitions) for each in (before, after) for topic in each.topics.values())
    update = ImageUpdate(after, {name: tuple(range(longest)) for name in names}, (), controller_changed=False)
    return list(leadership_facts(before, update, node_id))


def test_new_leader_alone_publishes_its_leadership() -> None:
    before, after = image(state(1, (1, 2, 3))), image(state(2, (2, 3), leader_epoch=5))

    assert published(before, after, 2) == [
        LeaderChanged(
            topic="t", partition=0, leader=2, previous_leader=1, leader_epoch=5, partition_epoch=52, isr=(2, 3)
        )
    ]
    assert [published(before, after, other) for other in (1, 3)] == [[], []]


def test_controller_alone_publishes_a_missing_leader() -> None:
    before, after = image(state(1, (1,))), image(state(NO_LEADER, (1,), leader_epoch=5, last=1))

    assert published(before, after, CONTROLLER) == [
        LeaderChanged(
            topic="t", partition=0, leader=None, previous_leader=1, leader_epoch=5, partition_epoch=51, isr=(1,)
        )
    ]
    assert [published(before, after, other) for other in (1, 2)] == [[], []]


def test_who_leads_where_nobody_did_has_no_predecessor() -> None:
    leaderless = image(state(NO_LEADER, (1,), last=1))
    (back,) = published(leaderless, image(state(1, (1,), leader_epoch=5)), 1)
    (new,) = published(EMPTY, image(state(1, (1, 2, 3), leader_epoch=0)), 1)

    assert isinstance(back, LeaderChanged)
    assert isinstance(new, LeaderChanged)
    assert (back.leader, back.previous_leader, new.leader, new.previous_leader) == (1, None, 1, None)


def test_the_leader_tells_who_came_into_the_isr_and_who_left() -> None:
    before, after = image(state(1, (1, 2))), image(state(1, (1, 3)))

    assert published(before, after, 1) == [
        IsrChanged(
            topic="t", partition=0, leader=1, leader_epoch=4, partition_epoch=42, isr=(1, 3), joined=(3,), left=(2,)
        )
    ]
    assert [published(before, after, other) for other in (2, 3)] == [[], []]


def test_isr_that_changes_with_its_leader_is_no_event() -> None:
    (only,) = published(image(state(1, (1, 2, 3))), image(state(2, (2,), leader_epoch=5)), 2)
    assert isinstance(only, LeaderChanged)


def test_an_isr_in_another_order_is_the_same() -> None:
    assert published(image(state(1, (1, 2))), image(state(1, (2, 1))), 1) == []


def test_added_partitions_have_facts_and_removed_topics_none() -> None:
    one, two = image(state(1, (1,))), image(state(1, (1,)), state(1, (1,), leader_epoch=0))

    assert [(fact.partition, fact.leader) for fact in published(one, two, 1)] == [(1, 1)]
    assert published(one, EMPTY, 1) == []


def test_a_topic_made_anew_under_its_name_begins_anew() -> None:
    (only,) = published(image(state(2, (2,))), image(state(1, (1,), leader_epoch=0), topic_id=b"2" * 16), 1)
    assert only == LeaderChanged(
        topic="t", partition=0, leader=1, previous_leader=None, leader_epoch=0, partition_epoch=1, isr=(1,)
    )


def test_the_topic_of_events_itself_has_no_facts() -> None:
    before, after = (image(state(leader, (1, 2)), name="ottla.events") for leader in (1, 2))
    assert published(before, after, 2) == []


def test_the_last_leader_is_known_while_there_is_none() -> None:
    assert [last_leader(each) for each in (state(2, (2,)), state(NO_LEADER, (1,), last=1), None)] == [2, 1, None]
    assert last_leader(state(NO_LEADER, (1,))) is None
