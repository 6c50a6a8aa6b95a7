"""Whole clusters: a few here, hundreds in `make sim`; and seeds that have found something once."""

import asyncio
import os
from collections import Counter
from types import SimpleNamespace

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from tests.simulation.cluster.replicas import Committed
from tests.simulation.cluster.rest import Rest
from tests.simulation.cluster.world import ClusterWorld
from tests.simulation.met import SEEDS_THAT_MEET_ALL, unmet

# How many of the first seeds `make sim` has run before, as in `.ci/run`.
SEEDS_SIMULATED = int(os.environ.get("OTTLA_SEEDS_SIMULATED", "0"))
# Together they meet everything. Any change of the broker makes another story of a seed: then the next ones have to do.
MEET_MOST = (92, 12, 97, 22, 118, 122, 87, 42, 126, 239)
# These run always, the others at night: the broker has changed since they failed, and each has another story now.
FAILED_LATELY = [
    pytest.param(330105, id="slow-reader-whose-answers-outgrew-its-window"),
    pytest.param(331069, id="slow-reader-that-was-answered-from-a-slow-disk-for-seconds"),
    pytest.param(332163, id="abort-in-the-place-of-a-commit-that-was-emptied"),
    pytest.param(332318, id="batch-that-overtook-a-refused-one-when-its-producer-was-forgotten"),
    pytest.param(334892, id="slow-reader-whose-end-of-stream-came-behind-what-it-does-not-read"),
    pytest.param(336622, id="compaction-by-a-transaction-whose-marker-was-not-committed"),
    pytest.param(337914, id="answer-of-a-leader-that-died-in-the-same-step"),
    pytest.param(339669, id="transaction-that-was-open-when-its-coordinators-clock-was-set-back"),
    pytest.param(342214, id="follower-of-a-deposed-leader-that-had-what-its-successor-committed"),
    pytest.param(342546, id="producers-that-expired-in-the-older-of-two-copies"),
]
FAILED_EARLIER = [
    pytest.param(330164, id="fetch-of-a-replica-that-left-and-was-assigned-again"),
    pytest.param(328420, id="names-that-an-abandoned-swap-gave-and-no-flush-synced"),
    pytest.param(327022, id="emptied-marker-of-a-transaction-that-a-follower-has-open"),
    pytest.param(326655, id="eligible-leader-killed-while-it-dropped-what-its-leader-had-deleted"),
    pytest.param(322828, id="marker-of-a-coordinator-that-was-replaced-and-does-not-know-it"),
    pytest.param(321034, id="newer-producer-epoch-at-a-leader-that-was-cut-off-for-longer-than-its-session"),
    pytest.param(319534, id="offset-of-a-topic-that-its-group-had-not-subscribed-to"),
    pytest.param(318669, id="transition-refused-by-a-log-that-failed-before-its-record-was-committed"),
    pytest.param(318095, id="time-looked-for-in-a-batch-that-rotted"),
    pytest.param(308553, id="epoch-of-an-emptied-marker-beside-those-that-had-the-marker"),
    pytest.param(308586, id="transaction-whose-topics-were-deleted-before-its-end"),
    pytest.param(310315, id="newer-epoch-that-was-never-committed-beside-all-that-lost-power"),
    pytest.param(310892, id="transaction-that-began-when-another-clock-was-minutes-ahead"),
    pytest.param(309393, id="question-asked-again-of-a-coordinator-that-does-not-answer"),
    pytest.param(305743, id="first-offset-of-a-group-asked-for-before-its-marker"),
    pytest.param(306911, id="batch-that-a-follower-alone-had-where-its-leader-deleted-others"),
    pytest.param(309011, id="deleted-batch-that-came-back-behind-its-repetition"),
    pytest.param(241, id="record-of-a-key-at-an-offset-that-another-leader-wrote"),
    pytest.param(285, id="flush-messages-raised-before-a-blackout"),
    pytest.param(41, id="coordinator-log-on-a-rotten-disk"),
    pytest.param(85, id="death-within-a-deletion"),
    pytest.param(96, id="clients-of-a-broker-that-waits-for-its-store"),
    pytest.param(297, id="diverging-records-below-the-log-start"),
    pytest.param(0, id="diverging-records-that-are-deleted-with-the-next-fetch"),
    pytest.param(130, id="session-that-ends-before-its-activation-begins"),
    pytest.param(174, id="epoch-of-a-log-that-was-lost"),
    pytest.param(1012, id="high-watermark-above-a-log-whose-restart-the-disk-refused"),
    pytest.param(107610, id="recovery-point-that-the-disk-did-not-let-fall"),
    pytest.param(109_099, id="base-offset-that-rotted"),
    pytest.param(302_012, id="request-without-an-answer-to-a-broker-that-starts"),
    pytest.param(302_596, id="tombstone-that-a-follower-never-had"),
    pytest.param(300_691, id="log-of-a-replaced-leader-that-ends-where-the-leaders-begins"),
    pytest.param(300_508, id="base-offset-that-rotted-in-a-cold-segment"),
    pytest.param(1117, id="leader-epoch-that-rotted"),
    pytest.param(3056, id="name-of-the-mark-of-a-log-without-gaps-lost-alone"),
    pytest.param(20_020, id="coordinator-topic-asked-for-while-no-broker-is-active"),
    pytest.param(20_298, id="transaction-asked-about-in-an-earlier-term"),
    pytest.param(50_394, id="transaction-of-which-no-other-replica-of-its-coordinator-knows"),
    pytest.param(50_594, id="group-that-died-and-began-again"),
    pytest.param(50_980, id="batches-sent-again-to-a-leader-that-had-truncated"),
    pytest.param(98, id="replica-that-copies-as-slowly-as-others-write"),
    pytest.param(100_015, id="diverging-records-below-the-log-start-of-a-leader-that-forgot-their-epochs"),
    pytest.param(100_353, id="coordinator-topic-that-the-store-was-too-slow-to-create"),
    pytest.param(100_540, id="coordinator-that-no-descriptor-was-left-to-load"),
    pytest.param(100_856, id="follower-without-a-session-whose-leader-forgot-its-log-start"),
    pytest.param(101_047, id="high-watermark-of-a-deleted-topic-of-the-same-name"),
    pytest.param(101_269, id="records-that-a-failed-sync-left-in-the-cache"),
    pytest.param(101_285, id="replica-that-was-away-until-a-tombstone-expired"),
    pytest.param(101_584, id="offsets-asked-of-a-coordinator-that-is-being-loaded"),
    pytest.param(101_889, id="torn-segment-behind-a-lost-end"),
    pytest.param(102_368, id="only-record-that-a-follower-remembers-as-deleted"),
    pytest.param(102_290, id="generation-made-twice-by-coordinators-of-which-one-knew-more"),
    pytest.param(102_785, id="leader-epoch-that-a-failed-write-took-back"),
    pytest.param(103_736, id="end-of-a-transaction-asked-of-a-deposed-coordinator"),
    pytest.param(102_624, id="record-below-the-high-watermark-taken-for-in-doubt"),
    pytest.param(103_699, id="leader-that-cannot-read-what-it-commits"),
    pytest.param(104_153, id="batch-sent-to-a-deposed-leader-that-misses-those-before"),
    pytest.param(105_445, id="sequence-that-a-restarted-follower-leads-without"),
    pytest.param(104_692, id="log-whose-records-were-all-deleted-before-all-lost-data"),
    pytest.param(104_564, id="index-of-a-closed-log-that-a-blackout-tore"),
    pytest.param(150_214, id="replica-that-was-away-until-the-marker-of-an-aborted-transaction-expired"),
    pytest.param(105_648, id="transaction-that-hangs-in-a-replica-that-was-away-until-its-marker-expired"),
    pytest.param(105_816, id="aborted-record-that-a-replica-without-its-marker-keeps"),
    pytest.param(151_177, id="snapshot-of-producers-between-markers-above-the-high-watermark"),
    pytest.param(151_145, id="group-coordinator-that-no-descriptor-was-left-to-load"),
    pytest.param(223, id="user-made-again-at-another-broker-and-deleted-here"),
    pytest.param(7_041, id="reassignment-away-from-the-only-replica-that-had-kept-its-power"),
    pytest.param(53, id="swap-that-the-disk-refused-abandoned-by-the-next-compaction"),
    pytest.param(410022, id="decision-whose-sync-failed-and-that-was-committed-then"),
    pytest.param(305483, id="producer-of-which-one-copy-has-but-the-marker"),
    pytest.param(306093, id="record-that-an-aborted-one-without-its-marker-has-replaced"),
    pytest.param(306094, id="segment-of-an-aborted-transaction-deleted-while-it-is-read"),
    pytest.param(307549, id="producer-whose-transaction-hangs-while-the-others-expire"),
]


