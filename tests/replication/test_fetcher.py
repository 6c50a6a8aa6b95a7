"""Fetchers and their sessions: R01, R05, §14.4.2."""

from typing import Any

import pytest

from ottla.broker.replicas.follower_log import perform
from ottla.protocol.errors import ErrorCode, KafkaStorageError
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.replication.fetcher import Fetcher, FetcherKey
from ottla.replication.fetcher_manager import FetcherManager, fetcher_id_of
from ottla.replication.fetcher_requests import FetcherConfig, LeaderEndpoint
from ottla.replication.follower_effects import Failed
from ottla.replication.partition import Partition
from ottla.replication.replica_follower import ReplicaFollower
from ottla.replication.replication_quota import ReplicationQuota
from tests.fakes.disk import FakeDisk
from tests.replication.test_replica_follower import data
from tests.storage.support import NOW, append, batch, new_log

HERE = 9
CONFIG = FetcherConfig(replica_id=HERE)
ENDPOINT = LeaderEndpoint("host", 9092)


def topic_id(topic: str) -> bytes:
    return topic.encode().ljust(16, b"\0")


def partition(topic: str, *, leader: int = 1, epoch: int = 1, records: int = 0) -> Partition:
    log = new_log(FakeDisk(), topic=topic)
    for _ in range(records):
        append(log, batch("x"), leader_epoch=0)
    made = Partition(topic, 0, topic_id(topic), log, local_id=HERE)
    take(made, leader=leader, epoch=epoch)
    return made


def take(target: Partition, *, leader: int, epoch: int) -> None:
    target.apply_state(
        leader=leader, leader_epoch=epoch, partition_epoch=epoch, replicas=(leader, HERE), isr=(leader,), now_ms=0
    )


def fetcher_of(*topics: str, records: int = 0) -> Fetcher:
    fetcher = Fetcher(FetcherKey(1, 0), ENDPOINT, CONFIG, ReplicationQuota())
    for topic in topics:
        follower = ReplicaFollower(partition(topic, records=records), back_off_ms_max=1000)
        effects = follower.start()
        fetcher.add(follower)
        perform(effects, fetcher.performed, now_ms=0, wall_ms=NOW)
    return fetcher


class Talk:
    """Ask and answer in turn."""

    def __init__(self, fetcher: Fetcher, *, session_id: int = 77) -> None:
        self.fetcher = fetcher
        self.session_id = session_id
        self.now_ms = 0
        self.facts: list[Any] = []
        self.pending: Any = None

    def ask(self) -> Any:
        self.pending = self.fetcher.next_request(self.now_ms, 55)
        return None if self.pending is None else self.pending.request

    def receive(self, response: Any) -> None:
        effects = self.fetcher.handle_response(self.pending, response, now_ms=self.now_ms)
        self.facts = perform(effects, self.fetcher.performed, now_ms=self.now_ms, wall_ms=NOW)

    def hear_of(self, *topics: str, error_code: int = 0, records: Any = b"") -> None:
        responses = [
            FetchableTopicResponse(
                topic_id=topic_id(topic),
                partitions=[PartitionData(partition_index=0, error_code=error_code, records=records)],
            )
            for topic in topics
        ]
        self.receive(FetchResponse(session_id=self.session_id, responses=responses))


def listed(request: FetchRequest) -> list[tuple[str, int]]:
    return [(t.topic_id.rstrip(b"\0").decode(), p.fetch_offset) for t in request.topics for p in t.partitions]


def forgotten(request: FetchRequest) -> list[str]:
    return [topic.topic_id.rstrip(b"\0").decode() for topic in request.forgotten_topics_data]


def session_of(request: FetchRequest) -> tuple[int, int]:
    return request.session_id, request.session_epoch


# Sessions


