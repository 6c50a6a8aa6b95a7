"""Random walks of three brokers: I-1 to I-7, I-9 and R12 hold, and the bugs of §21 do not go unnoticed."""

from typing import Any

import pytest

from ottla.broker.replicas.shared_reads import SharedReads, read_for_follower
from ottla.replication.follower_effects import Effect
from ottla.replication.leadership import FetchNoted, Leadership
from ottla.replication.partition import Partition
from ottla.replication.replica_follower import FetchPosition, FollowerState, ReplicaFollower
from ottla.replication.replica_progress import Contact, ReplicaProgress
from ottla.replication.replica_reads import FollowerFetch, FollowerRead
from tests.replication.broker import Kinds
from tests.replication.walk import Walk, first_violation

SEEDS = range(150)
# A mutant that these do not find goes unnoticed for too long.
MUTANT_SEEDS = range(2000)


class StartsFetching(ReplicaFollower):
    """Finds out only by a Fetch that its log diverges (§14.5.1)."""

    def start(self) -> list[Effect]:
        effects = super().start()
        if not effects:
            self.state = FollowerState.FETCHING
        return effects


@pytest.mark.parametrize("follower", [ReplicaFollower, StartsFetching])
@pytest.mark.parametrize("decade", range(0, len(SEEDS), 10))
def test_no_acknowledged_record_is_lost_and_logs_become_equal(decade: int, follower: type[ReplicaFollower]) -> None:
    """I-1…I-7, I-9, R04, R06, R07, R12"""
    for seed in range(decade, decade + 10):
        Walk(seed, Kinds(follower=follower)).run()


def test_the_walks_get_somewhere() -> None:
    walks = [Walk(seed) for seed in range(20)]
    for walk in walks:
        walk.run()

    assert sum(len(walk.oracle.acknowledged) for walk in walks) > 60
    assert sum(walk.cluster.controller.state.leader_epoch for walk in walks) > 100


class TruncatesToHighWatermark(ReplicaFollower):
    """T-14"""

    def start(self) -> list[Effect]:
        return [self._truncate(self.partition.high_watermark, FollowerState.FETCHING)]


class ComparesOneRound(ReplicaFollower):
    """T-15: what the first answer says is taken for all there is to know, as before KIP-279 and KIP-595."""

    def truncation_point(self, epoch: int, end_offset: int) -> tuple[int, bool]:
        offset, _ = super().truncation_point(epoch, end_offset)
        return (min(end_offset, self.partition.log.log_end_offset) if end_offset >= 0 else offset), True

    def position(self) -> FetchPosition:
        return super().position()._replace(last_fetched_epoch=-1)


class CommittedIsrOnly(Leadership):
    """T-16"""

    def is_waited_for(self, replica: int, progress: ReplicaProgress, log_end_offset: int, now_ms: int) -> bool:
        return replica in self.isr_state.isr


class CountsCommittedIsrOnly(Partition):
    leadership_type = CommittedIsrOnly


def read_and_believe(partition: Partition, fetch: FollowerFetch, *arguments: Any, **named: Any) -> FollowerRead:
    """T-18: the follower's position is taken from a fetch that is then answered with an error or a divergence."""
    if partition.leadership is not None and fetch.replica_id in partition.leadership.followers:
        partition.leadership.followers[fetch.replica_id].note_fetch(
            fetch.fetch_offset,
            fetch.log_start_offset,
            fetch.broker_epoch,
            leader_end_offset=partition.log.log_end_offset,
            now_ms=0,
        )
        partition.maybe_raise_high_watermark(0)
    return read_for_follower(partition, fetch, *arguments, **named)


class BelievesEveryAnswer(Partition):
    """T-18: the follower is taken to have what was sent to it, whether or not that arrives."""

    def note_follower_fetch(
        self, fetch: FollowerFetch, leader_end_offset: int, now_ms: int, contact: Contact | None = None
    ) -> FetchNoted:
        sent = read_for_follower(self, fetch, 1 << 20, at_least_one_batch=True, shared=SharedReads())
        end_offset = fetch.fetch_offset if not sent.records else leader_end_offset
        return super().note_follower_fetch(fetch._replace(fetch_offset=end_offset), leader_end_offset, now_ms, contact)


class RaisesBelowMinIsr(Partition):
    """KIP-966 left out: the high watermark rises while too few are in sync."""

    def maybe_raise_high_watermark(self, now_ms: int) -> bool:
        if self.leadership is None:
            return False
        candidate = self.leadership.high_watermark_candidate(self.log.log_end_offset, now_ms)
        rises = candidate > self.high_watermark
        self.high_watermark = max(candidate, self.high_watermark)
        return rises


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(Kinds(follower=TruncatesToHighWatermark), id="T-14"),
        pytest.param(Kinds(follower=ComparesOneRound), id="T-15"),
        pytest.param(Kinds(partition=CountsCommittedIsrOnly), id="T-16"),
        pytest.param(Kinds(read=read_and_believe, follower=StartsFetching), id="T-18-fetch"),
        pytest.param(Kinds(partition=BelievesEveryAnswer), id="T-18-answer"),
        pytest.param(Kinds(partition=RaisesBelowMinIsr), id="KIP-966"),
    ],
)
def test_seeded_bug_is_found(kinds: Kinds) -> None:
    assert first_violation(kinds, MUTANT_SEEDS) is not None
