"""What fetches of consumers and of followers have in common: finding partitions, cold reads, describing failures."""

from collections.abc import Callable, Sequence
from typing import Any

from ottla.broker.replicas.current_leader import current_leader
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.runtime import Runtime
from ottla.broker.server.request_context import RequestContext
from ottla.cluster.image import ZERO_ID
from ottla.protocol.errors import (
    CorruptMessage,
    ErrorCode,
    InconsistentTopicId,
    KafkaError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownTopicId,
)
from ottla.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
)
from ottla.replication.fetch_session import FetchContext, FetchTarget
from ottla.replication.partition import Partition
from ottla.storage.log import Log
from ottla.storage.reader import ReadResult, WouldBlock

UNKNOWN = -1
# Kafka names neither the leader nor its address before it can name both.
LEADER_SINCE = 16
ASKED_THE_WRONG_ONE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class ColdRead:
    """A read that has to wait for the disk, and whose answer is waiting for it."""

    __slots__ = ("answer", "error", "read", "result", "target")

    def __init__(self, target: FetchTarget, answer: Any, read: WouldBlock) -> None:
        self.target = target
        self.answer = answer
        self.read = read
        self.result: ReadResult | None = None
        self.error: KafkaError | None = None

    def run(self) -> None:
        """In a thread."""
        try:
            self.result = self.read.complete()
        except KafkaError as error:
            self.error = error

    def apply(self) -> None:
        if self.result is not None:
            self.answer.records = self.result.records
        elif self.error is not None:
            self.answer.error_code = int(self.error.code)


def read_cold(replicas: ReplicaManager, runtime: Runtime, cold: Sequence[ColdRead], done: Callable[[], None]) -> None:
    """Reads from the disk in a thread, and fills the answers; then calls `done`."""
    before = [_truncations(replicas, read.target) for read in cold]

    def work() -> None:
        for read in cold:
            read.run()

    def finished() -> None:
        for read, count in zip(cold, before, strict=True):
            if isinstance(read.error, CorruptMessage) and _truncations(replicas, read.target) != count:
                read.error = NotLeaderOrFollower("the log was cut while it was read")
            read.apply()
            if read.error is not None:
                _read_failed(replicas, read.target, read.error)
        done()

    runtime.offload(work, finished)


def _truncations(replicas: ReplicaManager, target: FetchTarget) -> tuple[Log, int] | None:
    """Another value when records were cut off the log: a thread that reads them meanwhile finds no sense in it."""
    partition = replicas.find(target.topic, target.partition)
    return None if partition is None else (partition.log, partition.log.truncations)


def find_partition(replicas: ReplicaManager, target: FetchTarget) -> Partition:
    """Raises the KafkaError of the answer."""
    if isinstance(target.key[0], bytes) and not target.topic:
        # A session may know an id that came into being after it.
        topic = replicas.image.topic_by_id(target.topic_id)
        if topic is None:
            raise UnknownTopicId(f"there is no topic with id {target.topic_id.hex()}")
        target.topic = topic.name
    partition = replicas.partition(target.topic, target.partition)
    if target.topic_id not in (ZERO_ID, partition.topic_id):
        if replicas.image.topic_by_id(target.topic_id) is None:
            raise UnknownTopicId(f"there is no topic with id {target.topic_id.hex()}")
        raise InconsistentTopicId(f"topic {target.topic} has another id than {target.topic_id.hex()}")
    return partition


def describe(partition: Partition, answer: Any) -> None:
    """Where the partition stands now."""
    answer.high_watermark = partition.high_watermark
    answer.last_stable_offset = partition.last_stable_offset
    answer.log_start_offset = partition.log.log_start_offset


def describe_divergence(answer: Any, diverging: tuple[int, int]) -> None:
    epoch, end_offset = diverging
    answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)


def describe_failure(replicas: ReplicaManager, target: FetchTarget, answer: Any, error: KafkaError) -> None:
    answer.error_code = int(error.code)
    if isinstance(error, CorruptMessage):
        _read_failed(replicas, target, error)
    if not isinstance(error, OffsetOutOfRange):
        answer.high_watermark = answer.last_stable_offset = answer.log_start_offset = UNKNOWN


def _read_failed(replicas: ReplicaManager, target: FetchTarget, error: KafkaError) -> None:
    partition = replicas.find(target.topic, target.partition)
    if partition is not None:
        replicas.failed.read_failed(partition, target.fetch_offset, error)


def response_of(
    replicas: ReplicaManager, context: RequestContext, fetch: FetchContext, answers: Sequence[Any], now_ms: int
) -> FetchResponse:
    """The response to send; the session remembers it as told."""
    included = fetch.answered(answers, now_ms)
    response = FetchResponse(session_id=fetch.session_id)
    topics = response.responses
    name, topic_id = None, ZERO_ID
    for target, answer, include in zip(fetch.targets, answers, included, strict=True):
        if not include:
            continue
        if answer.error_code:
            _maybe_name_leader(replicas, context, response, target, answer)
        if target.topic != name or target.topic_id != topic_id:
            name, topic_id = target.topic, target.topic_id
            topics.append(FetchableTopicResponse(topic=name, topic_id=topic_id))
        topics[-1].partitions.append(answer)
    return response


def _maybe_name_leader(
    replicas: ReplicaManager, context: RequestContext, response: FetchResponse, target: FetchTarget, answer: Any
) -> None:
    if context.api_version < LEADER_SINCE or answer.error_code not in ASKED_THE_WRONG_ONE:
        return
    leader = current_leader(replicas, context.connection.listener_name, target.topic, target.partition)
    answer.current_leader = LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.leader_epoch)
    known = response.node_endpoints
    known += [NodeEndpoint(**fields) for fields in leader.new_endpoints(known)]
