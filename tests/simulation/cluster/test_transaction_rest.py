"""Which open transactions, and which producers, the judge excuses when faults have stopped (I-23, §41.2)."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.coordinator.transactions.entry import TransactionState
from ottla.storage.log import Log
from tests.fakes.disk import FakeDisk
from tests.simulation.cluster.rest import Rest
from tests.simulation.cluster.transaction_rest import TransactionRest, _open_in_coordinators
from tests.storage.support import NOW, new_log
from tests.storage.test_transactional_compaction import CONFIG, clean
from tests.storage.transactional import ABORT, COMMIT, end, write


@pytest.mark.parametrize(
    ("undecided", "high_watermark", "is_found"),
    [
        pytest.param({0, 1}, 2, False, id="both hang"),
        pytest.param({0}, 2, True, id="another is open"),
        pytest.param({0, 1}, 1, True, id="not replicated"),
        pytest.param(set(), 2, True, id="none hangs"),
    ],
)
def test_open_transactions_are_found_but_those_that_hang(
    undecided: set[int], high_watermark: int, is_found: bool
) -> None:
    log = new_log(FakeDisk())
    for producer in (7, 8):
        write(log, "x", producer=producer)
    stable = log.last_stable_offset(high_watermark)
    partition = SimpleNamespace(
        topic="payments", index=0, log=log, high_watermark=high_watermark, last_stable_offset=stable
    )
    broker = SimpleNamespace(replicas=[partition])
    rest: Any = object.__new__(TransactionRest)
    rest._world = SimpleNamespace(undecided_in=lambda each: undecided if each == ("payments", 0) else set())

    assert bool(rest._open_in_partitions(broker)) is is_found


@pytest.mark.parametrize(
    ("state", "start_ms", "pending", "is_found"),
    [
        (TransactionState.ONGOING, NOW, None, True),
        (TransactionState.ONGOING, NOW + 1, None, False),
        (TransactionState.ONGOING, NOW + 1, TransactionState.PREPARE_ABORT, True),
        (TransactionState.PREPARE_COMMIT, NOW, None, True),
        (TransactionState.COMPLETE_ABORT, NOW, None, False),
    ],
)
def test_open_transaction_is_found_but_one_that_begins_later(
    state: TransactionState, start_ms: int, pending: TransactionState | None, *, is_found: bool
) -> None:
    """By the clock of its coordinator."""
    entry = SimpleNamespace(metadata=SimpleNamespace(state=state, start_ms=start_ms), pending=pending)
    shard = SimpleNamespace(entries={"pay": entry})
    coordinator = SimpleNamespace(topic=[SimpleNamespace(coordinator=SimpleNamespace(shard=shard))])
    broker = SimpleNamespace(
        runtime=SimpleNamespace(broker_clock=SimpleNamespace(wall_ms=lambda: NOW)),
        parts=SimpleNamespace(transaction_loader=SimpleNamespace(coordinator=coordinator)),
    )

    assert bool(_open_in_coordinators(broker)) is is_found


@pytest.fixture
def away() -> Log:
    """Of a replica that has a transaction of producer 7, and was away until the marker had expired (§45.5), and the
    leader knew that producer no more: nothing is left of the marker. Producer 8 has written too, and is done."""
    leader, away = new_log(FakeDisk(), CONFIG), new_log(FakeDisk(), CONFIG)
    for log in (leader, away):
        write(log, "x", producer=7, key="k")
    end(leader, producer=7, commit=COMMIT, epoch=1)
    for passed_ms in (0, 0, 2_000):
        write(leader, "y", producer=8, key="k")
        end(leader, producer=8, commit=COMMIT)
        expire(leader)
        clean(leader, now=NOW + passed_ms)
    copied = leader.read(1, 1 << 20, upper_bound=leader.log_end_offset, wait=True).records
    away.append_as_follower(copied, now_wall_ms=NOW)
    away.write_pending(now_wall_ms=NOW)
    return away


def known_producers(log: Log, undecided: set[int]) -> list[str]:
    """What the judge says of them."""
    rest: Any = object.__new__(Rest)
    replica = SimpleNamespace(topic="payments", index=0, log=log)
    node = SimpleNamespace(host="broker-1", broker=SimpleNamespace(replicas=[replica]))
    rest._world = SimpleNamespace(
        nodes={1: node}, undecided_in=lambda each: undecided if each == ("payments", 0) else set()
    )
    wrong: list[str] = rest._known_producers()
    return wrong


def expire(log: Log) -> None:
    log.producers.expire(NOW + log.config.producer_id_expiration_ms)


def test_producer_whose_transaction_hangs_does_not_expire(away: Log) -> None:
    assert "knows producers [8]" in known_producers(away, {0})[0]
    expire(away)

    assert [*away.producers.states] == [7]
    assert known_producers(away, {0}) == []
    assert "knows producers [7]" in known_producers(away, set())[0]


def test_producer_that_another_marker_has_ended_must_expire(away: Log) -> None:
    end(away, producer=7, commit=ABORT, epoch=2)
    assert "[7, 8]" in known_producers(away, {0})[0]

    expire(away)

    assert known_producers(away, {0}) == []


@pytest.mark.parametrize("forgets_end", [True, False])
def test_producer_whose_end_is_in_the_log_is_not_excused(forgets_end: bool) -> None:
    log = new_log(FakeDisk())
    write(log, "x", producer=7)
    begun = next(iter(log.segments.active.batches_from(0))).header
    end(log, producer=7, commit=COMMIT)
    if forgets_end:
        log.producers.update(begun, 0, NOW)
    expire(log)

    assert bool(known_producers(log, {0})) is forgets_end


def test_guard_that_is_kept_is_found(away: Log) -> None:
    expire(away)
    away.producers.begin_verification(9, 0, 0, NOW, raises_epoch=True)

    assert "1 guards" in known_producers(away, {0})[0]
