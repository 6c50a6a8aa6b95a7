"""Two producers of one transactional id that race each other, in many orders: the newest alone is served."""

import random
from typing import Any

import pytest

from ottla.coordinator.transactions.events import AddPartitions, EndTransaction, InitializeProducer
from ottla.protocol.errors import ErrorCode
from tests.coordinator.transactions.harness import Producer, TransactionLog

SEEDS = 150
STEPS = 60
NONE = ErrorCode.NONE


class Rival:
    """Sends one request at a time, and takes its answer whenever it comes."""

    def __init__(self, log: TransactionLog, raises_epoch: bool) -> None:
        self.log = log
        self.raises_epoch = raises_epoch
        self.pair = (-1, -1)
        self.asked: Any = None
        self.was_fenced = False
        """By a producer that began before this one asked."""

    def ask(self, rng: random.Random, owner: "Rival | None") -> None:
        token, partitions = next(self.log.tokens), frozenset({("t", rng.randrange(3))})
        kind = rng.choice("IAAE") if self.pair[0] >= 0 else "I"
        self.was_fenced = kind != "I" and owner is not self
        if kind == "I":
            self.asked = InitializeProducer(token, "tx", 60_000, -1, -1)
        elif kind == "A":
            self.asked = AddPartitions(token, "tx", *self.pair, partitions, 2 if self.raises_epoch else 0)
        else:
            self.asked = EndTransaction(token, "tx", *self.pair, rng.random() < 0.5, self.raises_epoch)
        self.log.send(self.asked)

    def answer(self) -> Any:
        """The request that was granted, if one was by now; the pair is the one of its answer."""
        asked = self.asked
        if asked is None or asked.token not in self.log.answers:
            return None
        self.asked = None
        result = self.log.answers.pop(asked.token)
        error = result if isinstance(result, ErrorCode) else result.error
        if error is not NONE:
            return None
        if not isinstance(result, ErrorCode) and result.producer_id >= 0:
            self.pair = (result.producer_id, result.producer_epoch)
        return asked


@pytest.mark.parametrize("raises_epoch", [False, True])
def test_the_newest_of_two_producers_alone_is_served(raises_epoch: bool) -> None:
    for seed in range(SEEDS):
        race(random.Random(seed), raises_epoch=raises_epoch)


def race(rng: random.Random, *, raises_epoch: bool) -> None:
    log = TransactionLog(level=2 if raises_epoch else 1)
    log.hold_appends = True
    rivals = [Rival(log, raises_epoch) for _ in range(2)]
    owner: Rival | None = None
    begun: list[tuple[int, int]] = []
    for _ in range(STEPS):
        rival = rng.choice(rivals)
        if rival.asked is None and rng.random() < 0.5:
            rival.ask(rng, owner)
        elif log.held:
            log.complete_append()
        elif log.markers:
            log.acknowledge_markers()
        for each in rivals:
            granted = each.answer()
            assert granted is None or not each.was_fenced, granted
            if isinstance(granted, InitializeProducer):
                assert not begun or each.pair > begun[-1], (each.pair, begun)
                begun.append(each.pair)
                owner = each
    finishes(log)


def finishes(log: TransactionLog) -> None:
    """Nothing is stuck: a third producer of the id begins, and commits."""
    log.hold_appends = False
    while log.held or log.markers:
        if log.held:
            log.complete_append()
        log.acknowledge_markers()
    third = Producer(log)
    while third.initialize() is not NONE:
        log.acknowledge_markers()
    assert third.add(0) is NONE
    assert third.commit() is NONE
