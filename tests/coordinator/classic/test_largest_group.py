"""The largest group whose record fits into `max.message.bytes` of `__consumer_offsets` (§11.7)."""

import pytest

from ottla.coordinator.records import GroupMetadata, StoredMember, build_group_metadata_key, build_group_metadata_value
from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.record import Record, build_batch
from ottla.storage.log_config import LogConfig
from tests.fakes.consumer_protocol import build_assignment, build_subscription

LIMIT = LogConfig().max_message_bytes


def stored(number: int, topics: int, partitions: int) -> StoredMember:
    """A member that owns `partitions` of each of its `topics`, and says so when it joins."""
    names = [f"orders-{topic:04}" for topic in range(topics)]
    owned = [TopicPartition(topic=name, partitions=list(range(partitions))) for name in names]
    return StoredMember(
        member_id=f"consumer-1-00000000-0000-0000-0000-{number:012}",
        group_instance_id=None,
        client_id="consumer-1",
        client_host="/10.0.0.1",
        rebalance_timeout_ms=300_000,
        session_timeout_ms=45_000,
        subscription=build_subscription(ConsumerProtocolSubscription(topics=names, owned_partitions=owned), 1),
        assignment=build_assignment(ConsumerProtocolAssignment(assigned_partitions=owned), 1),
    )


def batch_bytes(members: int, topics: int, partitions: int, codec: Codec = Codec.NONE) -> int:
    metadata = GroupMetadata(
        protocol_type="consumer",
        generation=1,
        protocol_name="cooperative-sticky",
        leader_id=stored(0, 1, 1).member_id,
        state_timestamp_ms=1_700_000_000_000,
        members=tuple(stored(number, topics, partitions) for number in range(members)),
    )
    record = Record(timestamp=0, key=build_group_metadata_key("g"), value=build_group_metadata_value(metadata))
    return len(build_batch([record], codec=codec))


@pytest.mark.parametrize(
    ("topics", "partitions", "members"), [(1, 1, 6203), (1, 10, 4350), (10, 1, 1578), (10, 10, 757), (100, 1, 186)]
)
def test_so_many_members_fit_and_no_more(topics: int, partitions: int, members: int) -> None:
    assert batch_bytes(members, topics, partitions) <= LIMIT < batch_bytes(members + 1, topics, partitions)


def test_compressed_several_times_as_many_fit() -> None:
    assert batch_bytes(5 * 186, 100, 1, Codec.GZIP) <= LIMIT
