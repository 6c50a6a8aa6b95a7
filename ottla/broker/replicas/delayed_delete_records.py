"""A DeleteRecords request that waits until the records are gone on every replica that is alive (§15.6.1)."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.protocol.errors import ErrorCode
from ottla.replication.partition import Partition
from ottla.timer.purgatory import DelayedOperation

NO_LOW_WATERMARK = -1


class DeleteRecordsPartitionStatus(NamedTuple):
    """A partition whose followers have yet to delete what is below `offset`, and the result that stands for it."""

    partition: Partition
    offset: int
    result: Any


class DelayedDeleteRecords(DelayedOperation):
    __slots__ = ("_awaited", "_replicas", "_respond")

    def __init__(
        self,
        replicas: ReplicaManager,
        respond: Callable[[], object],
        awaited: Sequence[DeleteRecordsPartitionStatus],
        deadline_ms: int,
    ) -> None:
        """`respond` is called when all results are known."""
        super().__init__(deadline_ms)
        self._replicas = replicas
        self._respond = respond
        # Those whose results are not known. One that is known is not looked at again, however many there are.
        self._awaited = list(awaited)

    def start(self) -> None:
        purgatory = self._replicas.delayed_delete_records
        purgatory.try_complete_else_watch(self, [awaited.partition for awaited in self._awaited])

    def try_complete(self) -> bool:
        while self._awaited and self._look_at(self._awaited[-1]):
            self._awaited.pop()
        return not self._awaited and self.force_complete()

    def on_complete(self) -> None:
        for awaited in self._awaited:
            if not self._look_at(awaited):
                _fail(awaited.result, ErrorCode.REQUEST_TIMED_OUT)
        self._respond()

    def _look_at(self, awaited: DeleteRecordsPartitionStatus) -> bool:
        """Whether the result is known."""
        result = awaited.result
        if not result.error_code:
            low_watermark = self._low_watermark(awaited.partition)
            if low_watermark is None:
                _fail(result, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif low_watermark < awaited.offset:
                return False
            else:
                result.low_watermark = low_watermark
        return True

    def _low_watermark(self, partition: Partition) -> int | None:
        """None where another broker leads by now."""
        live = self._replicas.image.live_brokers
        leadership = partition.leadership
        if leadership is None:
            return None
        return leadership.lowest_log_start_offset(partition.log.log_start_offset, live.__contains__)


def _fail(result: Any, code: ErrorCode) -> None:
    result.error_code = int(code)
    result.low_watermark = NO_LOW_WATERMARK
