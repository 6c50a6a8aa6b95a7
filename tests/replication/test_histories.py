"""Why a follower does not simply truncate to its high watermark: the histories of §14.5.6, with three brokers."""

from ottla.replication.follower_effects import Truncated
from ottla.replication.replica_follower import FollowerState
from tests.replication.cluster import Cluster
from tests.replication.oracle import Oracle, batches_of, log_bytes


def grown(cluster: Cluster, leader: int, count: int) -> None:
    for _ in range(count):
        assert cluster.append(leader)


def epochs(cluster: Cluster, broker: int) -> list[int]:
    return [epoch for _, epoch, _ in batches_of(cluster.brokers[broker])]


def lead(cluster: Cluster, broker: int) -> None:
    cluster.controller.elect([broker])


def test_1_restarted_follower_keeps_records_above_high_watermark() -> None:
    """Acknowledged by A and B, not yet known as such to B: B restarts, A dies, B leads. T-14"""
    cluster = Cluster()
    oracle = Oracle(cluster)
    cluster.run()
    grown(cluster, 1, 2)
    cluster.run(rounds=1)
    cluster.run(rounds=1)
    oracle.check()
    assert len(oracle.acknowledged) == 2
    follower = cluster.brokers[2]
    follower.partition.high_watermark = 0
    follower.directory.high_watermark_checkpoint({("t", 0): 0}).write()

    cluster.kill(2)
    cluster.restart(2)
    assert cluster.brokers[2].partition.high_watermark == 0, "the high watermark it restarts with is stale"
    cluster.kill(1)
    cluster.controller.fence(1)
    lead(cluster, 2)
    cluster.run()

    oracle.check()
    oracle.check_logs()
    oracle.check_healed()


def test_2_different_logs_of_one_length_differ_by_their_epochs() -> None:
    """A has records no other broker has; B leads and writes others at the same offsets; A returns. R12"""
    cluster = Cluster()
    oracle = Oracle(cluster)
    cluster.run()
    grown(cluster, 1, 2)
    cluster.kill(1)
    cluster.controller.fence(1)
    cluster.run()
    leader = cluster.controller.state.leader
    grown(cluster, leader, 2)
    cluster.run()

    cluster.restart(1)
    assert log_bytes(cluster.brokers[1]) != log_bytes(cluster.brokers[leader])
    cluster.run()

    oracle.check()
    oracle.check_logs()
    oracle.check_healed()
    assert epochs(cluster, 1) == epochs(cluster, leader)


def test_3_two_quick_elections_need_two_rounds_of_reconciling() -> None:
    """The leader does not know the follower's epoch, and the epoch it answers with is one the follower has not. T-15

    broker 1    0 0 | 2 2       led epoch 2 alone
    broker 2    0 0 | 1 1 | 3   led epoch 1 alone, then leads epoch 3
    """
    cluster = Cluster(min_isr=1)
    oracle = Oracle(cluster)
    controller = cluster.controller
    cluster.run()
    grown(cluster, 1, 2)
    cluster.run()
    lead(cluster, 2)
    cluster.brokers[2].learn(len(controller.history) - 1)
    grown(cluster, 2, 2)
    lead(cluster, 1)
    cluster.brokers[1].learn(len(controller.history) - 1)
    grown(cluster, 1, 2)
    lead(cluster, 2)
    assert [epochs(cluster, 1), epochs(cluster, 2)] == [[0, 0, 2, 2], [0, 0, 1, 1]]

    cluster.run()

    oracle.check_logs()
    oracle.check_healed()
    assert epochs(cluster, 1) == [0, 0, 1, 1]


def test_4_divergent_follower_does_not_raise_the_high_watermark() -> None:
    """Its log is longer than the leader's, and differs. T-18"""
    cluster = Cluster()
    oracle = Oracle(cluster)
    cluster.run()
    grown(cluster, 1, 1)
    cluster.run()
    grown(cluster, 1, 5)
    lead(cluster, 2)
    for broker in (1, 2):
        cluster.brokers[broker].learn(len(cluster.controller.history) - 1)
    grown(cluster, 2, 2)
    leader = cluster.brokers[2]
    before = leader.partition.high_watermark
    follower = cluster.brokers[1].fetchers.follower("t", 0)
    assert follower is not None
    follower.state = FollowerState.FETCHING

    cluster.brokers[1].ask()
    while cluster.network:
        cluster.deliver(cluster.network[0])

    assert leader.partition.high_watermark == before
    progress = leader.partition.leadership.followers[1]
    assert progress.log_end_offset == -1, "nothing counts before the logs agree"
    assert any(isinstance(fact, Truncated) for _, fact in cluster.facts)
    cluster.run()
    oracle.check()
    oracle.check_healed()
