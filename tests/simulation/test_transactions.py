"""The world with transactions: one seed, and that it sees what breaks their promises (more in `make nightly`)."""

from collections.abc import Callable

import pytest

from ottla.broker.replicas import delayed_fetch
from ottla.replication.partition import Partition
from ottla.storage.found_log import FoundLog
from ottla.storage.segment import Segment
from ottla.storage.transactions import Transactions
from tests.simulation.transactions import TransactionalWorld

Patch = pytest.MonkeyPatch


def test_transactions_keep_their_promises() -> None:
    outcome = TransactionalWorld(1_001).run()

    assert outcome.violations == []
    assert outcome.counts["transactions"] > 20
    assert outcome.counts["stable offset"] > 5


def read_up_to_the_high_watermark(patch: Patch) -> None:
    patch.setattr(Partition, "last_stable_offset", property(lambda partition: partition.high_watermark))


def forget_open_transactions_at_start(patch: Patch) -> None:
    load = Transactions.begin

    def forget(transactions: Transactions, producer_id: int, first_offset: int) -> None:
        if first_offset % 3:
            load(transactions, producer_id, first_offset)

    patch.setattr(Transactions, "begin", forget)


def list_no_aborted_ones(patch: Patch) -> None:
    def list_none(partition: Partition, target: object, answer: object, end_offset: int) -> None:
        answer.aborted_transactions = []  # type: ignore[attr-defined]

    patch.setattr(delayed_fetch, "list_aborted", list_none)


def lose_the_index_in_recovery(patch: Patch) -> None:
    rebuild = FoundLog._rebuild_producers

    def careless(found: FoundLog, *arguments: object) -> None:
        rebuild(found, *arguments)  # type: ignore[arg-type]
        segments = arguments[2]
        for segment in segments:  # type: ignore[attr-defined]
            assert isinstance(segment, Segment)
            segment.forget_aborted()

    patch.setattr(FoundLog, "_rebuild_producers", careless)


@pytest.mark.parametrize(
    ("bug", "invariant", "seeds"),
    [
        (read_up_to_the_high_watermark, "I-2", range(1)),
        (forget_open_transactions_at_start, "I-2", range(1)),
        (list_no_aborted_ones, "I-21", range(1)),
        (lose_the_index_in_recovery, "I-21", range(3)),
    ],
)
def test_broken_promise_is_seen(monkeypatch: Patch, bug: Callable[[Patch], None], invariant: str, seeds: range) -> None:
    bug(monkeypatch)

    found = (violation for seed in seeds for violation in TransactionalWorld(seed).run().violations)

    assert next(found, "").startswith(invariant)
