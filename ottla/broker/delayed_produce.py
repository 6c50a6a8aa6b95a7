"""A produce request that is acknowledged when its records are on the disk (`flush.messages`, `flush.ms`)."""

from collections.abc import Sequence
from typing import Any

from ottla.broker.context import RequestContext
from ottla.protocol.errors import ErrorCode
from ottla.replication.partition import Partition
from ottla.storage.log import AppendInfo
from ottla.timer.purgatory import DelayedOperation


class DelayedProduce(DelayedOperation):
    __slots__ = ("_awaited", "_context", "_response")

    def __init__(
        self,
        context: RequestContext,
        response: Any,
        awaited: Sequence[tuple[Partition, AppendInfo, Any]],
        timeout_ms: int,
    ) -> None:
        """`awaited`: what has been appended, and the answers of the response that stand for it."""
        super().__init__(context.broker.clock.now_ms() + max(timeout_ms, 0))
        self._context = context
        self._response = response
        self._awaited = awaited

    def start(self) -> None:
        # The requests behind this one go on, so that one fsync serves a whole pipeline of them.
        self._context.park(mutes=False)
        replicas = self._context.broker.replicas
        replicas.delayed_produce.try_complete_else_watch(self, [partition for partition, _, _ in self._awaited])

    def try_complete(self) -> bool:
        for partition, info, answer in self._awaited:
            if partition.log.failure is not None:
                _fail(answer, ErrorCode.KAFKA_STORAGE_ERROR)
            elif not partition.is_leader:
                _fail(answer, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif not answer.error_code and _awaits_disk(partition, info):
                return False
        return self.force_complete()

    def on_complete(self) -> None:
        for partition, info, answer in self._awaited:
            if not answer.error_code and _awaits_disk(partition, info):
                _fail(answer, ErrorCode.REQUEST_TIMED_OUT)
        self._context.complete(self._response)


def _awaits_disk(partition: Partition, info: AppendInfo) -> bool:
    log = partition.log
    return log.flushed_offset <= info.last_offset < log.sync_required_offset


def _fail(answer: Any, code: ErrorCode) -> None:
    if not answer.error_code:
        answer.error_code = int(code)
        answer.base_offset = -1
