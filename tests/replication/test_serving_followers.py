"""What followers get from their leader, and what it makes of their fetches: §14.1.4, §14.5.1, §15.1.4."""

import pytest

from ottla.broker.replicas.shared_reads import SharedReads, read_for_follower
from ottla.protocol.errors import (
    FencedLeaderEpoch,
    KafkaError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from ottla.replication.partition import Partition
from ottla.replication.replica_reads import FollowerFetch, FollowerRead
from tests.replication.support import EPOCH, fetch, leader
from tests.storage.support import batch


def read(target: Partition, request: FollowerFetch, max_bytes: int) -> FollowerRead:
    return read_for_follower(target, request, max_bytes, at_least_one_batch=True, shared=SharedReads())


def test_a_follower_reads_to_the_end_of_the_log_and_counts_only_when_noted() -> None:
    """§14.1.4, §15.3.2, T-18"""
    target = leader(records=2)

    found = read(target, fetch(2, 0), 1 << 20)

    assert (len(found.records), found.leader_end_offset, found.diverging) == (2 * len(batch("x")), 2, None)
    assert target.leadership is not None
    assert target.leadership.followers[2].log_end_offset == -1


@pytest.mark.parametrize(
    ("request_", "has_all"),
    [
        (fetch(2, 3), False),
        (fetch(2, 3, last_epoch=EPOCH), True),
        (fetch(2, 2, last_epoch=EPOCH), False),
        (fetch(2, 3, last_epoch=EPOCH - 1), False),
        (fetch(2, 3, last_epoch=EPOCH, epoch=EPOCH - 1), False),
        (fetch(9, 3, last_epoch=EPOCH), False),
    ],
)
def test_a_follower_that_has_everything_is_told_from_one_to_be_looked_at(
    request_: FollowerFetch, has_all: bool
) -> None:
    target = leader(records=3)

    assert target.has_nothing_for(request_) is has_all


def test_a_resigned_leader_does_not_say_that_there_is_nothing() -> None:
    target = leader(records=3)
    target.resign()

    assert not target.has_nothing_for(fetch(2, 3, last_epoch=EPOCH))


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (fetch(2, 0, epoch=4), FencedLeaderEpoch),
        (fetch(2, 0, epoch=6), UnknownLeaderEpoch),
        (fetch(4, 0), UnknownLeaderEpoch),
        (fetch(4, 0, epoch=-1), NotLeaderOrFollower),
        (fetch(1, 0), UnknownLeaderEpoch),
        (fetch(2, 9), OffsetOutOfRange),
        (fetch(2, 0, last_epoch=9), OffsetOutOfRange),
    ],
)
def test_a_follower_that_is_mistaken_is_told(request_: FollowerFetch, error: type[KafkaError]) -> None:
    """§15.1.3, §15.1.4, §14.5.1"""
    with pytest.raises(error):
        read(leader(records=2), request_, 100)
