"""The next state of a partition, as a table and under a model that crashes brokers and loses their data.

The model has logs of numbered records, followers that lag, leaders that act on old states, brokers that come back with
nothing but what the disk had. It looks for what must never be: a lost acknowledged record, two leaders of one epoch, an
epoch that falls."""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.cluster.image import NO_LEADER, PartitionInfo
from ottla.cluster.partition_state import Conditions, LeaderElection, next_state
from ottla.cluster.topics import new_partition
from tests.cluster.images import conditions, state

UNCLEAN = {"unclean": True}
PREFERRED = {"election": LeaderElection.PREFERRED}
BY_HAND = {"election": LeaderElection.UNCLEAN}


@pytest.mark.parametrize(
    ("before", "now", "after"),
    [
        pytest.param(state(), conditions("123"), state(), id="nothing happened"),
        pytest.param(state(), conditions("23"), state("23", 2), id="leader fenced"),
        pytest.param(state("31"), conditions("23"), state("3", 3, elr="1"), id="leader from the ISR, not the replicas"),
        pytest.param(state("123", 2), conditions("123"), state("123", 2), id="a valid leader stays"),
        pytest.param(state("123"), conditions("12"), state("12"), id="follower fenced, ISR large enough"),
        pytest.param(state("12"), conditions("1"), state("1", elr="2"), id="follower fenced, ISR too small"),
        pytest.param(state("123"), conditions("1"), state("1", elr="23"), id="two leave at once"),
        pytest.param(state("1", elr="2"), conditions("23"), state("2", 2, elr="1"), id="leader from the ELR"),
        pytest.param(
            state("1", elr="2"),
            conditions("3"),
            state("1", -1, elr="2", last_leader=1),
            id="neither ISR nor ELR active",
        ),
        pytest.param(
            state("1", -1, elr="2", last_leader=1), conditions("23"), state("2", 2, elr="1"), id="of the ELR comes back"
        ),
        pytest.param(
            state("1", -1, elr="2", last_leader=1), conditions("13"), state("1", 1, elr="2"), id="of the ISR comes back"
        ),
        pytest.param(state("12"), conditions(""), state("12", -1, last_leader=1), id="all fenced: the ISR stays"),
        pytest.param(
            state("12", -1, last_leader=1), conditions("2"), state("2", 2, elr="1"), id="one of the ISR that stayed"
        ),
        pytest.param(
            state("1", elr="23"), conditions("123", min_isr=1), state("1"), id="(e) a lower minimum ends the ELR"
        ),
        pytest.param(
            state("12"), conditions("1", lost="2"), state("1", last_known_elr="2"), id="(c) lost data in the ISR"
        ),
        pytest.param(
            state("1", elr="23"),
            conditions("1", lost="3"),
            state("1", elr="2", last_known_elr="3"),
            id="(c) lost in the ELR",
        ),
        pytest.param(
            state("1", elr="2"),
            conditions("3", lost="1"),
            state("", -1, elr="2", last_known_elr="1", last_leader=1),
            id="(c) the last of the ISR",
        ),
        pytest.param(
            state("1", min_isr_1 := 1),
            conditions("23", lost="1", min_isr=min_isr_1),
            state("", -1, last_known_elr="1", last_leader=1),
            id="(d) no replica is eligible: T-26",
        ),
        pytest.param(
            state("1", replicas="1"),
            conditions("", lost="1"),
            state("1", -1, replicas="1", last_leader=1),
            id="only replica",
        ),
        pytest.param(state("1"), conditions("23", min_isr=1), state("1", -1, last_leader=1), id="R13 clean: offline"),
        pytest.param(state("1"), conditions("23", min_isr=1, **UNCLEAN), state("2", 2), id="R13 unclean by config"),
        pytest.param(state("23", 2), conditions("123", **UNCLEAN), state("23", 2), id="unclean is the last resort"),
        pytest.param(
            state("", -1, last_known_elr="3", last_leader=2),
            conditions("123", **BY_HAND),
            state("2", 2),
            id="last leader",
        ),
        pytest.param(
            state("", -1, last_known_elr="3", last_leader=2),
            conditions("13", **BY_HAND),
            state("3", 3),
            id="last known",
        ),
        pytest.param(state("123", 2), conditions("123", **PREFERRED), state("123", 1), id="preferred"),
        pytest.param(state("23", 3), conditions("123", **PREFERRED), state("23", 3), id="preferred is not in sync"),
        pytest.param(
            state("123", replicas="4123", adding="4", removing="1"),
            conditions("1234"),
            state("123", replicas="4123", adding="4", removing="1"),
            id="reassignment: not yet in sync",
        ),
        pytest.param(
            state("1234", replicas="4231", adding="4", removing="1"),
            conditions("1234"),
            state("234", 4, replicas="423"),
            id="reassignment done, the leader goes",
        ),
        pytest.param(
            state("14", replicas="431", adding="4", removing="1"),
            conditions("1234"),
            state("14", replicas="431", adding="4", removing="1"),
            id="reassignment: too few would stay",
        ),
    ],
)
def test_next_state(before: PartitionInfo, now: Conditions, after: PartitionInfo) -> None:
    result = next_state(before, now)

    changed = replace(after, leader_epoch=0, partition_epoch=0) != replace(before, leader_epoch=0, partition_epoch=0)
    assert result == replace(
        after,
        leader_epoch=before.leader_epoch + (after.leader != before.leader),
        partition_epoch=before.partition_epoch + changed,
    )
    assert next_state(result, now) is result, "asking twice is asking once"


