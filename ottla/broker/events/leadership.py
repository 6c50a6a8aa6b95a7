"""What an update of the metadata changes about leaders and ISRs, as facts that this broker is to publish.

Every broker sees every update. The broker that a state names as the leader publishes the change, and where the state
names none the controller does, so each change is published once.
"""

from collections.abc import Iterator

from ottla.broker.events.broker_facts import IsrChanged, LeaderChanged
from ottla.broker.events.schema import EVENTS_TOPIC
from ottla.cluster.image import NO_LEADER, MetadataImage, PartitionInfo
from ottla.cluster.updates import ImageUpdate


def leadership_facts(before: MetadataImage, update: ImageUpdate, node_id: int) -> Iterator[LeaderChanged | IsrChanged]:
    """None about partitions that are gone, nor about the topic of events."""
    for name, indexes in update.topics.items():
        topic = update.image.topic(name)
        if topic is None or name == EVENTS_TOPIC:
            continue
        old = before.topic_by_id(topic.topic_id)
        known = () if old is None else old.partitions
        for index in indexes:
            if index < len(topic.partitions):
                was = known[index] if index < len(known) else None
                yield from _changes(name, index, was, topic.partitions[index], node_id, update.image.controller_id)


def last_leader(state: PartitionInfo | None) -> int | None:
    """The leader, or the last one before there was none; None where there never was one."""
    if state is None:
        return None
    return _or_none(state.leader if state.leader != NO_LEADER else state.last_leader)


def _changes(
    topic: str, index: int, was: PartitionInfo | None, now: PartitionInfo, node_id: int, controller_id: int
) -> Iterator[LeaderChanged | IsrChanged]:
    publisher = now.leader if now.leader != NO_LEADER else controller_id
    if publisher != node_id:
        return
    # Epochs count leaders, so a new one under the same leader means that there was another in between.
    if was is None or was.leader_epoch != now.leader_epoch:
        yield LeaderChanged(
            topic=topic,
            partition=index,
            leader=_or_none(now.leader),
            previous_leader=None if was is None else _or_none(was.leader),
            leader_epoch=now.leader_epoch,
            partition_epoch=now.partition_epoch,
            isr=now.isr,
        )
    elif now.leader != NO_LEADER and set(was.isr) != set(now.isr):
        yield IsrChanged(
            topic=topic,
            partition=index,
            leader=now.leader,
            leader_epoch=now.leader_epoch,
            partition_epoch=now.partition_epoch,
            isr=now.isr,
            joined=tuple(sorted({*now.isr} - {*was.isr})),
            left=tuple(sorted({*was.isr} - {*now.isr})),
        )


def _or_none(node_id: int) -> int | None:
    return None if node_id == NO_LEADER else node_id
