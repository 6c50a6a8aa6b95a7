"""Which offsets `ottla groups reset-offsets` will commit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from ottla.cli.client import EARLIEST, LATEST, Client, TopicPartition
from ottla.cli.failures import ClientError, Refused
from ottla.cli.operations.groups import STATES_WITHOUT_MEMBERS, committed_offsets, group_state
from ottla.cli.operations.topics import existing_topic
from ottla.protocol.errors import ErrorCode


class Target(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    SHIFT = "shift"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class Goal:
    """`number` is the offset, the shift or the timestamp in milliseconds, as the target needs."""

    target: Target
    number: int = 0


@dataclass(frozen=True, slots=True)
class Reset:
    topic: str
    partition: int
    committed_offset: int | None
    new_offset: int


async def plan(client: Client, group_id: str, goal: Goal, topics: Mapping[str, Sequence[int]] | None) -> list[Reset]:
    """What would be committed. `topics` maps names to partitions, none of them meaning all; None means what the group
    has committed so far. Raises Refused while the group has members."""
    state = await group_state(client, group_id)
    if state not in STATES_WITHOUT_MEMBERS:
        raise Refused(f"cannot reset the offsets of group {group_id}", ErrorCode.NON_EMPTY_GROUP)
    committed = await committed_offsets(client, group_id)
    partitions = sorted(committed) if topics is None else await _partitions_of(client, topics)
    if not partitions:
        raise ClientError(f"group {group_id} has committed no offsets; name topics with --topic")
    goals = await _new_offsets(client, goal, partitions, committed)
    return [Reset(topic, index, committed.get((topic, index)), goals[topic, index]) for topic, index in partitions]


async def _partitions_of(client: Client, topics: Mapping[str, Sequence[int]]) -> list[TopicPartition]:
    partitions: set[TopicPartition] = set()
    for name, wanted in topics.items():
        existing = {row.partition_index for row in (await existing_topic(client, name)).partitions}
        for index in wanted:
            if index not in existing:
                raise ClientError(f"topic {name} has no partition {index}")
        partitions |= {(name, index) for index in wanted or existing}
    return sorted(partitions)


async def _new_offsets(
    client: Client, goal: Goal, partitions: Sequence[TopicPartition], committed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    earliest = await client.list_offsets(partitions, EARLIEST)
    latest = await client.list_offsets(partitions, LATEST)
    match goal.target:
        case Target.EARLIEST:
            return earliest
        case Target.LATEST:
            return latest
        case Target.TIMESTAMP:
            found = await client.list_offsets(partitions, goal.number)
            # -1: every record is older, so the next one to come is the first at or after that time.
            return {p: found[p] if found[p] >= 0 else latest[p] for p in partitions}
        case Target.OFFSET:
            wanted = dict.fromkeys(partitions, goal.number)
        case Target.SHIFT:
            wanted = {p: _committed(p, committed) + goal.number for p in partitions}
    return {p: min(max(wanted[p], earliest[p]), latest[p]) for p in partitions}


def _committed(partition: TopicPartition, committed: Mapping[TopicPartition, int]) -> int:
    try:
        return committed[partition]
    except KeyError:
        topic, index = partition
        raise ClientError(f"cannot shift {topic}-{index}: the group has committed no offset for it") from None