def test_only_the_first_fetch_of_a_session_lists_everything() -> None:
    """R05"""
    talk = Talk(fetcher_of("a", "b", "c"))
    first = talk.ask()
    assert (session_of(first), listed(first)) == ((0, 0), [("a", 0), ("b", 0), ("c", 0)])
    assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (HERE, 55)
    talk.hear_of("a", "b", "c")

    second = talk.ask()
    assert (session_of(second), listed(second)) == ((77, 1), [])
    talk.hear_of("b", records=data(0, 1))
    third = talk.ask()
    assert (session_of(third), listed(third)) == ((77, 2), [("b", 1)])


def test_without_a_session_every_fetch_lists_everything() -> None:
    talk = Talk(fetcher_of("a", "b"), session_id=0)
    talk.ask()
    talk.hear_of("a", "b")

    request = talk.ask()

    assert (session_of(request), listed(request)) == ((0, 0), [("a", 0), ("b", 0)])


@pytest.mark.parametrize(
    ("error", "session_id"),
    [(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 77)],
)
def test_a_session_error_leads_to_a_full_fetch_at_once(error: ErrorCode, session_id: int) -> None:
    talk = Talk(fetcher_of("a"))
    talk.ask()
    talk.hear_of("a")
    talk.ask()
    talk.receive(FetchResponse(error_code=int(error)))

    request = talk.ask()

    assert (session_of(request), listed(request)) == ((session_id, 0), [("a", 0)])


def test_lost_response_leads_to_back_off_and_a_new_session() -> None:
    talk = Talk(fetcher_of("a"))
    talk.ask()
    talk.hear_of("a")
    talk.ask()
    talk.fetcher.request_failed(talk.pending, 0)

    assert talk.ask() is None
    talk.now_ms = talk.fetcher.wake_ms(0) or 0
    assert talk.now_ms > 0
    assert session_of(talk.ask()) == (77, 0)


def test_partitions_that_back_off_are_forgotten_and_come_back() -> None:
    talk = Talk(fetcher_of("a", "b", "c"))
    talk.ask()
    talk.hear_of("a", "b", "c")
    talk.ask()
    talk.hear_of("a", error_code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    talk.fetcher.remove((topic_id("b"), 0))

    request = talk.ask()
    assert (listed(request), sorted(forgotten(request))) == ([], ["a", "b"])
    talk.hear_of()
    talk.now_ms = talk.fetcher.wake_ms(0) or 0
    assert listed(talk.ask()) == [("a", 0)]


def test_with_nothing_to_fetch_nothing_is_asked() -> None:
    talk = Talk(fetcher_of("a"))
    talk.ask()
    talk.hear_of("a")
    talk.fetcher.remove((topic_id("a"), 0))

    assert talk.ask() is None
    assert talk.fetcher.wake_ms(0) is None
    assert talk.fetcher.is_empty


def test_response_for_a_removed_partition_renews_the_session() -> None:
    talk = Talk(fetcher_of("a", "b"))
    talk.ask()
    talk.hear_of("a", "b")
    talk.ask()
    removed = talk.fetcher.remove((topic_id("a"), 0))
    talk.hear_of("a", records=data(0, 1))

    assert removed is not None
    assert (talk.facts, removed.partition.log.log_end_offset) == ([], 0)
    assert listed(talk.ask()) == [("b", 0)]


# Rounds


def test_logs_are_reconciled_before_anything_is_fetched() -> None:
    """§14.4.2"""
    talk = Talk(fetcher_of("a", "b", records=2))
    request = talk.ask()
    assert isinstance(request, OffsetForLeaderEpochRequest)
    assert [(t.topic, p.leader_epoch) for t in request.topics for p in t.partitions] == [("a", 0), ("b", 0)]
    talk.receive(
        OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic, partitions=[EpochEndOffset(partition=0, leader_epoch=0, end_offset=end)]
                )
                for topic, end in (("a", 1), ("b", 5))
            ]
        )
    )

    assert listed(talk.ask()) == [("a", 1), ("b", 2)]


