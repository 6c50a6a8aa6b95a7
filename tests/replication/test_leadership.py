"""What a leader knows and decides in one term: §14.1, §14.6, §14.7, KIP-392."""

from dataclasses import dataclass, field

import pytest

from ottla.protocol.errors import ErrorCode, NotLeaderOrFollower
from ottla.replication.isr import CommittedIsr, IsrOutcome, PendingExpandIsr, PendingShrinkIsr, outcome_of
from ottla.replication.leadership import Leadership, ReplicationRules, Term
from ottla.replication.replica_progress import NEVER_MS, ReplicaProgress
from ottla.replication.replica_reads import FollowerFetch

LAG = 100


@dataclass
class Registered:
    ineligible: set[int] = field(default_factory=set)

    def epoch_of(self, broker_id: int) -> int:
        return 100 + broker_id

    def may_join_isr(self, broker_id: int, broker_epoch: int) -> bool:
        return broker_id not in self.ineligible and broker_epoch in (-1, self.epoch_of(broker_id))


def leadership(
    isr: tuple[int, ...] = (1, 2, 3), *, start_offset: int = 0, ineligible: tuple[int, ...] = ()
) -> Leadership:
    term = Term("t", 0, bytes(16), 1, 5, start_offset)
    rules = ReplicationRules(Registered(set(ineligible)), lag_ms_max=LAG)
    return Leadership(term, rules, partition_epoch=7, replicas=(1, 2, 3), isr=isr, now_ms=1000)


def fetch(
    leader: Leadership, replica: int, offset: int, *, end: int = 10, now: int = 1000, epoch: int | None = None
) -> None:
    epoch = 100 + replica if epoch is None else epoch
    leader.note_fetch(FollowerFetch(replica, epoch, offset, 0, 5, -1), leader_end_offset=end, now_ms=now)


# Progress


def test_a_follower_at_the_end_is_caught_up_now() -> None:
    """§14.1.2"""
    progress = ReplicaProgress()
    progress.note_fetch(10, 0, -1, leader_end_offset=10, now_ms=50)

    assert progress.last_caught_up_ms == 50
    assert progress.is_caught_up(10, 10_000, LAG), "as long as nothing is written"
    assert progress.is_caught_up(11, 150, LAG)
    assert not progress.is_caught_up(11, 151, LAG)


def test_follower_at_the_former_log_end_was_caught_up_then() -> None:
    progress = ReplicaProgress()
    progress.note_fetch(5, 0, -1, leader_end_offset=10, now_ms=50)
    assert progress.last_caught_up_ms == NEVER_MS

    progress.note_fetch(10, 0, -1, leader_end_offset=20, now_ms=90)

    assert progress.last_caught_up_ms == 50


def test_fetch_of_an_earlier_registration_is_refused() -> None:
    leader = leadership()
    fetch(leader, 2, 5, epoch=8)

    with pytest.raises(NotLeaderOrFollower):
        fetch(leader, 2, 9, epoch=7)
    with pytest.raises(NotLeaderOrFollower):
        fetch(leader, 4, 9)
    assert leader.followers[2].log_end_offset == 5


# High watermark


def test_the_high_watermark_waits_for_every_member() -> None:
    """§14.6.1, R06"""
    leader = leadership()
    assert leader.high_watermark_candidate(10, 1000) == -1, "of members nothing is known yet"
    fetch(leader, 2, 10)
    fetch(leader, 3, 4)

    assert leader.high_watermark_candidate(10, 1000) == 4


def test_high_watermark_waits_for_a_replica_about_to_join() -> None:
    leader = leadership(isr=(1, 2))
    fetch(leader, 2, 12, end=12)
    assert leader.high_watermark_candidate(12, 1000) == 12, "a replica that never fetched is not waited for"
    fetch(leader, 3, 10)

    assert leader.high_watermark_candidate(12, 1000) == 10
    assert leader.high_watermark_candidate(12, 1000 + LAG + 1) == 12, "it lags now"


def test_high_watermark_ignores_a_replica_that_may_not_join() -> None:
    leader = leadership(isr=(1, 2), ineligible=(3,))
    fetch(leader, 2, 12, end=12)
    fetch(leader, 3, 10)

    assert leader.high_watermark_candidate(12, 1000) == 12


# ISR


def test_joining_replica_counts_for_high_watermark_not_min_isr() -> None:
    """§14.7.3, §14.7.5, T-16"""
    leader = leadership(isr=(1, 2))
    fetch(leader, 2, 10)
    fetch(leader, 3, 10)

    change = leader.maybe_expand(3, high_watermark=10, log_start_offset=0)

    assert change is not None
    assert (change.leader_epoch, change.partition_epoch) == (5, 7)
    assert change.isr == ((1, 101), (2, 102), (3, 103))
    assert isinstance(leader.isr_state, PendingExpandIsr)
    assert (leader.isr_state.isr, leader.isr_state.maximal) == ((1, 2), (1, 2, 3))
    assert leader.high_watermark_candidate(20, 1000 + 10 * LAG) == 10, "however long it takes"
    assert leader.maybe_expand(3, 10, 0) is None, "one change at a time"


