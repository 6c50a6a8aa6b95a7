"""What fetches of consumers and followers have in common: reading all partitions, waiting for the disk, answering."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ottla.broker.replicas.current_leader import current_leader, in_doubt
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.replicas.replication_throttles import size_bytes
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
    UnknownTopicOrPartition,
)
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.replication.fetch_session import FetchContext, FetchTarget
from ottla.replication.partition import Partition
from ottla.storage.log import Log
from ottla.storage.segment_reader import ReadResult, WouldBlock
from ottla.timer.purgatory import DelayedOperation

UNKNOWN = -1
# Of a response, beside its records: at the beginning, and for each partition.
HEADER_BYTES, PARTITION_BYTES = 20, 40
# Kafka names neither the leader nor its address before it can name both.
LEADER_SINCE = 16
ASKED_THE_WRONG_ONE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class ColdRead:
    """A read that has to wait for the disk, and whose answer is waiting for it."""

    __slots__ = ("answer", "error", "read", "result", "target")

    def __init__(self, target: FetchTarget, answer: Any, read: WouldBlock) -> None:
        """The answer has the aborted transactions of all that may be read, if the reader wants to know them."""
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
        answer, end_offset = self.answer, 0
        if self.error is not None:
            answer.error_code = int(self.error.code)
            answer.records = b""
        elif self.result is not None:
            answer.records = self.result.records
            if answer.records:
                end_offset = self.result.end_offset
        if aborted := answer.aborted_transactions:
            # None where nothing was read.
            answer.aborted_transactions = [each for each in aborted if each.first_offset < end_offset]


class FetchOperation(DelayedOperation):
    """A fetch request: it reads all targets, those on the disk in a thread, and answers. Subclasses say what a read is,
    and how long the request waits."""

    is_of_follower: ClassVar = False
    # Errors of single targets with which the request may wait for the others.
    _waits_despite: ClassVar[tuple[type[KafkaError], ...]] = ()

    # Made when the reading begins.
    _answers: list[Any]
    _bytes_read: int
    _bytes_to_read: int
    """With those that come from the disk."""
    _cold: list[ColdRead]

    __slots__ = (
        "_answers",
        "_bytes_read",
        "_bytes_to_read",
        "_cold",
        "_context",
        "_ends_wait",
        "_fetch",
        "_lists_aborted",
        "_max_bytes",
        "_min_bytes",
        "_replicas",
        "_runtime",
    )

    def __init__(
        self,
        replicas: ReplicaManager,
        runtime: Runtime,
        context: "RequestContext",
        fetch: FetchContext,
        deadline_ms: int,
        min_bytes: int,
        max_bytes: int,
        lists_aborted: bool,
    ) -> None:
        super().__init__(deadline_ms)
        self._replicas = replicas
        self._runtime = runtime
        self._context = context
        self._fetch = fetch
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._lists_aborted = lists_aborted
        self._ends_wait = False

    @abstractmethod
    def _read(self, target: FetchTarget, answer: Any, room: int) -> int:
        """Fills the answer; returns how many bytes of the response it takes."""

    def _read_all(self) -> None:
        room = self._begin_reading()
        self._bytes_to_read = room - self._read_some(self._fetch.targets, room)

    def _begin_reading(self) -> int:
        """How many bytes may be read of all targets."""
        self._answers = []
        self._cold = []
        self._bytes_read = 0
        room: int = self._context.connection.fetch_room()
        if room > self._max_bytes:
            return self._max_bytes
        return room

    def _read_some(self, targets: Sequence[FetchTarget], room: int) -> int:
        """What is left of the room."""
        for target in targets:
            aborted: list[Any] | None = [] if self._lists_aborted else None
            answer = PartitionData(partition_index=target.partition, records=b"", aborted_transactions=aborted)
            self._answers.append(answer)
            try:
                room -= self._read(target, answer, room)
            except KafkaError as error:
                if not isinstance(error, self._waits_despite):
                    self._ends_wait = True
                describe_failure(self._replicas, target, answer, error)
        return room

    def on_complete(self) -> None:
        self._read_all()
        if self._cold:
            self._read_cold()
        else:
            self._context.complete(self._response())

    def _read_cold(self) -> None:
        self._context.expect_response(self._bytes_to_read)
        read_cold(self._replicas, self._runtime, self._cold, self._cold_is_read)

    def _cold_is_read(self) -> None:
        if self._context.connection.is_closed:
            self._fetch.abandon()
        else:
            self._context.complete(self._response())

    def _throttled(self, throttle_ms: int) -> FetchResponse:
        """The consumer gets nothing now, and asks for the same again: its session goes on as it was (§64.14)."""
        self._fetch.abandon()
        if self._context.access is not None:
            self._context.access.forget_amendments()
        error = ErrorCode.INVALID_FETCH_SESSION_EPOCH if self._fetch.is_overtaken else ErrorCode.NONE
        session_id = self._fetch.session_id
        return FetchResponse(error_code=int(error), session_id=session_id, throttle_time_ms=throttle_ms)

    def _response(self) -> FetchResponse:
        """To be sent; the session remembers it as sent."""
        fetch, answers = self._fetch, self._answers
        if self.is_of_follower:
            if (throttles := self._replicas.throttles).leader.is_active:
                throttles.record_sent(fetch.targets, answers)
        elif (context := self._context).quotas is not None:
            throttle_ms = context.quotas.fetched(context, _response_bytes(answers))
            if throttle_ms:
                return self._throttled(throttle_ms)
        included = fetch.answered(answers, self._runtime.clock.now_ms())
        response = FetchResponse(session_id=fetch.session_id)
        topics = response.responses
        name, topic_id = None, ZERO_ID
        for target, answer, include in zip(fetch.targets, answers, included, strict=True):
            if not include:
                continue
            if answer.error_code:
                self._context.route.errors[answer.error_code] += 1
                _maybe_name_leader(self._replicas, self._context, response, target, answer)
            if target.topic != name or target.topic_id != topic_id:
                name, topic_id = target.topic, target.topic_id
                topics.append(FetchableTopicResponse(topic=name, topic_id=topic_id))
            topics[-1].partitions.append(answer)
            if answer.records:
                self._replicas.count_sent(target.topic, answer.records, to_follower=self.is_of_follower)
        return response


def _response_bytes(answers: Sequence[Any]) -> int:
    """About what an answer with these takes: what has not changed since the last one is not in it."""
    return HEADER_BYTES + sum(PARTITION_BYTES + size_bytes(each.records) for each in answers if each.records)


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
    """Another value when records were cut off the log: a thread that reads them at that time finds no sense in it."""
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


def list_aborted(partition: Partition, target: FetchTarget, answer: Any, end_offset: int) -> None:
    """Of the records up to `end_offset`, so that a reader of committed ones can leave out those of these transactions
    (§43.3). Raises KafkaError."""
    answer.aborted_transactions = [
        AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset)
        for entry in partition.log.aborted_transactions(target.fetch_offset, end_offset)
    ]


def describe(partition: Partition, answer: Any) -> None:
    """Where the partition stands now."""
    answer.high_watermark = partition.high_watermark
    answer.last_stable_offset = partition.last_stable_offset
    answer.log_start_offset = partition.log.log_start_offset


def describe_failure(replicas: ReplicaManager, target: FetchTarget, answer: Any, error: KafkaError) -> None:
    answer.error_code = int(_certain(replicas, target, error).code)
    if isinstance(error, CorruptMessage):
        _read_failed(replicas, target, error)
    answer.high_watermark = answer.last_stable_offset = answer.log_start_offset = UNKNOWN
    # As in Kafka: null of what was looked for in a log, whatever the isolation level, else an empty list.
    answer.aborted_transactions = [] if isinstance(error, UnknownTopicId | UnknownTopicOrPartition) else None


def _certain(replicas: ReplicaManager, target: FetchTarget, error: KafkaError) -> KafkaError:
    """What can be said of it here. A follower may lack what its leader has, and a consumer that names no leader epoch
    does not find out that it asked a follower: it may have taken it for the leader, by older metadata."""
    if isinstance(error, OffsetOutOfRange) and target.current_leader_epoch < 0:
        partition = replicas.find(target.topic, target.partition)
        if partition is not None and not partition.is_leader:
            return NotLeaderOrFollower(f"{error}, on a follower")
    return in_doubt(replicas, error)


def _read_failed(replicas: ReplicaManager, target: FetchTarget, error: KafkaError) -> None:
    partition = replicas.find(target.topic, target.partition)
    if partition is not None:
        replicas.failed.read_failed(partition, target.fetch_offset, error)


def _maybe_name_leader(
    replicas: ReplicaManager, context: RequestContext, response: FetchResponse, target: FetchTarget, answer: Any
) -> None:
    if context.api_version < LEADER_SINCE or answer.error_code not in ASKED_THE_WRONG_ONE:
        return
    leader = current_leader(replicas, context.connection.listener_name, target.topic, target.partition)
    answer.current_leader = LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.leader_epoch)
    known = response.node_endpoints
    known += [NodeEndpoint(**fields) for fields in leader.new_endpoints(known)]
