"""Reads that wait for the disk, and what may happen to the log meanwhile."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.replicas.fetch_responses import ColdRead, read_cold
from ottla.protocol.errors import CorruptMessage, ErrorCode
from ottla.replication.fetch_session import FetchTarget
from ottla.storage.segment_reader import WouldBlock


class Log:
    truncations = 0


class Broker:
    """Runs what is offloaded at once; `meanwhile` happens in between."""

    def __init__(self, meanwhile: Any) -> None:
        self.damaged: list[int] = []
        self.partition = SimpleNamespace(log=Log())
        failed = SimpleNamespace(read_failed=self._read_failed)
        self.replicas = SimpleNamespace(find=lambda topic, index: self.partition, failed=failed)
        self._meanwhile = meanwhile

    def _read_failed(self, partition: Any, offset: int, error: Exception) -> None:
        if isinstance(error, CorruptMessage):
            self.damaged.append(offset)

    def offload(self, work: Any, done: Any) -> None:
        work()
        self._meanwhile(self)
        done()


def damaged() -> Any:
    raise CorruptMessage("the log is shorter than what was written to it")


def cut(broker: Broker) -> None:
    broker.partition.log.truncations += 1


def move_away_and_back(broker: Broker) -> None:
    broker.partition = SimpleNamespace(log=Log())


@pytest.mark.parametrize(
    ("meanwhile", "error", "damage"),
    [
        (lambda broker: None, ErrorCode.CORRUPT_MESSAGE, [7]),
        (cut, ErrorCode.NOT_LEADER_OR_FOLLOWER, []),
        (move_away_and_back, ErrorCode.NOT_LEADER_OR_FOLLOWER, []),
    ],
)
def test_what_a_thread_reads_of_a_log_that_is_cut_meanwhile_is_no_damage(
    meanwhile: Any, error: ErrorCode, damage: list[int]
) -> None:
    broker = Broker(meanwhile)
    target = FetchTarget("t", bytes(16), 0, fetch_offset=7, max_bytes=1, current_leader_epoch=-1)
    answer = SimpleNamespace(error_code=0, records=None)

    read_cold(broker.replicas, broker, [ColdRead(target, answer, WouldBlock(damaged))], lambda: None)  # type: ignore[arg-type]

    assert (answer.error_code, broker.damaged) == (error, damage)
