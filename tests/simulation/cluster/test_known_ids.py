"""What the judge says of a coordinator that has loaded something else than its log (I-17)."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.coordinator.runtime.partition import Phase
from ottla.coordinator.transactions.entry import TransactionalIdEntry, TransactionMetadata, TransactionState
from ottla.coordinator.transactions.records import build_transaction_key, build_transaction_value
from ottla.protocol.records.record import Record, build_batch
from tests.fakes.disk import FakeDisk
from tests.simulation.cluster.decisions import Decisions
from tests.simulation.cluster.known_ids import KnownIds, states_in
from tests.simulation.judge import Judge
from tests.simulation.trace import Trace
from tests.storage.support import NOW, new_log
from tests.storage.transactional import copy

FIRST, SECOND = (TransactionMetadata(7, epoch, 60_000, TransactionState.EMPTY, last_update_ms=NOW) for epoch in (0, 1))


class Hosted:
    """A partition of `__transaction_state` that has just been loaded."""

    index, leader_epoch, loaded_offset = 0, 3, 4

    def __init__(self, entries: dict[str, TransactionalIdEntry]) -> None:
        self.coordinator = SimpleNamespace(phase=Phase.ACTIVE, shard=SimpleNamespace(entries=entries))


def log_of(*records: tuple[str, TransactionMetadata | None]) -> Any:
    log = new_log(FakeDisk())
    for name, state in records:
        value = None if state is None else build_transaction_value(state, 1)
        record = Record(timestamp=NOW, key=build_transaction_key(name), value=value)
        copy(log, build_batch([record], base_offset=log.log_end_offset, leader_epoch=0))
    return log


def test_states_in_a_log_are_the_last_without_those_removed() -> None:
    log = log_of(("a", FIRST), ("b", FIRST), ("a", SECOND), ("b", None), ("c", FIRST))

    assert states_in(log, 5) == {"a": SECOND, "c": FIRST}
    assert states_in(log, 2) == {"a": FIRST, "b": FIRST}


@pytest.mark.parametrize(
    ("known", "is_found"),
    [
        pytest.param({"a": SECOND}, False, id="all of it"),
        pytest.param({"a": FIRST}, True, id="an older state"),
        pytest.param({}, True, id="nothing"),
        pytest.param({"a": SECOND, "b": FIRST}, True, id="what was removed"),
    ],
)
def test_coordinator_that_has_loaded_something_else_is_found(
    known: dict[str, TransactionMetadata], is_found: bool
) -> None:
    log = log_of(("a", FIRST), ("b", FIRST), ("a", SECOND), ("b", None))
    entries = {name: TransactionalIdEntry(name, state) for name, state in known.items()}
    loader = SimpleNamespace(if_made=SimpleNamespace(topic=[Hosted(entries)]))
    replica = SimpleNamespace(is_leader=True, leader_epoch=3, log=log, high_watermark=4)
    broker = SimpleNamespace(
        parts=SimpleNamespace(transaction_loader=loader),
        replicas=SimpleNamespace(find=lambda *_: replica),
    )
    judge = Judge(Trace(lambda: 0))
    known_ids = KnownIds(judge, Decisions(judge, lambda _: 0), broker, "broker 1")

    known_ids.look()
    entries.clear()
    known_ids.look()

    assert [each.partition(":")[0] for each in judge.violations] == (["I-17"] if is_found else [])


@pytest.mark.parametrize("phase", [Phase.ACTIVE, Phase.LOADING])
def test_coordinators_that_are_active_know_what_was_deleted(phase: Phase) -> None:
    entries = {"a": TransactionalIdEntry("a", FIRST)}
    hosted = Hosted(entries)
    hosted.coordinator.phase = phase
    image = SimpleNamespace(partition=lambda *_: None)
    broker = SimpleNamespace(
        parts=SimpleNamespace(transaction_loader=SimpleNamespace(if_made=SimpleNamespace(topic=[hosted]))),
        metadata=SimpleNamespace(image=image),
    )
    noted: list[Any] = []
    decisions = SimpleNamespace(note_deleted=lambda *arguments: noted.append(arguments))

    KnownIds(Judge(Trace(lambda: 0)), decisions, broker, "broker 1").note_deleted()  # type: ignore[arg-type]

    assert noted == ([(0, entries, image.partition)] if phase is Phase.ACTIVE else [])
