"""A producer that was replaced, at every point of its successor's transaction: it is refused, and changes nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.coordinator.transactions.entry import TransactionState as S
from ottla.coordinator.transactions.events import VerifyResult
from ottla.protocol.errors import ErrorCode
from tests.coordinator.transactions.harness import Producer, TransactionLog

NONE = ErrorCode.NONE
REFUSED = {ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE}


def adding(log: TransactionLog, newer: Producer) -> None:
    log.hold_appends = True
    newer.add(0)


def opened(log: TransactionLog, newer: Producer) -> None:
    assert newer.add(0) is NONE


def deciding(log: TransactionLog, newer: Producer, *, commit: bool = True) -> None:
    opened(log, newer)
    log.hold_appends = True
    newer.end(commit=commit)


def marking(log: TransactionLog, newer: Producer, *, commit: bool = True) -> None:
    opened(log, newer)
    assert newer.end(commit=commit) is NONE


def completing(log: TransactionLog, newer: Producer) -> None:
    marking(log, newer)
    log.hold_appends = True
    log.acknowledge_markers()


def complete(log: TransactionLog, newer: Producer, *, commit: bool = True) -> None:
    marking(log, newer, commit=commit)
    log.acknowledge_markers()


POINTS: dict[str, Callable[[TransactionLog, Producer], None]] = {
    "initialized": lambda log, newer: None,
    "adding": adding,
    "open": opened,
    "deciding to commit": deciding,
    "deciding to abort": lambda log, newer: deciding(log, newer, commit=False),
    "marking a commit": marking,
    "marking an abort": lambda log, newer: marking(log, newer, commit=False),
    "completing": completing,
    "committed": complete,
    "aborted": lambda log, newer: complete(log, newer, commit=False),
}
REQUESTS: dict[str, Callable[[Producer], Any]] = {
    "add": lambda zombie: zombie.add(1),
    "verify": lambda zombie: zombie.missing(0),
    "commit": lambda zombie: zombie.commit(),
    "abort": lambda zombie: zombie.abort(),
    "initialize": lambda zombie: zombie.initialize(with_pair=True),
}


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("zombie_raises", [False, True], ids=["zombie v4", "zombie v5"])
@pytest.mark.parametrize("newer_raises", [False, True], ids=["newer v4", "newer v5"])
def test_zombie_is_refused_and_changes_nothing(
    newer_raises: bool, zombie_raises: bool, point: str, request_name: str
) -> None:
    log = TransactionLog()
    zombie, newer = Producer(log, raises_epoch=zombie_raises), Producer(log, raises_epoch=newer_raises)
    assert zombie.initialize() is NONE
    assert newer.initialize() is NONE
    pair = zombie.pair
    POINTS[point](log, newer)
    before = log.metadata()

    result = REQUESTS[request_name](zombie)

    error = result.error if isinstance(result, VerifyResult) else result
    if (point, request_name) == ("open", "initialize"):
        # A client that knows the producer id may have its transaction aborted, but gets no epoch by that.
        assert error is ErrorCode.CONCURRENT_TRANSACTIONS
        assert (log.state(), zombie.pair) == (S.PREPARE_ABORT, pair)
        return
    assert error in REFUSED
    assert (log.metadata(), zombie.pair) == (before, pair)
    finishes(log, point)


def finishes(log: TransactionLog, point: str) -> None:
    """What was begun goes on to its own end."""
    log.hold_appends = False
    while log.held or log.markers:
        if log.held:
            log.complete_append()
        log.acknowledge_markers()
    ends = {"initialized": S.EMPTY, "adding": S.ONGOING, "open": S.ONGOING}
    aborts = "abort" in point
    assert log.state() is ends.get(point, S.COMPLETE_ABORT if aborts else S.COMPLETE_COMMIT)