@pytest.mark.skipif(SEEDS_SIMULATED >= SEEDS_THAT_MEET_ALL, reason="make sim has asked more seeds")
def test_seeds_hold_the_invariants_and_meet_everything():
    counts = Counter()
    for seed in (*MEET_MOST, *range(SEEDS_THAT_MEET_ALL)):
        if not unmet("cluster", counts):
            break
        outcome = ClusterWorld(seed).run()
        assert outcome.violations == []
        counts.update(outcome.counts)
    assert unmet("cluster", counts) == []


@pytest.mark.parametrize("seed", [26, 126])
def test_acknowledged_records_survive_a_blackout(seed):
    """Where every write is synced; and every partition has a leader when all are back."""
    outcome = ClusterWorld(seed).run()

    assert outcome.counts["blackout"] > 0
    assert outcome.counts["killed before a sync"] > 0
    assert outcome.violations == []


@pytest.mark.parametrize("seed", FAILED_LATELY)
def test_seeds_that_failed_lately_pass(seed):
    assert ClusterWorld(seed).run().violations == []


@pytest.mark.skipif("OTTLA_FAILED_SEEDS" not in os.environ, reason="they run at night: OTTLA_FAILED_SEEDS=1")
@pytest.mark.parametrize("seed", FAILED_EARLIER)
def test_seeds_that_failed_earlier_pass(seed):
    assert ClusterWorld(seed).run().violations == []


