"""A produce request that is acknowledged when its records are on enough replicas (acks=all), and on the disk where the
topic asks for that (`flush.messages`, `flush.ms`)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.broker.replicas.appends import outcome_of_append
from ottla.broker.replicas.current_leader import current_leader
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.server.request_context import RequestContext
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, ProduceResponse
from ottla.replication.partition import Partition
from ottla.storage.log import AppendInfo
from ottla.timer.purgatory import DelayedOperation

LEADER_SINCE = 10


class ProducePartitionStatus(NamedTuple):
    """What has been appended, and the answer of the response that stands for it."""

    partition: Partition
    info: AppendInfo
    answer: Any
    leader_epoch: int
    needs_replicas: bool

    def outcome(self) -> ErrorCode | None:
        return outcome_of_append(self.partition, self.info, self.leader_epoch, needs_replicas=self.needs_replicas)


class DelayedProduce(DelayedOperation):
    __slots__ = ("_awaited", "_context", "_replicas", "_response")

    def __init__(
        self,
        replicas: ReplicaManager,
        context: RequestContext,
        response: Any,
        awaited: Sequence[ProducePartitionStatus],
        deadline_ms: int,
    ) -> None:
        super().__init__(deadline_ms)
        self._replicas = replicas
        self._context = context
        self._response = response
        self._awaited = awaited

    def start(self) -> None:
        # The requests behind this one go on, so that one write, one fetch of a follower and one fsync serve a whole
        # pipeline of them.
        if not self._context.is_parked:
            self._context.park(mutes=False)
        self._replicas.delayed_produce.try_complete_else_watch(self, [awaited.partition for awaited in self._awaited])

    def try_complete(self) -> bool:
        partition, info, answer, leader_epoch, needs_replicas = self._awaited[0]
        if (
            needs_replicas
            and partition.high_watermark <= info.last_offset
            and partition.leader_epoch == leader_epoch
            and partition.leadership is not None
            and partition.log.failure is None
            and not answer.error_code
        ):
            # As its outcome would say. A producer has many requests under way, and whenever the high watermark rises
            # it rises past the first of them: this is said to all the others.
            return False
        for awaited in self._awaited:
            if not awaited.answer.error_code:
                outcome = awaited.outcome()
                if outcome is None:
                    return False
                self._fail_unless_none(awaited, outcome)
        return self.force_complete()

    def on_complete(self) -> None:
        for awaited in self._awaited:
            if not awaited.answer.error_code:
                outcome = awaited.outcome()
                self._fail_unless_none(awaited, ErrorCode.REQUEST_TIMED_OUT if outcome is None else outcome)
        self._context.complete(self._response)

    def _fail_unless_none(self, awaited: ProducePartitionStatus, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            return
        answer = awaited.answer
        answer.error_code = int(code)
        answer.base_offset = -1
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            name_leader(self._replicas, self._context, self._response, awaited.partition.topic, answer)


def name_leader(
    replicas: ReplicaManager,
    context: RequestContext,
    response: ProduceResponse,
    topic: str,
    answer: PartitionProduceResponse,
) -> None:
    """To be called for NOT_LEADER_OR_FOLLOWER; does nothing for a client whose version has no room for it."""
    if context.api_version < LEADER_SINCE:
        return
    leader = current_leader(replicas, context.connection.listener_name, topic, answer.index)
    answer.current_leader = LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.leader_epoch)
    known = response.node_endpoints
    known += [NodeEndpoint(**fields) for fields in leader.new_endpoints(known)]