def test_a_partition_out_of_range_asks_for_the_leaders_offsets() -> None:
    talk = Talk(fetcher_of("a", "b"))
    talk.ask()
    talk.hear_of("a", error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE))

    request = talk.ask()

    assert isinstance(request, ListOffsetsRequest)
    assert [(t.name, p.timestamp) for t in request.topics for p in t.partitions] == [("a", -1)]
    talk.fetcher.request_failed(talk.pending, 0)
    talk.now_ms = 1000
    assert isinstance(talk.ask(), ListOffsetsRequest), "it asks again"


def epoch_answer(topic: str, *, end_offset: int) -> OffsetForLeaderEpochResponse:
    answer = EpochEndOffset(partition=0, leader_epoch=0, end_offset=end_offset)
    return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic=topic, partitions=[answer])])


def offset_answer(topic: str, *, offset: int) -> ListOffsetsResponse:
    answer = ListOffsetsPartitionResponse(partition_index=0, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic, partitions=[answer])])


@pytest.mark.parametrize("comes_back", [False, True])
@pytest.mark.parametrize("asks_for", ["epoch", "offset"])
def test_response_for_a_replaced_follower_is_dropped(asks_for: str, *, comes_back: bool) -> None:
    """Its log may have been deleted since."""
    talk = Talk(fetcher_of("a", records=2 if asks_for == "epoch" else 0))
    talk.ask()
    response: Any = epoch_answer("a", end_offset=1)
    if asks_for == "offset":
        talk.hear_of("a", error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE))
        assert isinstance(talk.ask(), ListOffsetsRequest)
        response = offset_answer("a", offset=-1)
    follower = talk.fetcher.remove((topic_id("a"), 0))
    assert follower is not None
    log = follower.partition.log
    end_offset, state = log.log_end_offset, follower.state
    log.close_deleted()
    if comes_back:
        talk.fetcher.add(ReplicaFollower(partition("a"), back_off_ms_max=1000))

    talk.receive(response)

    assert (talk.facts, log.log_end_offset, follower.state) == ([], end_offset, state)


# The manager


@pytest.mark.parametrize(
    ("topic", "index", "expected"),
    [("t", 0, 31 * 116 % 4), ("polygenelubricants", 0, 0), ("orders", 3, (31 * -1008770331 + 3) % 2**32)],
)
def test_the_fetcher_of_a_partition_is_kafkas(topic: str, index: int, expected: int) -> None:
    """R01: abs(31 * "…".hashCode() + partition) % n; "polygenelubricants".hashCode() is Integer.MIN_VALUE."""
    if expected >= 2**31:
        expected = 2**32 - expected
    assert fetcher_id_of(topic, index, 4) == expected % 4


def manager(fetchers: int = 1) -> FetcherManager:
    return FetcherManager(CONFIG, fetchers_per_leader=fetchers)


def test_fetcher_lives_as_long_as_it_has_partitions() -> None:
    """R01"""
    fetchers = manager()
    fetchers.add_partition(partition("a"), ENDPOINT)
    fetchers.add_partition(partition("b"), ENDPOINT)
    changes = fetchers.take_changes()
    assert ([f.key for f in changes.started], changes.ended, changes.woken) == ([(1, 0)], [], [])

    fetchers.remove_partition("a", 0)
    assert fetchers.take_changes().ended == []
    fetchers.remove_partition("b", 0)
    assert fetchers.take_changes().ended == changes.started


def test_there_are_at_most_fetchers_times_brokers() -> None:
    fetchers = manager(fetchers=2)
    for n in range(20):
        fetchers.add_partition(partition(f"t{n}", leader=1 + n % 3), ENDPOINT)

    assert {f.key for f in fetchers.take_changes().started} == {(leader, n) for leader in (1, 2, 3) for n in (0, 1)}