def test_the_isr_a_leader_proposes_grows_and_shrinks() -> None:
    assert next_state(state("12"), conditions("123"), (1, 2, 3)) == state("123", partition_epoch=10)
    assert next_state(state("12"), conditions("123"), (1,)) == state("1", elr="2", partition_epoch=10)
    assert next_state(state("1", elr="2"), conditions("123"), (1, 3)) == state("13", partition_epoch=10)


def test_a_new_partition_has_its_active_replicas_in_sync() -> None:
    made = new_partition((3, 1, 2), {1, 2})

    assert (made.leader, made.isr, made.replicas) == (1, (1, 2), (3, 1, 2))


class Broker:
    """A replica's log. What is beyond `synced` goes when power does."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.synced = 0
        self.up = True
        self.active = True
        self.lost = False
        # As leader: the state it acts on, whom it has seen at which end, its high watermark, what it has proposed.
        self.known: PartitionInfo | None = None
        self.ends: dict[tuple[int, int], int] = {}
        self.high_watermark = 0
        self.epoch_start = 0
        # Counts lives: an end that a follower has reached in an earlier one says nothing (§14.7.2).
        self.life = 0
        self.hollow = False


REPLICAS = (1, 2, 3)
nodes = st.sampled_from(REPLICAS)
SOME_NODES = [frozenset(some) for some in ((1,), (2,), (3,), (1, 2), (2, 3), (1, 3))]


class Cluster(RuleBasedStateMachine):
    """The store has one partition's state; changes are compare-and-set by construction, knowledge of them is late."""

    @initialize(min_isr=st.integers(1, 3))
    def start(self, min_isr: int) -> None:
        self.min_isr = min_isr
        self.brokers = {node: Broker() for node in REPLICAS}
        self.state = new_partition(REPLICAS, REPLICAS)
        self.leader_of_epoch = {0: 1}
        self.acknowledged: list[int] = []
        self.next_record = 0

    def conditions(self) -> Conditions:
        active = [node for node, broker in self.brokers.items() if broker.active]
        lost = [node for node, broker in self.brokers.items() if broker.lost]
        return Conditions(active=active, lost_data=lost, min_isr=self.min_isr)

    def adopt(self, after: PartitionInfo) -> None:
        before, self.state = self.state, after
        assert after.partition_epoch == before.partition_epoch + (after is not before), "I-8"
        assert after.leader_epoch == before.leader_epoch + (after.leader != before.leader), "I-8"
        if after.leader != NO_LEADER:
            assert self.leader_of_epoch.setdefault(after.leader_epoch, after.leader) == after.leader, "I-1"

    # What happens, in strides that get somewhere. A broker in `deaf` receives and fetches nothing.

    @rule(deaf=st.just(frozenset()) | st.sampled_from(SOME_NODES), synced=st.sampled_from((False, False, True)))
    def produce(self, deaf: frozenset[int], synced: bool) -> None:
        for node in REPLICAS:
            if node not in deaf:
                self.learn(node)
        for node in REPLICAS:
            self.append(node)
        for _ in range(2):
            for node in REPLICAS:
                if node not in deaf:
                    self.fetch(node, 2)
        for node in REPLICAS:
            self.raise_high_watermark(node)
            if synced:
                self.sync(node)

    @rule(members=st.sets(nodes, min_size=1))
    def change_isr(self, members: set[int]) -> None:
        if self.state.leader != NO_LEADER:
            self.learn(self.state.leader)
            self.propose(self.state.leader, members)

    @rule(node=nodes, power=st.booleans(), noticed=st.booleans())
    def crash(self, node: int, power: bool, noticed: bool) -> None:
        if power:
            self.lose_power(node)
        else:
            self.kill(node)
        if noticed:
            self.expire(node)
            self.control()

    @rule(node=nodes)
    def lose_power_and_come_back(self, node: int) -> None:
        self.lose_power(node)
        self.come_back(node)

    @rule(node=nodes)
    def cut_off(self, node: int) -> None:
        """It goes on with the state it knew."""
        self.expire(node)
        self.control()

    @rule(node=nodes)
    def come_back(self, node: int) -> None:
        broker = self.brokers[node]
        if not broker.up:
            self.expire(node)
        self.restart(node)
        self.control()
        self.activate(node)
        self.control()

    # The steps they are made of.

    def append(self, node: int) -> None:
        broker = self.brokers[node]
        if broker.up and broker.known is not None and broker.known.leader == node:
            broker.log.append(self.next_record)
            self.next_record += 1

    def learn(self, node: int) -> None:
        """The broker sees the state as it is now; as a new leader it begins with nothing known of the others."""
        broker = self.brokers[node]
        if not broker.up:
            return
        before, broker.known = broker.known, self.state
        if self.state.leader == node and (before is None or before.leader_epoch != self.state.leader_epoch):
            broker.ends = {}
            broker.high_watermark = 0
            broker.epoch_start = len(broker.log)

    def fetch(self, follower: int, some: int) -> None:
        """A follower in the leader's term: truncates where it differs, takes some, and reports where it is."""
        broker = self.brokers[follower]
        known = broker.known
        if not broker.up or known is None or known.leader in (NO_LEADER, follower):
            return
        leader = self.brokers[known.leader]
        if not leader.up or leader.known is None or leader.known.leader != known.leader:
            return
        if leader.known.leader_epoch != known.leader_epoch:
            return
        same = next(
            (at for at, (mine, theirs) in enumerate(zip(broker.log, leader.log, strict=False)) if mine != theirs),
            min(len(broker.log), len(leader.log)),
        )
        broker.log = broker.log[:same]
        broker.synced = min(broker.synced, same)
        leader.ends[follower, broker.life] = same
        broker.log += leader.log[same : same + some]
        broker.hollow = broker.hollow and broker.log[: len(self.acknowledged)] != self.acknowledged

    def end(self, leader: Broker, member: int) -> int:
        return leader.ends.get((member, self.brokers[member].life), -1)

    def raise_high_watermark(self, node: int) -> None:
        """§14.6.1 with the rule that an ELR stops it; what is below is acknowledged."""
        broker = self.brokers[node]
        known = broker.known
        if not broker.up or known is None or known.leader != node:
            return
        if len(known.isr) < min(self.min_isr, 3) or known.elr:
            return
        reached = min([len(broker.log), *(self.end(broker, member) for member in known.isr if member != node)])
        broker.high_watermark = max(broker.high_watermark, reached)
        if reached > len(self.acknowledged):
            assert self.acknowledged == broker.log[: len(self.acknowledged)], "acknowledged records were replaced"
            self.acknowledged = broker.log[:reached]

    def propose(self, node: int, members: set[int]) -> None:
        """A leader that knows the present state wants another ISR: whom it likes out, in who has caught up to it."""
        broker = self.brokers[node]
        known = broker.known
        if not broker.up or known is not self.state or known.leader != node or not broker.active:
            return
        needed = max(broker.high_watermark, broker.epoch_start)
        joining = {member for member in members - set(known.isr) if self.end(broker, member) >= needed}
        isr = tuple(member for member in REPLICAS if member == node or member in (members & set(known.isr)) | joining)
        if all(self.brokers[member].active for member in isr):
            self.adopt(next_state(self.state, self.conditions(), isr))
            if joining:
                # The maximal ISR: the leader waits for those it asked for before it knows the answer.
                broker.known = self.state

    def sync(self, node: int) -> None:
        self.brokers[node].synced = len(self.brokers[node].log)

    def kill(self, node: int) -> None:
        """The process dies, its page cache stays; the session goes on until `expire`."""
        broker = self.brokers[node]
        broker.up = False
        broker.known = None
        broker.life += 1

    def expire(self, node: int) -> None:
        """The session of any broker may end, of one that is alive and cut off too."""
        self.brokers[node].active = False

    def lose_power(self, node: int) -> None:
        """§14.8.2: at most min ISR - 1 replicas have lost data and not caught up again."""
        broker = self.brokers[node]
        others = sum(other.hollow or other.lost for other in self.brokers.values() if other is not broker)
        if others >= self.min_isr - 1:
            return
        self.kill(node)
        broker.log = broker.log[: broker.synced]
        broker.active = False
        broker.lost = True
        broker.hollow = broker.log[: len(self.acknowledged)] != self.acknowledged

    def restart(self, node: int) -> None:
        self.brokers[node].up = True

    def activate(self, node: int) -> None:
        """Where nothing is left to be done about its earlier life; what it had lost counts no more."""
        broker = self.brokers[node]
        if not broker.up or broker.active:
            return
        after = next_state(self.state, self.conditions())
        unsettled = after is not self.state and node in (self.state.leader, *self.state.isr, *self.state.elr)
        if not unsettled:
            broker.active = True
            broker.lost = False

    @rule()
    def control(self) -> None:
        self.adopt(next_state(self.state, self.conditions()))

    @rule()
    def prefer(self) -> None:
        self.adopt(next_state(self.state, replace(self.conditions(), election=LeaderElection.PREFERRED)))

    # What must be.

    @invariant()
    def a_leader_that_may_serve_has_every_acknowledged_record(self) -> None:
        """I-3, I-4: for the leader in the store, and for each that may be elected next."""
        if not hasattr(self, "state"):
            return
        for node in {*self.state.isr, *self.state.elr}:
            broker = self.brokers[node]
            if not broker.lost:
                assert broker.log[: len(self.acknowledged)] == self.acknowledged, (node, self.state)

    @invariant()
    def lists_are_disjoint_and_of_replicas(self) -> None:
        if not hasattr(self, "state"):
            return
        for group in (self.state.isr, self.state.elr, self.state.last_known_elr):
            assert set(group) <= set(self.state.replicas)
            assert len(set(group)) == len(group)
        assert not set(self.state.isr) & set(self.state.elr)
        assert self.state.leader == NO_LEADER or self.state.leader in self.state.isr


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=400, stateful_step_count=40, deadline=None)
