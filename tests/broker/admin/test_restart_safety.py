"""May a broker be stopped now? (docs/operators.md §3.6)"""

from dataclasses import replace

from ottla.broker.admin.restart_safety import NAMED_MAX, Hindrance, RestartCheck, RestartSafety
from ottla.cluster.controller import TopicRules
from ottla.cluster.image import BrokerInfo, BrokerState, MetadataImage, PartitionInfo, TopicInfo


def partition(isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3)) -> PartitionInfo:
    return PartitionInfo(leader=isr[0] if isr else -1, leader_epoch=1, partition_epoch=1, replicas=replicas, isr=isr)


def image(*partitions: PartitionInfo, **states: BrokerState) -> MetadataImage:
    named = {int(name.removeprefix("b")): state for name, state in states.items()}
    brokers = {
        node_id: BrokerInfo(node_id, "h", 9092, state=named.get(node_id, BrokerState.ACTIVE)) for node_id in (1, 2, 3)
    }
    empty = MetadataImage("cluster", 1).with_brokers(dict(brokers))
    return empty.with_topics({"t": TopicInfo("t", b"t" * 16, partitions)})


def checked(found: MetadataImage, node_id: int, min_isr: int = 2) -> RestartSafety:
    check = RestartCheck(found, node_id, lambda _: TopicRules(min_isr, unclean=False))
    for _ in check.steps():
        pass
    return check.safety


def test_broker_whose_partitions_stay_in_sync_may_stop() -> None:
    assert checked(image(partition((1, 2, 3))), 1).is_safe
    assert checked(image(partition((2, 3)), partition((3, 2))), 1).is_safe


def test_broker_that_keeps_the_isr_large_enough_may_not_stop() -> None:
    safety = checked(image(partition((1, 2, 3)), partition((1, 2))), 1)

    assert not safety.is_safe
    assert safety.hindered == 1
    assert safety.hindrances == (Hindrance("t", 1, "1 replicas would be in sync, 2 are needed"),)


def test_last_replica_in_sync_may_not_stop_with_any_min_isr() -> None:
    safety = checked(image(partition((1,))), 1, min_isr=1)
    assert safety.hindrances == (Hindrance("t", 0, "no other replica is in sync and can lead"),)


def test_replica_of_a_broker_that_is_not_active_does_not_count() -> None:
    assert not checked(image(partition((1, 2, 3)), b3=BrokerState.FENCED), 1).is_safe


def test_broker_may_not_stop_while_another_one_does() -> None:
    safety = checked(image(partition((1, 2, 3)), b2=BrokerState.STOPPING), 1, min_isr=1)
    assert (safety.is_safe, safety.text) == (False, "broker 2 is shutting down")


def test_partition_with_one_replica_is_counted_and_no_hindrance() -> None:
    safety = checked(image(partition((1,), (1,)), partition((2,), (2,))), 1)
    assert (safety.is_safe, safety.going_away) == (True, 1)


def test_partition_without_the_broker_does_not_matter() -> None:
    assert checked(image(partition((2,), (2, 3))), 1).is_safe


def test_first_partitions_are_named_and_all_are_counted() -> None:
    safety = checked(image(*[partition((1,))] * 30), 1)
    assert (safety.hindered, len(safety.hindrances)) == (30, NAMED_MAX)


def test_reassigned_partition_needs_what_it_will_have() -> None:
    """§14.6.2: the replicas that go do not count."""
    leaving = replace(partition((1, 2, 3)), removing=(2, 3))
    assert checked(image(leaving), 3).is_safe


def test_unknown_broker_is_not_known_to_be_safe() -> None:
    safety = checked(image(), 9)
    assert (safety.is_safe, safety.is_known) == (False, False)
