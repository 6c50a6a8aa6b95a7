"""What a controller decides about many partitions, a transaction's worth at a time."""

from collections.abc import Iterator

from ottla.cluster.controller import (
    CHANGES_PER_TRANSACTION,
    PARTITIONS_PER_STEP,
    BrokerChanged,
    Tick,
    decisions,
    transactions,
    unfinished,
)
from ottla.cluster.image import TopicInfo
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
