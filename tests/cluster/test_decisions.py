"""What a controller decides about many partitions, a transaction's worth at a time."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ottla.cluster.controller import (
    CHANGES_PER_TRANSACTION,
    PARTITIONS_PER_STEP,
    BrokerChanged,
    PartitionChange,
    Tick,
    by_topic,
    decisions,
    isr_change,
    leader_change,
    transactions,
    unfinished,
)
from ottla.cluster.image import BrokerInfo, BrokerState, MetadataImage, PartitionInfo, TopicInfo
from tests.cluster.images import decide, image, rules, state

MANY = 2 * CHANGES_PER_TRANSACTION + 5


def test_decisions_come_in_transactions_and_each_partition_once() -> None:
    made = image(*[state() for _ in range(MANY)], active="23")
    events = [BrokerChanged(1), Tick()]

    batches = list(filter(None, decisions(made, events, rules())))

    assert [len(batch) for batch in batches] == [CHANGES_PER_TRANSACTION, CHANGES_PER_TRANSACTION, 5]
    assert [change for batch in batches for change in batch] == decide(made, Tick(), rules())
    assert all(len(list(transactions(batch, made))) == 1 for batch in batches)


def test_only_batches_that_are_asked_for_are_decided() -> None:
    looked_at: list[TopicInfo] = []

    def noting(topic: TopicInfo):
        looked_at.append(topic)
        return rules()(topic)

    batches: Iterator[list] = decisions(image(*[state() for _ in range(MANY)], active="23"), [Tick()], noting)
    next(batches)

    assert len(looked_at) == CHANGES_PER_TRANSACTION


def test_a_step_looks_at_so_many_unchanged_partitions_at_most() -> None:
    looked_at = 0

    def counting(topic: TopicInfo):
        nonlocal looked_at
        looked_at += 1
        return rules()(topic)

    made = image(*[state() for _ in range(3 * PARTITIONS_PER_STEP)])
    for steps in (decisions(made, [Tick()], counting), unfinished(made, 9, counting), unfinished(made, 2, counting)):
        for nothing in steps:
            assert not nothing
            assert looked_at == PARTITIONS_PER_STEP
            looked_at = 0
    assert looked_at == 0


def test_where_all_is_as_it_should_be_nothing_is_decided() -> None:
    assert list(decisions(image(state(), state()), [Tick(), BrokerChanged(2)], rules())) == []


def test_changes_of_a_topic_that_are_alike_are_one_line() -> None:
    def change(topic: str, index: int, before: tuple[int, ...], after: tuple[int, ...]) -> PartitionChange:
        states = (PartitionInfo(before[0], 1, 1, (1, 2, 3), isr) for isr in (before, after))
        return PartitionChange(topic, index, *states, "why")

    changes = [
        change("t", 0, (1, 2, 3), (1, 2)),
        change("t", 1, (2, 3, 1), (2, 1)),
        change("t", 2, (1, 2, 3), (1, 3)),
        change("u", 0, (1,), (1, 2)),
        change("u", 1, (1, 2), (1, 3)),
    ]

    assert by_topic(changes, isr_change) == {
        ("t", "without 3"): [0, 1],
        ("t", "without 2"): [2],
        ("u", "with 2"): [0],
        ("u", "without 2 and with 3"): [1],
    }


def test_leader_change_has_the_reason_in_a_word() -> None:
    def reason(leader: int, state: BrokerState, **fields: Any) -> str | None:
        seen = MetadataImage("c", 1).with_brokers({1: BrokerInfo(1, "h", 1, state=state)})
        before = PartitionInfo(1, 1, 1, (1, 2, 3), (1, 2))
        return leader_change(PartitionChange("t", 0, before, replace(before, leader=leader, **fields), "why"), seen)

    assert reason(1, BrokerState.ACTIVE) is None
    assert reason(-1, BrokerState.FENCED) is None
    assert reason(2, BrokerState.FENCED) == "failure"
    assert reason(2, BrokerState.STOPPING) == "shutdown"
    assert reason(2, BrokerState.ACTIVE) == "preferred"
    assert reason(3, BrokerState.FENCED) == "unclean"
    assert reason(2, BrokerState.ACTIVE, replicas=(2, 3)) == "reassignment"