def test_a_leaving_replica_counts_until_its_removal_is_committed() -> None:
    leader = leadership()
    fetch(leader, 2, 10, now=1000 + LAG + 1)
    fetch(leader, 3, 4)

    change = leader.maybe_shrink(11, 1000 + LAG + 1)

    assert change is not None
    assert change.isr == ((1, 101), (2, 102))
    assert isinstance(leader.isr_state, PendingShrinkIsr)
    assert (leader.isr_state.isr, leader.isr_state.maximal) == ((1, 2, 3), (1, 2, 3))
    assert leader.high_watermark_candidate(11, 1000 + LAG + 1) == 4
    leader.adopt(partition_epoch=8, replicas=(1, 2, 3), isr=(1, 2))
    assert leader.high_watermark_candidate(11, 1000 + LAG + 1) == 10


def test_members_have_the_whole_lag_limit_to_show_up() -> None:
    """§14.7.1, R07"""
    leader = leadership()

    assert leader.maybe_shrink(10, 1000 + LAG) is None
    change = leader.maybe_shrink(10, 1000 + LAG + 1)
    assert change is not None
    assert change.isr == ((1, 101),), "the leader never leaves"


@pytest.mark.parametrize(
    ("offset", "epoch", "ineligible", "joins"),
    [
        pytest.param(10, 103, (), True, id="caught up"),
        pytest.param(8, 103, (), True, id="at the high watermark and the start of the term"),
        pytest.param(7, 103, (), False, id="below the start of the term"),
        pytest.param(5, 103, (), False, id="below the high watermark"),
        pytest.param(10, 99, (), False, id="of another registration"),
        pytest.param(10, 103, (3,), False, id="fenced or shutting down"),
    ],
)
def test_who_may_join(offset: int, epoch: int, ineligible: tuple[int, ...], joins: bool) -> None:
    """§14.7.2"""
    leader = leadership(isr=(1, 2), start_offset=8, ineligible=ineligible)
    fetch(leader, 3, offset, epoch=epoch)

    assert (leader.maybe_expand(3, high_watermark=6, log_start_offset=0) is not None) is joins


def test_follower_joins_once_it_deleted_what_its_leader_did() -> None:
    """§14.7.2: they may diverge from those that the leader had there."""
    leader = leadership(isr=(1, 2))
    fetch(leader, 3, 10)

    assert leader.maybe_expand(3, high_watermark=10, log_start_offset=4) is None
    leader.note_fetch(FollowerFetch(3, 103, 10, 4, 5, -1), leader_end_offset=10, now_ms=1001)
    assert leader.maybe_expand(3, high_watermark=10, log_start_offset=4) is not None


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ErrorCode.NONE, IsrOutcome.ADOPTED),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, IsrOutcome.RETURNED),
        (ErrorCode.INELIGIBLE_REPLICA, IsrOutcome.RETURNED),
        (ErrorCode.FENCED_LEADER_EPOCH, IsrOutcome.AWAITS_METADATA),
        (ErrorCode.INVALID_UPDATE_VERSION, IsrOutcome.AWAITS_METADATA),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, IsrOutcome.AWAITS_METADATA),
        (ErrorCode.UNKNOWN_TOPIC_ID, IsrOutcome.AWAITS_METADATA),
        (ErrorCode.INVALID_REQUEST, IsrOutcome.AWAITS_METADATA),
        (ErrorCode.NEW_LEADER_ELECTED, IsrOutcome.AWAITS_METADATA),
        (ErrorCode.REQUEST_TIMED_OUT, IsrOutcome.RESEND),
        (ErrorCode.NOT_CONTROLLER, IsrOutcome.RESEND),
        (ErrorCode.STALE_BROKER_EPOCH, IsrOutcome.RESEND),
        (ErrorCode.UNKNOWN_SERVER_ERROR, IsrOutcome.RESEND),
    ],
)
def test_what_an_answer_means(error: ErrorCode, outcome: IsrOutcome) -> None:
    """§14.7.4"""
    assert outcome_of(error) is outcome


def test_new_committed_state_voids_a_change_and_keeps_progress() -> None:
    leader = leadership(isr=(1, 2))
    fetch(leader, 3, 10)
    leader.maybe_expand(3, 10, 0)

    leader.adopt(partition_epoch=8, replicas=(1, 3, 4), isr=(1,))

    assert leader.isr_state == CommittedIsr((1,))
    assert leader.followers[3].log_end_offset == 10
    assert sorted(leader.followers) == [3, 4]


# Readers


@pytest.mark.parametrize(
    ("rack", "offset", "chosen"),
    [
        pytest.param("a", 5, 1, id="the leader is in the rack"),
        pytest.param("b", 5, 3, id="the one with the most records"),
        pytest.param("b", 9, 3, id="the only one that has the offset"),
        pytest.param("b", 11, 1, id="no replica in the rack has it"),
        pytest.param("z", 5, 1, id="no replica is in the rack"),
    ],
)
def test_the_nearest_replica(rack: str, offset: int, chosen: int) -> None:
    """§15.3.5"""
    leader = leadership()
    fetch(leader, 2, 8)
    fetch(leader, 3, 10)

    assert leader.nearest_replica(offset, rack, {1: "a", 2: "b", 3: "b"}.get) == chosen


def test_a_replica_that_is_dead_or_not_in_sync_is_not_read_from() -> None:
    leader = leadership(isr=(1, 2))
    fetch(leader, 2, 8)
    fetch(leader, 3, 10)

    assert leader.nearest_replica(5, "b", {1: "a", 2: "b", 3: "b"}.get) == 2
    assert leader.nearest_replica(5, "b", {1: "a", 2: None, 3: "b"}.get) == 1
    assert leader.lowest_log_start_offset(4, lambda broker: True) == 0
