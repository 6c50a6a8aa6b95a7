"""What the judge says of replicas that do not agree about transactions (I-31, I-32)."""

from collections.abc import Sequence

import pytest

from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from tests.fakes.disk import FakeDisk
from tests.simulation.cluster.transaction_agreement import (
    differences,
    differences_from_log,
    open_transactions,
    overlapping,
)
from tests.storage.support import NOW, new_log
from tests.storage.transactional import ABORT, COMMIT, end, write

IDS = {7: "id", 8: "id", 9: "another"}
Step = tuple[int, bool | None]
"""A producer, and how it ends its transaction; None: it writes."""
ABORTED: Sequence[Step] = [(7, None), (7, ABORT)]


def replica(steps: Sequence[Step]) -> Log:
    log = new_log(FakeDisk())
    for producer, decision in steps:
        if decision is None:
            write(log, "x", producer=producer)
        else:
            end(log, producer=producer, commit=decision)
    return log


def test_equal_replicas_agree() -> None:
    logs = {n: replica([*ABORTED, (7, None)]) for n in (1, 2)}

    assert differences(logs) == []
    assert differences_from_log(logs[1]) == []


@pytest.mark.parametrize(
    "other",
    [
        pytest.param([(7, None), (7, COMMIT)], id="another decision"),
        pytest.param([(9, None), (9, ABORT)], id="another producer"),
        pytest.param([(7, None), (7, None)], id="still open"),
    ],
)
def test_replicas_that_differ_are_found(other: Sequence[Step]) -> None:
    assert differences({1: replica(ABORTED), 2: replica(other)})


def test_a_producer_may_have_expired_in_one() -> None:
    logs = {n: replica(ABORTED) for n in (1, 2)}
    logs[1].producers.clear()

    assert len(differences(logs)) == 1
    assert differences(logs, expire=True) == []
    write(logs[1], "x", producer=7)
    assert differences(logs, expire=True), "what both know is compared"


def test_undecided_transaction_may_be_open_in_one() -> None:
    logs = {n: new_log(FakeDisk(), LogConfig(cleanup_policy=frozenset({"compact"}))) for n in (1, 2)}
    for log in logs.values():
        write(log, "x", producer=7, key="k")
    end(logs[1], producer=7, commit=ABORT)

    assert open_transactions(logs[1]) == set()
    assert open_transactions(logs[2]) == {0}
    assert len(differences(logs)) == 1
    assert differences(logs, {0}) == []


@pytest.mark.parametrize(("written", "found"), [(1, 0), (2, 1)])
def test_a_batch_is_known_to_whose_copy_began_before_it(written: int, found: int) -> None:
    """The copy begins at offset 1, with the marker."""
    whole, copy = new_log(FakeDisk()), new_log(FakeDisk())
    write(whole, *"xy"[:written], producer=7)
    copy.truncate_fully_and_start_at(1)
    for log in (whole, copy):
        end(log, producer=7, commit=COMMIT)

    assert len(differences({1: whole, 2: copy})) == found


def test_index_without_an_aborted_transaction_is_found() -> None:
    log = replica(ABORTED)
    log.segments.active.forget_aborted()

    assert len(differences_from_log(log)) == 1


def test_producer_that_its_log_does_not_know_so_is_found() -> None:
    log = replica(ABORTED)
    another = next(iter(replica([(9, None)]).segments.active.batches_from(0)))
    log.producers.update(another.header, 0, NOW)

    assert len(differences_from_log(log)) == 1


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ([(7, None), (7, COMMIT), (8, None), (8, COMMIT)], 0),
        ([(7, None), (9, None), (7, None)], 0),
        ([(7, None), (8, None)], 1),
    ],
)
def test_two_transactions_of_one_id_at_once_are_found(steps: Sequence[Step], found: int) -> None:
    assert len(overlapping(replica(steps), IDS)) == found
