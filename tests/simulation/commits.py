"""The offsets that a member commits and reads back, checked against the dumb model (I-16)."""

from typing import TYPE_CHECKING, Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.simulation.offsets import NONE_COMMITTED

if TYPE_CHECKING:
    from tests.simulation.member import Member

NEVER_APPLIED = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    # A partition that the coordinator's broker has not heard of yet.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
UNAVAILABLE = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
PROMPT_MS = 2_000


class Commits:
    def __init__(self, member: "Member") -> None:
        self._member = member
        self._world = member.world
        is_static = member.habits.instance_id is not None
        self._commit_version = member.rng.choice([9, member.rng.randint(7 if is_static else 2, 9)])
        self._fetch_version = member.rng.choice([9, member.rng.randint(2, 9)])

    async def commit(self, generation: int | None = None) -> ErrorCode:
        """Commits another number for some partition, in the member's generation unless the caller names another."""
        member, judge = self._member, self._world.judge
        if generation is None:
            generation = member.generation
        topic, partition = member.rng.choice(self._world.partitions)
        offset = self._world.next_commit()
        request = OffsetCommitRequest(
            group_id=member.habits.group_id,
            generation_id_or_member_epoch=generation,
            member_id=member.member_id,
            group_instance_id=member.habits.instance_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata=metadata_of(offset)
                        )
                    ],
                )
            ],
        )
        ledger = judge.group(member.habits.group_id).offsets
        sent = judge.sending(member.habits.group_id, member.wire.incarnation, member.member_id)
        write = ledger.begin((topic, partition), offset, sent.at_us)
        response = await member.wire.call(request, self._commit_version, within_ms=PROMPT_MS)
        error = ErrorCode(response.topics[0].partitions[0].error_code)
        if error is ErrorCode.NONE:
            if sent.incarnation >= judge.binding_since:
                ledger.acknowledge(write, judge.trace.now_us())
            judge.accepted("commit", member.habits.group_id, sent, generation, member.member_id)
        elif error in NEVER_APPLIED:
            ledger.refuse((topic, partition), write)
        elif error not in UNAVAILABLE:
            judge.violated("answers", f"commit of {member.habits.client_id} was answered {error.name}")
        # The answer to a request in an old generation is no news about the present one.
        return error if generation == member.generation else ErrorCode.NONE

    async def fetch(self) -> None:
        """Reads all offsets of the group, or a few, and judges each."""
        member, judge = self._member, self._world.judge
        group_id = member.habits.group_id
        wanted = None if member.rng.random() < 0.5 else member.rng.sample(self._world.partitions, 2)
        sent_us = judge.trace.now_us()
        request = fetch_request(group_id, wanted)
        authority = self._world.authority_of(group_id, member.wire)
        response = await member.wire.call(request, self._fetch_version, within_ms=PROMPT_MS)
        answer = response.groups[0] if self._fetch_version >= 8 else response
        error = ErrorCode(answer.error_code)
        if error is not ErrorCode.NONE:
            if error not in UNAVAILABLE:
                judge.violated("answers", f"offset fetch of {member.habits.client_id} was answered {error.name}")
            return
        if authority is None or self._world.authority_of(group_id, member.wire) != authority:
            # A coordinator that does not know of its successor answers what it has.
            return
        judge.counts["offsets read"] += 1
        ledger = judge.group(group_id).offsets
        read = read_offsets(answer)
        for partition in wanted or self._world.partitions:
            offset, metadata = read.get(partition, (NONE_COMMITTED, ""))
            wrong = ledger.judge_read(partition, offset, sent_us)
            if wrong is None and metadata != metadata_of(offset):
                wrong = f"{offset} with the metadata {metadata!r}"
            if wrong is not None:
                judge.violated("I-16", f"{group_id} {partition}: read {wrong}")


def metadata_of(offset: int) -> str:
    return "" if offset == NONE_COMMITTED else f"metadata of {offset}"


def fetch_request(group_id: str, wanted: list[tuple[str, int]] | None) -> OffsetFetchRequest:
    """For any version; None asks for all that there is."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in wanted or ():
        by_topic.setdefault(topic, []).append(partition)

    def topics(cls: Any) -> list[Any] | None:
        if wanted is None:
            return None
        return [cls(name=topic, partition_indexes=partitions) for topic, partitions in by_topic.items()]

    groups = [OffsetFetchRequestGroup(group_id=group_id, topics=topics(OffsetFetchRequestTopics))]
    return OffsetFetchRequest(group_id=group_id, topics=topics(OffsetFetchRequestTopic), groups=groups)


def read_offsets(answer: Any) -> dict[tuple[str, int], tuple[int, str]]:
    return {
        (topic.name, partition.partition_index): (partition.committed_offset, partition.metadata or "")
        for topic in answer.topics
        for partition in topic.partitions
    }