@pytest.mark.parametrize(("is_committed", "violated"), [(True, []), (False, ["I-4"])])
def test_batch_acknowledged_at_an_offset_of_others_is_found(is_committed, violated):
    """Also below the log start, where no reader comes."""
    world = ClusterWorld(0)
    sequence = (7, 0, 3)
    committed = Committed("t-0", end_offset=5, start_offset=5, sequences={sequence} if is_committed else set())
    world.truth.image, world.inspector.committed_now = SimpleNamespace(topic=lambda _: "t"), lambda _: committed

    world.check_is_committed(("t", 0), 4, ["a"], sequence)
    world.loop.close()

    assert [each.partition(":")[0] for each in world.judge.violations] == violated


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (ErrorCode.NONE, False),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True),
        pytest.param(ErrorCode.NOT_COORDINATOR, True, id="elected-a-moment-before"),
    ],
)
def test_a_coordinator_is_judged_when_it_knows_that_it_is_one(error, waits):
    async def call(*_, **__):
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="group0", error_code=int(error))])

    judge = SimpleNamespace(groups={"group0": SimpleNamespace(offsets=SimpleNamespace(partitions=list))})
    world = SimpleNamespace(judge=judge, loop=SimpleNamespace(now_us=0), authority_of=lambda *_: (1, 7, 3))

    assert asyncio.run(Rest(world)._must_wait_for_offsets("group0", SimpleNamespace(call=call))) is waits
