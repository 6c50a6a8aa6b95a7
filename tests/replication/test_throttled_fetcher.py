"""Fetchers under a replication quota: throttled partitions that lag are left out while it is exceeded."""

from typing import Any

from ottla.broker.replicas.follower_log import perform
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.replication.fetcher import Fetcher, FetcherKey
from ottla.replication.replica_follower import ReplicaFollower
from ottla.replication.replication_quota import ReplicationQuota
from tests.replication.test_fetcher import CONFIG, ENDPOINT, Talk, forgotten, listed, partition, topic_id
from tests.replication.test_replica_follower import data
from tests.storage.support import NOW

EXCEEDED_MS = 6000
"""After which the rate of the first records is below the quota again."""


class ThrottledTalk(Talk):
    """A follower of each topic, of which `throttled` are. The first records of one exceed its quota for some 5 s."""

    def __init__(self, *topics: str, throttled: str) -> None:
        self.quota = ReplicationQuota()
        self.quota.bytes_per_s = len(data(0, 1)) // 5
        for name in throttled.split():
            self.quota.throttle_all(name)
        fetcher = Fetcher(FetcherKey(1, 0), ENDPOINT, CONFIG, self.quota)
        for topic in topics:
            follower = ReplicaFollower(partition(topic), back_off_ms_max=1000)
            fetcher.add(follower)
            perform(follower.start(), fetcher.performed, now_ms=0, wall_ms=NOW)
        super().__init__(fetcher)

    def receive_of(self, high_watermark: int, **records: Any) -> None:
        """Of each topic these records, or nothing new."""
        responses = [
            FetchableTopicResponse(
                topic_id=topic_id(topic),
                partitions=[PartitionData(partition_index=0, records=each, high_watermark=high_watermark)],
            )
            for topic, each in records.items()
        ]
        self.receive(FetchResponse(session_id=77, responses=responses))


def test_lagging_throttled_partition_is_forgotten_when_exceeded() -> None:
    talk = ThrottledTalk("a", "b", throttled="a")
    talk.ask()
    talk.receive_of(9, a=data(0, 1), b=data(0, 1))

    request = talk.ask()

    assert (listed(request), forgotten(request)) == ([("b", 1)], ["a"])


def test_partition_that_waits_in_the_session_is_left_out_too() -> None:
    """The leader has not answered for it yet, so nothing of it has changed here."""
    talk = ThrottledTalk("a", "b", throttled="a b")
    talk.ask()
    talk.receive_of(9, a=data(0, 1))

    assert talk.ask() is None
    assert talk.fetcher.wake_ms(0) == CONFIG.back_off_ms


def test_throttled_partition_is_fetched_again_below_the_quota() -> None:
    talk = ThrottledTalk("a", "b", throttled="a")
    talk.ask()
    talk.receive_of(9, a=data(0, 1), b=b"")
    talk.ask()
    talk.receive_of(9)
    talk.now_ms = EXCEEDED_MS

    assert listed(talk.ask()) == [("a", 1)]


def test_throttled_partition_in_sync_is_fetched_when_exceeded() -> None:
    talk = ThrottledTalk("a", throttled="a")
    talk.ask()
    talk.receive_of(1, a=data(0, 1))

    assert talk.quota.is_exceeded(talk.now_ms)
    assert listed(talk.ask()) == [("a", 1)]


def test_partition_freed_of_its_throttle_is_fetched_at_once() -> None:
    talk = ThrottledTalk("a", "b", throttled="a b")
    talk.ask()
    talk.receive_of(9, a=data(0, 1))
    assert talk.ask() is None

    talk.quota.throttle("a", [])

    assert listed(talk.ask()) == [("a", 1)]


def test_new_session_leaves_throttled_partitions_out() -> None:
    talk = ThrottledTalk("a", "b", throttled="a")
    talk.ask()
    talk.receive_of(9, a=data(0, 1), b=b"")
    talk.ask()
    talk.fetcher.request_failed(talk.pending, talk.now_ms)
    talk.now_ms += CONFIG.back_off_ms

    assert listed(talk.ask()) == [("b", 0)]


def test_records_of_unthrottled_partitions_do_not_count() -> None:
    talk = ThrottledTalk("a", "b", throttled="a")
    talk.ask()
    talk.receive_of(9, b=data(0, 1))

    assert not talk.quota.is_exceeded(talk.now_ms)
