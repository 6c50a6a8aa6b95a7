"""How brokers enter and leave: epochs, sessions, duplicates, lost data; played against the embedded store."""

from dataclasses import replace
from typing import Any

import pytest

from ottla.cluster.controller import BrokerChanged, is_unfinished, may_stop, transactions, unfinished
from ottla.cluster.embedded import EmbeddedStore
from ottla.cluster.encoding import DECOY_SECRET, PRODUCER_IDS, next_producer_id_value, topic_values
from ottla.cluster.image import NO_LEADER, BrokerInfo, BrokerState, Listener, MetadataImage, TopicInfo
from ottla.cluster.registration import (
    AlreadyRegistered,
    Registration,
    activate,
    begin_shutdown,
    claim_controller,
    may_register_alone,
    register,
    register_alone,
    resign_controller,
    stored_cluster_id,
    unregister,
)
from ottla.cluster.store import NO_LEASE, Committed, Conflict, Put, StoreWatcher, Transaction
from ottla.cluster.topics import new_partition
from ottla.cluster.updates import applied
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.timer.wheel import TimingWheel
from tests.cluster.images import TOPIC_ID, decide, digits, rules, with_broker
from tests.cluster.stores import Clock

SESSION_MS = 1000


class World:
    """A store, its clock, and the image as any broker has it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.wheel = TimingWheel()
        self.store = EmbeddedStore(clock=self.clock, wheel=self.wheel)
        self.image = MetadataImage("", NO_LEADER)
        StoreWatcher(self.store, "", self.took, print).start()

    def took(self, event: Any) -> None:
        self.image = applied(self.image, event).image

    def entries(self) -> list[Any]:
        found: list[Any] = []
        self.store.read("", lambda snapshot: found.extend(snapshot.entries))
        return found

    def lease(self) -> int:
        granted: list[Any] = []
        self.store.grant(SESSION_MS, granted.append)
        return granted[0].lease_id

    def commit(self, transaction: Transaction | AlreadyRegistered) -> Any:
        assert isinstance(transaction, Transaction)
        results: list[Any] = []
        self.store.commit(transaction.expected, transaction.changes, results.append)
        return results[0]

    def elapse(self, ms: int = SESSION_MS) -> None:
        self.clock.now += ms
        self.wheel.advance(self.clock.now)

    def enter(self, node_id: int, incarnation: str = "", clean: bool = True) -> tuple[int, int]:
        """Registered and, where that may be, active; gives epoch and lease."""
        lease_id = self.lease()
        result = self.commit(register(wanted(node_id, incarnation, clean_shutdown=clean), self.entries(), lease_id))
        assert isinstance(result, Committed)
        self.control()
        if self.image.brokers[node_id].state is BrokerState.STARTING and self.may_become_active(node_id):
            assert isinstance(self.commit(activate(self.image.brokers[node_id], lease_id)), Committed)
            self.control()
        return result.revision, lease_id

    def may_become_active(self, node_id: int) -> bool:
        key = next(filter(None, unfinished(self.image, node_id, rules())), None)
        assert key is None or is_unfinished(self.image, node_id, key, rules())
        return key is None

    def control(self) -> None:
        for node_id in self.image.brokers:
            changes = decide(self.image, BrokerChanged(node_id), rules())
            for transaction in transactions(changes, self.image):
                assert isinstance(self.commit(transaction), Committed)

    def create(self, *replicas: tuple[int, ...]) -> None:
        states = tuple(new_partition(each, self.image.active_brokers) for each in replicas)
        values = topic_values(TopicInfo("t", TOPIC_ID, states))
        assert isinstance(self.commit(Transaction((), tuple(Put(*item) for item in values.items()))), Committed)


def wanted(node_id: int, incarnation: str = "", **fields: Any) -> Registration:
    fields = {"cluster_id": "c", "clean_shutdown": True, **fields}
    return Registration(node_id, incarnation=incarnation or f"i{node_id}", host="h", port=9092, **fields)


def refusal(action: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        action()
    return raised.value.code


def test_a_broker_registers_starts_and_becomes_active() -> None:
    world = World()
    epoch, lease_id = world.enter(1)

    broker = world.image.brokers[1]
    assert (broker.state, broker.epoch, broker.incarnation) == (BrokerState.ACTIVE, epoch, "i1")
    assert stored_cluster_id(world.entries()) == world.image.cluster_id == "c"
    assert isinstance(world.commit(begin_shutdown(broker, lease_id)), Committed)
    assert world.image.brokers[1].state is BrokerState.STOPPING
    world.elapse()
    assert world.image.brokers[1].state is BrokerState.FENCED


def test_listeners_and_rack_are_read_back() -> None:
    world = World()
    listeners = (Listener("INSIDE", "broker1", 9092), Listener("OUTSIDE", "localhost", 19092))
    world.commit(register(wanted(1, rack="r", listeners=listeners), world.entries(), world.lease()))

    broker = world.image.brokers[1]
    assert (broker.rack, broker.listeners, broker.endpoint("OUTSIDE")) == ("r", listeners, ("localhost", 19092))
    assert broker.endpoint("other") == ("h", 9092)


def test_another_process_with_a_live_session_keeps_the_id() -> None:
    world = World()
    epoch, _ = world.enter(1)

    again = lambda name: register(wanted(1, name), world.entries(), 0)  # noqa: E731
    assert refusal(lambda: again("other")) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert again("i1") == AlreadyRegistered(epoch)
    world.elapse()
    second, _ = world.enter(1, "other")
    assert second > epoch


def test_of_two_processes_that_register_at_once_one_loses() -> None:
    world = World()
    first, second = (register(wanted(1, name), world.entries(), world.lease()) for name in ("a", "b"))

    assert isinstance(world.commit(first), Committed)
    assert isinstance(world.commit(second), Conflict)


def test_broker_whose_session_ended_is_fenced_in_its_epoch() -> None:
    world = World()
    epoch, _ = world.enter(1)
    world.elapse()
    world.commit(register(wanted(1), world.entries(), world.lease()))

    assert (world.image.brokers[1].epoch, world.image.brokers[1].state) == (epoch, BrokerState.STARTING)


def test_the_data_of_another_cluster_is_refused() -> None:
    world = World()
    world.enter(1)

    code = refusal(lambda: register(wanted(2, cluster_id="other"), world.entries(), 0))
    assert code is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_broker_that_lost_data_leaves_isr_and_elr_before_active() -> None:
    """§19.4.3 (c), T-26."""
    world = World()
    for node_id in (1, 2, 3):
        world.enter(node_id)
    world.create((1, 2, 3))
    world.elapse()
    world.control()
    assert world.image.topics["t"].partitions[0].isr == (1, 2, 3)

    lease_id = world.lease()
    world.commit(register(wanted(1, "new", clean_shutdown=False), world.entries(), lease_id))
    assert not world.may_become_active(1)
    # It ends again before anybody has acted, and says the next time that all was well since.
    world.elapse()
    world.commit(register(wanted(1, "newer"), world.entries(), world.lease()))
    assert world.image.brokers[1].lost_data
    world.control()
    state = world.image.topics["t"].partitions[0]
    assert (state.isr, state.leader) == ((2, 3), NO_LEADER)
    assert world.may_become_active(1)
    world.commit(activate(world.image.brokers[1], world.lease()))
    assert not world.image.brokers[1].lost_data
    assert [entry.key for entry in world.entries() if entry.key.startswith("lost-data/")] == []


def test_a_killed_leader_is_followed_and_comes_back_to_its_place() -> None:
    """R09, R10, G11."""
    world = World()
    leases = {node_id: world.enter(node_id)[1] for node_id in (1, 2, 3)}
    world.create((1, 2, 3), (2, 3, 1))
    world.clock.now += SESSION_MS // 2
    for node_id in (2, 3):
        world.store.keep_alive(leases[node_id], lambda result: None)
    world.elapse(SESSION_MS // 2)
    world.control()

    first, second = world.image.topics["t"].partitions
    assert (first.leader, first.leader_epoch, first.isr) == (2, 1, (2, 3))
    assert (second.leader, second.leader_epoch, second.isr) == (2, 0, (2, 3))


def test_a_stopping_broker_may_stop_when_it_leads_nothing() -> None:
    """§19.1.4."""
    world = World()
    leases = {node_id: world.enter(node_id)[1] for node_id in (1, 2)}
    world.create((1, 2))
    world.commit(begin_shutdown(world.image.brokers[1], leases[1]))

    assert not may_stop(world.image, 1)
    world.control()
    assert may_stop(world.image, 1)
    assert world.image.topics["t"].partitions[0].leader == 2
    assert set(world.image.live_brokers) == {1, 2}


def test_one_controller_at_a_time_and_its_decisions_end_with_it() -> None:
    """I-26."""
    world = World()
    _, lease_id = world.enter(1)
    world.enter(2)
    world.create((1, 2))
    claims = [claim_controller(world.image, node_id, lease_id) for node_id in (1, 2)]
    assert [type(world.commit(claim)) for claim in claims] == [Committed, Conflict]
    assert world.image.controller_id == 1

    old = world.image
    fenced = with_broker(old, replace(old.brokers[1], state=BrokerState.FENCED))
    (late,) = transactions(decide(fenced, BrokerChanged(1), rules()), old)
    world.commit(resign_controller(world.image))
    assert world.image.controller_id == NO_LEADER
    assert world.commit(late) == Conflict("controller")


def test_an_unregistered_broker_is_forgotten() -> None:
    world = World()
    world.enter(1)
    world.enter(2)
    world.create((1, 2))
    world.commit(unregister(world.image, 1))

    assert set(world.image.brokers) == {2}
    assert refusal(lambda: unregister(world.image, 1)) is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_first_broker_is_active_and_controller_at_once() -> None:
    world = World()
    lease_id = world.lease()
    assert may_register_alone(wanted(1), world.entries())
    result = world.commit(register_alone(wanted(1), world.entries(), lease_id))

    assert isinstance(result, Committed)
    broker = world.image.brokers[1]
    assert (broker.state, broker.epoch, broker.session_revision) == (BrokerState.ACTIVE, *[result.revision] * 2)
    assert (world.image.controller_id, world.image.controller_epoch) == (1, result.revision)
    assert register_alone(wanted(1), world.entries(), lease_id) == AlreadyRegistered(result.revision)


def test_no_registration_alone_beside_a_known_broker() -> None:
    world = World()
    world.enter(2)
    assert not may_register_alone(wanted(1), world.entries())
    world.elapse()
    assert not may_register_alone(wanted(1), world.entries()), "it may come back, with records that others need"


@pytest.mark.parametrize(("replicas", "may"), [("1", True), ("12", False), ("2", True)])
def test_broker_that_lost_data_of_others_is_not_active_at_once(replicas: str, may: bool) -> None:
    world = World()
    topic = TopicInfo("t", TOPIC_ID, (new_partition(digits(replicas), digits(replicas)),))
    world.store.commit([], [Put(key, value) for key, value in topic_values(topic).items()], lambda result: None)

    assert may_register_alone(wanted(1), world.entries())
    assert may_register_alone(wanted(1, clean_shutdown=False), world.entries()) is may
    world.store.commit([], [Put("lost-data/1", b"{}")], lambda result: None)
    assert may_register_alone(wanted(1), world.entries()) is may
    if may:
        world.commit(register_alone(wanted(1), world.entries(), world.lease()))
        assert not world.image.brokers[1].lost_data


def test_of_two_that_register_alone_one_is_the_controller() -> None:
    world = World()
    nothing = world.entries()
    first = register_alone(wanted(1), nothing, world.lease())
    second = register_alone(wanted(2), nothing, world.lease())

    assert isinstance(world.commit(first), Committed)
    assert isinstance(world.commit(second), Conflict)


def test_a_session_that_has_ended_is_not_moved_to_another_state() -> None:
    """Under no lease it would never end again, and its broker never come back."""
    fenced = BrokerInfo(1, "b", 9092, epoch=3, state=BrokerState.FENCED)
    active = replace(fenced, state=BrokerState.ACTIVE, session_revision=4)

    with pytest.raises(AssertionError):
        begin_shutdown(fenced, 7)
    with pytest.raises(AssertionError):
        begin_shutdown(active, NO_LEASE)
    assert [change.lease_id for change in begin_shutdown(active, 7).changes if isinstance(change, Put)] == [7]


def test_the_first_broker_makes_the_secret_of_the_decoys() -> None:
    world = World()
    first, second = (replace(wanted(node_id), decoy_secret=bytes([node_id]) * 32) for node_id in (1, 2))
    at_once = [register(each, world.entries(), world.lease()) for each in (first, second)]

    assert [type(world.commit(each)) for each in at_once] == [Committed, Conflict]
    world.commit(register(second, world.entries(), world.lease()))
    assert world.image.decoy_secret == bytes([1]) * 32
    assert set(world.image.brokers) == {1, 2}


def test_a_cluster_of_before_gets_the_secret_of_the_decoys() -> None:
    world = World()
    world.enter(1)
    assert DECOY_SECRET not in [entry.key for entry in world.entries()]

    transaction = register(replace(wanted(2), decoy_secret=bytes(32)), world.entries(), world.lease())

    assert isinstance(world.commit(transaction), Committed)
    assert world.image.decoy_secret == bytes(32)
    assert repr(bytes(32)) not in repr((transaction, replace(wanted(2), decoy_secret=bytes(32))))


@pytest.mark.parametrize("decide_on", [register, register_alone])
def test_a_store_that_was_put_back_is_raised_to_what_was_seen(decide_on: Any) -> None:
    """§13.3.4. No broker has been given an id in between."""
    world = World()
    seen = replace(wanted(1), next_producer_id=3000)
    late = decide_on(seen, world.entries(), world.lease())
    world.commit(Transaction((), (Put(PRODUCER_IDS, next_producer_id_value(1000)),)))

    assert isinstance(world.commit(late), Conflict)
    assert isinstance(world.commit(decide_on(seen, world.entries(), world.lease())), Committed)
    assert world.image.next_producer_id == 3000


def test_a_store_that_knows_more_producer_ids_stays_as_it_is() -> None:
    world = World()
    world.commit(Transaction((), (Put(PRODUCER_IDS, next_producer_id_value(5000)),)))
    transaction = register(replace(wanted(1), next_producer_id=3000), world.entries(), world.lease())
    world.commit(Transaction((), (Put(PRODUCER_IDS, next_producer_id_value(6000)),)))

    assert isinstance(world.commit(transaction), Committed), "a claim does not keep a broker from registering"
    assert world.image.next_producer_id == 6000