def test_fetcher_whose_only_partition_is_exchanged_goes_on() -> None:
    fetchers = manager()
    fetchers.add_partition(partition("a"), ENDPOINT)
    (fetcher,) = fetchers.take_changes().started

    fetchers.remove_partition("a", 0)
    fetchers.add_partition(partition("b"), ENDPOINT)
    changes = fetchers.take_changes()

    assert (changes.started, changes.ended, changes.woken) == ([], [], [fetcher])


def test_fetcher_that_ended_before_it_was_started_is_not_woken() -> None:
    fetchers = manager()
    fetchers.add_partition(partition("a"), ENDPOINT)

    fetchers.remove_partition("a", 0)

    changes = fetchers.take_changes()
    assert (changes.started, changes.ended, changes.woken) == ([], [], [])


def test_partition_gets_a_new_follower_in_every_term() -> None:
    fetchers = manager()
    moving = partition("a")
    fetchers.add_partition(moving, ENDPOINT)
    before = fetchers.follower("a", 0)
    fetchers.take_changes()
    fetchers.add_partition(moving, ENDPOINT)
    assert fetchers.follower("a", 0) is before, "the same term"

    take(moving, leader=2, epoch=2)
    fetchers.add_partition(moving, ENDPOINT)
    changes = fetchers.take_changes()

    assert [f.key.leader_id for f in changes.started] == [2]
    assert [f.key.leader_id for f in changes.ended] == [1]
    assert fetchers.follower("a", 0) is not before


def test_leader_at_a_new_address_gets_a_new_fetcher() -> None:
    fetchers = manager()
    fetchers.add_partition(partition("a"), ENDPOINT)
    (old,) = fetchers.take_changes().started

    fetchers.move_leader(1, LeaderEndpoint("elsewhere", 1))
    changes = fetchers.take_changes()

    assert changes.ended == [old]
    assert [(f.endpoint.host, len(f.followers)) for f in changes.started] == [("elsewhere", 1)]
    assert old.is_empty


# Syncing


def test_partition_that_has_to_be_synced_is_left_out_until_it_is() -> None:
    talk = Talk(fetcher_of("a", "b"))
    log = next(iter(talk.fetcher.followers.values())).partition.log
    log.configure(log.config._replace(flush_messages=1))
    talk.ask()
    talk.hear_of("a", "b")
    talk.ask()
    talk.hear_of("a", records=data(0, 1))
    assert talk.fetcher.is_syncing

    while_syncing = talk.ask()
    talk.hear_of()
    log.flush()
    talk.fetcher.synced((topic_id("a"), 0))
    after = talk.ask()

    assert (listed(while_syncing), forgotten(while_syncing)) == ([], ["a"])
    assert while_syncing.max_wait_ms < CONFIG.max_wait_ms, "it would be held up by the others"
    assert (listed(after), after.max_wait_ms) == ([("a", 1)], CONFIG.max_wait_ms)


def test_quick_sync_keeps_the_partition_in_the_session() -> None:
    talk = Talk(fetcher_of("a"))
    log = next(iter(talk.fetcher.followers.values())).partition.log
    log.configure(log.config._replace(flush_messages=1))
    talk.ask()
    talk.hear_of("a", records=data(0, 1))
    log.flush()
    talk.fetcher.synced((topic_id("a"), 0))

    request = talk.ask()

    assert (session_of(request), listed(request), forgotten(request)) == ((77, 1), [("a", 1)], [])


def test_partition_whose_sync_failed_is_not_fetched_any_more() -> None:
    talk = Talk(fetcher_of("a"))
    follower = next(iter(talk.fetcher.followers.values()))
    log = follower.partition.log
    log.configure(log.config._replace(flush_messages=1))
    talk.ask()
    talk.hear_of("a", records=data(0, 1))
    error = log._local.fail(KafkaStorageError("a broken disk"))

    facts = talk.fetcher.synced((topic_id("a"), 0))

    assert facts == [Failed(follower.partition, error)]
    assert talk.ask() is None
