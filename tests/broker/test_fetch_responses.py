"""Reads that wait for the disk, and what may happen to the log before they are done."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.replicas.fetch_responses import ColdRead, read_cold
from ottla.protocol.errors import CorruptMessage, ErrorCode
from ottla.protocol.messages.fetch import AbortedTransaction
from ottla.replication.fetch_session import FetchTarget
from ottla.storage.segment_reader import WouldBlock


class Log:
    truncations = 0


class Broker:
    """Runs what is offloaded at once; `during` happens in between."""

    def __init__(self, during: Any) -> None:
        self.damaged: list[int] = []
        self.partition = SimpleNamespace(log=Log())
        failed = SimpleNamespace(read_failed=self._read_failed)
        self.replicas = SimpleNamespace(find=lambda topic, index: self.partition, failed=failed)
        self._during = during

    def _read_failed(self, partition: Any, offset: int, error: Exception) -> None:
        if isinstance(error, CorruptMessage):
            self.damaged.append(offset)

    def offload(self, work: Any, done: Any) -> None:
        work()
        self._during(self)
        done()


def damaged() -> Any:
    raise CorruptMessage("the log is shorter than what was written to it")


def cut(broker: Broker) -> None:
    broker.partition.log.truncations += 1


def move_away_and_back(broker: Broker) -> None:
    broker.partition = SimpleNamespace(log=Log())


@pytest.mark.parametrize(
    ("during", "error", "damage"),
    [
        (lambda broker: None, ErrorCode.CORRUPT_MESSAGE, [7]),
        (cut, ErrorCode.NOT_LEADER_OR_FOLLOWER, []),
        (move_away_and_back, ErrorCode.NOT_LEADER_OR_FOLLOWER, []),
    ],
)
def test_cold_read_of_a_log_truncated_during_it_is_no_damage(during: Any, error: ErrorCode, damage: list[int]) -> None:
    broker = Broker(during)
    target = FetchTarget("t", bytes(16), 0, fetch_offset=7, max_bytes=1, current_leader_epoch=-1)
    answer = SimpleNamespace(
        error_code=0, records=None, aborted_transactions=[AbortedTransaction(producer_id=7, first_offset=3)]
    )

    read_cold(broker.replicas, broker, [ColdRead(target, answer, WouldBlock(damaged, 8))], lambda: None)  # type: ignore[arg-type]

    assert (answer.error_code, broker.damaged) == (error, damage)
    assert (answer.records, answer.aborted_transactions) == (b"", [])
