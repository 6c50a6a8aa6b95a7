"""What a leader looks at when a follower fetches: only what may be news."""

from dataclasses import dataclass
from typing import Any

from ottla.replication.fetch_session import FetchTarget
from ottla.replication.follower_session import FollowerSession
from ottla.replication.partition import Partition
from ottla.replication.replica_reads import FollowerFetch
from tests.replication.support import EPOCH, leader, take, write
from tests.storage.support import TOPIC_ID

LAG_MS = 30_000


@dataclass
class SentData:
    error_code: int = 0
    high_watermark: int = 0
    log_start_offset: int = 0
    records: Any = b""
    diverging_epoch: Any = None
    preferred_read_replica: int = -1


def target_at(offset: int) -> FetchTarget:
    fields = {"current_leader_epoch": EPOCH, "log_start_offset": 0, "uses_topic_ids": True}
    return FetchTarget("t", TOPIC_ID, 0, fetch_offset=offset, max_bytes=100, **fields)  # type: ignore[arg-type]


def session_of(replica: int, target: FetchTarget, partition: Partition) -> FollowerSession:
    session = FollowerSession()
    session.replica_id = replica
    session.update([target], ())
    session.watch(target, partition)
    return session


def fetches(session: FollowerSession, target: FetchTarget, partition: Partition, *, now_ms: int, **sent: Any) -> None:
    """One fetch of the follower, and its answer; what is in the session is looked at only if it is due."""
    for due in session.targets_to_check():
        fetch = FollowerFetch(session.replica_id, -1, due.fetch_offset, 0, EPOCH, -1)
        partition.note_follower_fetch(fetch, partition.log.log_end_offset, now_ms, session.contact)
        answer = SentData(high_watermark=partition.high_watermark, **sent)
        due.last_sent_high_watermark, due.last_sent_log_start_offset = answer.high_watermark, answer.log_start_offset
        session.mark_sent(target, answer)
    session.contact.last_fetch_ms = now_ms


def test_a_follower_that_has_everything_is_not_looked_at_again() -> None:
    partition, target = leader(isr=(1, 2)), target_at(0)
    session = session_of(2, target, partition)
    assert session.targets_to_check() == [target]

    fetches(session, target, partition, now_ms=5)

    assert session.targets_to_check() == []


def test_an_append_a_new_isr_or_another_leader_is_news() -> None:
    partition, target = leader(isr=(1, 2)), target_at(0)
    session = session_of(2, target, partition)

    for happens in (
        lambda: write(partition, 1),
        lambda: take(partition, version=2, isr=(1, 2, 3)),
        lambda: take(partition, lead=3, epoch=6, version=3),
    ):
        session.dirty.clear()
        happens()
        assert session.targets_to_check() == [target]


def test_a_follower_that_is_not_in_sync_is_looked_at_every_time() -> None:
    """Each of its fetches may be the one that brings it back."""
    partition, target = leader(isr=(1, 3)), target_at(0)
    session = session_of(2, target, partition)

    fetches(session, target, partition, now_ms=5)

    assert session.targets_to_check() == [target]


def test_errors_and_divergence_are_sent_again() -> None:
    partition, target = leader(isr=(1, 2)), target_at(0)
    session = session_of(2, target, partition)

    fetches(session, target, partition, now_ms=5, error_code=6)
    assert session.targets_to_check() == [target]
    fetches(session, target, partition, now_ms=6, diverging_epoch=(1, 2))
    assert session.targets_to_check() == [target]


def test_fetches_that_are_not_looked_at_keep_a_follower_in_sync() -> None:
    """§14.1.2: it was at the leader's end at each of them, also when the next append comes long after."""
    partition, target = leader(isr=(1, 2), min_isr=1), target_at(0)
    session = session_of(2, target, partition)
    fetches(session, target, partition, now_ms=5)
    fetches(session, target, partition, now_ms=10 * LAG_MS)

    write(partition, 1)

    assert partition.maybe_shrink_isr(11 * LAG_MS) is None
    assert partition.maybe_shrink_isr(11 * LAG_MS + 1) is not None


def test_a_forgotten_partition_is_not_kept_in_sync_by_the_others() -> None:
    partition, target = leader(isr=(1, 2), min_isr=1), target_at(0)
    session = session_of(2, target, partition)
    fetches(session, target, partition, now_ms=5)

    session.update((), [target.key])
    session.contact.last_fetch_ms = 10 * LAG_MS
    write(partition, 1)

    assert partition.sessions.targets == {}
    assert partition.maybe_shrink_isr(10 * LAG_MS) is not None


def test_the_end_of_an_old_session_does_not_touch_a_new_one() -> None:
    """A broker that was killed leaves its session behind, until somebody needs the place."""
    partition, old_target, target = leader(isr=(1, 2), min_isr=1), target_at(0), target_at(0)
    old = session_of(2, old_target, partition)
    fetches(old, old_target, partition, now_ms=5)
    session = session_of(2, target, partition)
    fetches(session, target, partition, now_ms=6)

    old.close()
    fetches(session, target, partition, now_ms=10 * LAG_MS)
    write(partition, 1)

    assert partition.maybe_shrink_isr(11 * LAG_MS) is None


def test_closed_session_is_notified_of_nothing() -> None:
    partition, target = leader(isr=(1, 2)), target_at(0)
    session = session_of(2, target, partition)

    session.close()

    assert partition.sessions.targets == {}


def test_who_has_left_the_isr_is_not_waited_for() -> None:
    """It may have gone of its own will, with a full disk, and look as if it had just caught up."""
    partition = leader(isr=(1, 2, 3))
    for replica in (2, 3):
        fetch = FollowerFetch(replica, -1, 0, 0, EPOCH, -1)
        partition.note_follower_fetch(fetch, 0, 0)
    write(partition, 1)
    take(partition, version=2, isr=(1, 2))

    partition.note_follower_fetch(FollowerFetch(2, -1, 1, 0, EPOCH, -1), 1, 1)

    assert partition.high_watermark == 1


def test_the_high_watermark_waits_for_an_empty_elr() -> None:
    """docs/decisions/0009: also where `min.insync.replicas` says here that the ISR is large enough."""
    partition = leader(isr=(1,), min_isr=1)
    state = {"leader": 1, "leader_epoch": EPOCH, "replicas": (1, 2, 3), "isr": (1,), "now_ms": 0}
    partition.apply_state(partition_epoch=2, elr=(2,), **state)  # type: ignore[arg-type]
    write(partition, 1)
    assert partition.high_watermark == 0

    partition.apply_state(partition_epoch=3, elr=(), **state)  # type: ignore[arg-type]

    assert partition.high_watermark == 1


def test_changed_targets_are_given_once_and_not_when_forgotten() -> None:
    partition, target = leader(isr=(1, 2)), target_at(0)
    session = session_of(2, target, partition)
    session.changed[target.key] = target

    assert list(session.take_changed().values()) == [target]
    assert session.take_changed() == {}

    session.changed[target.key] = target
    session.update((), [target.key])
    assert session.take_changed() == {}
