"""What followers get from their leader: §14.1.4, §14.5.1, §15.1.4. What was read for one is given to the next."""

import asyncio

import pytest

from ottla.broker.replicas.shared_reads import KEPT_BYTES_MAX, SharedReads, _KeptRead, read_for_follower
from ottla.protocol.errors import (
    FencedLeaderEpoch,
    KafkaError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from ottla.replication.partition import Partition
from ottla.replication.replica_reads import FollowerFetch, FollowerRead
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from tests.broker.virtual_cluster import Cluster
from tests.fakes.disk import FakeDisk
from tests.replication.recent import PLENTY, append_and_record, as_in_log, as_sent
from tests.replication.support import EPOCH, fetch, leader
from tests.storage.support import append, batch, new_log

# All reads together may be kept of three of them.
LARGE = "x" * (KEPT_BYTES_MAX // 4)


@pytest.fixture
def log() -> Log:
    log = new_log(FakeDisk())
    append(log, batch("a"), batch("b"), batch("c"))
    return log


def read(reads: SharedReads, log: Log, offset: int, max_bytes: int = PLENTY) -> memoryview | list[memoryview]:
    return reads.read(log, offset, max_bytes, upper_bound=log.log_end_offset)


def test_the_next_follower_gets_what_the_first_one_got(log: Log) -> None:
    reads = SharedReads()

    first = read(reads, log, 1)

    assert read(reads, log, 1) is first
    assert as_sent(first) == as_in_log(log, 1)


def test_who_comes_after_an_append_gets_all_there_is(log: Log) -> None:
    reads = SharedReads()
    read(reads, log, 1)

    append(log, batch("d"))

    assert as_sent(read(reads, log, 1)) == as_in_log(log, 1)


def test_read_ended_by_its_size_is_unchanged_by_an_append(log: Log) -> None:
    reads = SharedReads()
    first = read(reads, log, 0, max_bytes=1)

    append(log, batch("d"))

    assert read(reads, log, 0, max_bytes=1) is first
    assert as_sent(read(reads, log, 0)) == as_in_log(log, 0)


def test_another_offset_is_read_again(log: Log) -> None:
    reads = SharedReads()
    read(reads, log, 1)

    assert as_sent(read(reads, log, 2)) == as_in_log(log, 2)


def test_what_was_appended_last_is_not_read(log: Log) -> None:
    reads = SharedReads()
    begin = append_and_record(reads.recent, log, batch("d"), batch("e"))

    assert reads.recent.read(log, begin, PLENTY)
    assert as_sent(read(reads, log, begin)) == as_in_log(log, begin)


def test_who_is_behind_the_last_appends_reads_the_log(log: Log) -> None:
    reads = SharedReads()
    append_and_record(reads.recent, log, batch("d"))

    assert as_sent(read(reads, log, 1)) == as_in_log(log, 1)


@pytest.mark.parametrize("room", [PLENTY, 1])
def test_recent_appends_skip_the_log_when_room_is_small(log: Log, room: int) -> None:
    """Of all partitions in an answer only the first may be longer than is left."""
    reads = SharedReads()
    begin = append_and_record(reads.recent, log, batch("d"), batch("e"))

    found = reads.read(log, begin, room, upper_bound=log.log_end_offset, min_one_batch=False)

    assert as_sent(found) == (as_in_log(log, begin) if room == PLENTY else b"")


def test_who_has_the_only_follower_keeps_nothing_that_was_read(log: Log) -> None:
    reads = SharedReads()

    found = reads.read(log, 1, PLENTY, upper_bound=log.log_end_offset, keeps=False)

    assert as_sent(found) == as_in_log(log, 1)
    assert read(reads, log, 1) is not found


def test_records_that_were_cut_off_are_not_given_out_again(log: Log) -> None:
    reads = SharedReads()
    read(reads, log, 1)

    log.truncate_to(1)
    append(log, batch("other"), batch("records"))

    assert as_sent(read(reads, log, 1)) == as_in_log(log, 1)


def test_what_cannot_be_read_is_not_kept(log: Log) -> None:
    reads = SharedReads()

    for _ in range(2):
        with pytest.raises(OffsetOutOfRange):
            read(reads, log, 4)


def test_no_more_is_kept_than_one_answer() -> None:
    reads = SharedReads()
    config = LogConfig(max_message_bytes=KEPT_BYTES_MAX)
    logs = [new_log(FakeDisk(), config, topic=f"t{number}") for number in range(4)]
    for log in logs:
        append(log, batch(LARGE))

    first = [read(reads, log, 0) for log in logs]

    assert [read(reads, log, 0) is one for log, one in zip(logs[1:], first[1:], strict=True)] == [True] * 3
    assert read(reads, logs[0], 0) is not first[0]


def test_a_batch_larger_than_that_is_read_every_time() -> None:
    reads, log = SharedReads(), new_log(FakeDisk(), LogConfig(max_message_bytes=2 * KEPT_BYTES_MAX))
    append(log, batch("x" * (KEPT_BYTES_MAX + 1)))

    first = read(reads, log, 0)

    again = read(reads, log, 0)
    assert again is not first
    assert again == first


def serve(target: Partition, request: FollowerFetch, max_bytes: int) -> FollowerRead:
    return read_for_follower(target, request, max_bytes, at_least_one_batch=True, shared=SharedReads())


def test_follower_reads_to_log_end_and_counts_when_noted() -> None:
    """§14.1.4, §15.3.2, T-18"""
    target = leader(records=2)

    found = serve(target, fetch(2, 0), 1 << 20)

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
def test_there_is_nothing_for_a_follower_that_has_everything(request_: FollowerFetch, has_all: bool) -> None:
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
def test_follower_with_a_wrong_epoch_or_offset_gets_an_error(request_: FollowerFetch, error: type[KafkaError]) -> None:
    """§15.1.3, §15.1.4, §14.5.1"""
    with pytest.raises(error):
        serve(leader(records=2), request_, 100)


def test_nothing_is_kept_of_a_deleted_partition() -> None:
    """A follower that does not fetch any more keeps what was appended in memory; another one has read from the log."""
    cluster = Cluster()

    async def story() -> None:
        nodes = await cluster.started(1, 2, 3, min_insync_replicas="1")
        await cluster.create(nodes[0], "t", 1, 3)
        await cluster.until(lambda: all(node.broker.image.topic("t") for node in nodes))
        led = next(node for node in nodes if node.partition("t", 0).leader == node.node_id)
        await asyncio.sleep(1)
        cluster.kill(next(node for node in nodes if node is not led))
        replicas = led.broker.replicas
        partition = replicas.partition("t", 0)

        async def append() -> None:
            for _ in range(3):
                replicas.append_records("t", 0, batch("x", timestamp=cluster.clock.wall_ms()), lambda info, why: None)

        await cluster.spawn(led, append())
        await asyncio.sleep(0.1)
        reads = replicas.shared_reads
        reads._keep(partition.log, _KeptRead(0, 0, PLENTY, 3, 3, memoryview(b"kept")))
        assert reads.recent.held_bytes > 0

        await cluster.delete(led, "t")
        await cluster.until(lambda: replicas.find("t", 0) is None)

        assert (reads.recent.held_bytes, reads._bytes) == (0, 0)
        assert not reads._kept
        assert not reads.recent._tails

    cluster.run(story())
