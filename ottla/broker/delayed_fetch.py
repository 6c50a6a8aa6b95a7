"""One fetch request: read what is there, and wait if that is too little (§15.3).

start ── enough, an error, or nothing to wait for ───────────────────────────→ answer
  ├───── a partition is not in the page cache: read it in a thread, then ────→ answer
  └───── too little: watch all partitions
           └── enough was appended, leadership changed, or max wait ── read ─→ answer
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.cluster.image import ZERO_ID
from ottla.protocol.errors import (
    FencedLeaderEpoch,
    InconsistentTopicId,
    KafkaError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    UnknownTopicId,
)
from ottla.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from ottla.replication.fetch_session import FetchContext, FetchTarget
from ottla.replication.partition import READ_COMMITTED, Partition
from ottla.storage.reader import ReadResult, WouldBlock
from ottla.timer.purgatory import DelayedOperation

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

UNKNOWN = -1


class ColdRead:
    """A read that has to wait for the disk, and whose answer is waiting for it."""

    __slots__ = ("answer", "error", "read", "result")

    def __init__(self, answer: Any, read: WouldBlock) -> None:
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


class DelayedFetch(DelayedOperation):
    __slots__ = (
        "_answers",
        "_bytes_read",
        "_cold",
        "_context",
        "_ends_wait",
        "_fetch",
        "_isolation_level",
        "_max_bytes",
        "_min_bytes",
        "_replica_id",
        "_watched",
    )

    def __init__(
        self,
        context: "RequestContext",
        fetch: FetchContext,
        *,
        deadline_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int,
        replica_id: int,
    ) -> None:
        super().__init__(deadline_ms)
        self._context = context
        self._fetch = fetch
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._isolation_level = isolation_level
        self._replica_id = replica_id
        self._answers: list[Any] = []
        self._bytes_read = 0
        self._ends_wait = False
        self._cold: list[ColdRead] = []
        # The partitions that are waited for, with their leader epoch when they were read.
        self._watched: list[tuple[Partition, int, FetchTarget]] = []

    def start(self) -> FetchResponse | None:
        """The response, or None after parking the request."""
        self._read_all()
        if self._cold:
            self._context.park()
            self._read_cold()
            return None
        if self._ends_wait or self._bytes_read >= self._min_bytes or not self._watched:
            return self._response()
        context = self._context
        context.park()
        purgatory = context.broker.replicas.delayed_fetch
        context.on_disconnect = lambda: purgatory.cancel(self)
        purgatory.try_complete_else_watch(self, [partition for partition, _, _ in self._watched])
        return None

    # Waiting.

    def try_complete(self) -> bool:
        missing = self._min_bytes
        for partition, leader_epoch, target in self._watched:
            bound = partition.upper_bound(self._isolation_level)
            has_changed = partition.leader_epoch != leader_epoch or not partition.is_leader
            if has_changed or bound < target.fetch_offset:
                return self.force_complete()
            if bound > target.fetch_offset:
                missing -= min(partition.log.bytes_between(target.fetch_offset, bound), target.max_bytes)
                if missing <= 0:
                    return self.force_complete()
        return False

    def on_complete(self) -> None:
        self._read_all()
        if self._cold:
            self._read_cold()
        else:
            self._context.complete(self._response())

    # Reading.

    def _read_all(self) -> None:
        self._answers = []
        self._watched = []
        self._cold = []
        self._bytes_read = 0
        room = self._max_bytes
        for target in self._fetch.targets:
            aborted: list[Any] | None = [] if self._isolation_level == READ_COMMITTED else None
            answer = PartitionData(partition_index=target.partition, records=b"", aborted_transactions=aborted)
            self._answers.append(answer)
            try:
                room -= self._read(target, answer, room)
            except KafkaError as error:
                self._ends_wait = True
                self._describe_failure(target, answer, error)

    def _read(self, target: FetchTarget, answer: Any, room: int) -> int:
        """Fills the answer; returns how many bytes of the response it takes."""
        partition = self._find(target)
        partition.check_leader(target.current_leader_epoch)
        log = partition.log
        answer.high_watermark = partition.high_watermark
        answer.last_stable_offset = partition.last_stable_offset
        answer.log_start_offset = log.log_start_offset
        if target.last_fetched_epoch >= 0 and self._diverges(target, partition, answer):
            self._ends_wait = True
            return 0
        partition.check_readable(target.fetch_offset)
        self._watched.append((partition, partition.leader_epoch, target))
        at_least_one_batch = self._bytes_read == 0 and not self._cold
        wanted = min(target.max_bytes, room)
        if wanted <= 0 and not at_least_one_batch:
            return 0
        try:
            result = partition.read(
                target.fetch_offset,
                wanted,
                isolation_level=self._isolation_level,
                at_least_one_batch=at_least_one_batch,
            )
        except WouldBlock as read:
            self._cold.append(ColdRead(answer, read))
            return wanted
        answer.records = result.records
        size = len(result.records)
        self._bytes_read += size
        return size

    def _find(self, target: FetchTarget) -> Partition:
        if isinstance(target.key[0], bytes) and not target.topic:
            # A session may know an id that came into being after it.
            topic = self._context.broker.image.topic_by_id(target.topic_id)
            if topic is None:
                raise UnknownTopicId(f"there is no topic with id {target.topic_id.hex()}")
            target.topic = topic.name
        partition = self._context.broker.replicas.partition(target.topic, target.partition)
        if target.topic_id not in (ZERO_ID, partition.topic_id):
            if self._context.broker.image.topic_by_id(target.topic_id) is None:
                raise UnknownTopicId(f"there is no topic with id {target.topic_id.hex()}")
            raise InconsistentTopicId(f"topic {target.topic} has another id than {target.topic_id.hex()}")
        if self._replica_id >= 0 and self._replica_id not in partition.replicas:
            what = f"broker {self._replica_id} has no replica of {target.topic}-{target.partition}"
            raise UnknownLeaderEpoch(what) if target.current_leader_epoch >= 0 else NotLeaderOrFollower(what)
        return partition

    def _diverges(self, target: FetchTarget, partition: Partition, answer: Any) -> bool:
        """Whether the reader has records of an epoch that ended earlier than it believes (KIP-595)."""
        diverging = partition.diverging_epoch(target.last_fetched_epoch, target.fetch_offset)
        if diverging is None:
            return False
        epoch, end_offset = diverging
        answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return True

    def _describe_failure(self, target: FetchTarget, answer: Any, error: KafkaError) -> None:
        answer.error_code = int(error.code)
        if not isinstance(error, OffsetOutOfRange):
            answer.high_watermark = answer.last_stable_offset = answer.log_start_offset = UNKNOWN
        if isinstance(error, NotLeaderOrFollower | FencedLeaderEpoch):
            known = self._context.broker.image.partition(target.topic, target.partition)
            if known is not None:
                answer.current_leader = LeaderIdAndEpoch(leader_id=known.leader, leader_epoch=known.leader_epoch)

    def _read_cold(self) -> None:
        cold = self._cold

        def work() -> None:
            for read in cold:
                read.run()

        def done() -> None:
            for read in cold:
                read.apply()
            self._context.complete(self._response())

        self._context.broker.offload(work, done)

    # Answering.

    def _response(self) -> FetchResponse:
        fetch = self._fetch
        included = fetch.answered(self._answers, self._context.broker.clock.now_ms())
        return FetchResponse(session_id=fetch.session_id, responses=_by_topic(fetch.targets, self._answers, included))


def _by_topic(targets: Sequence[FetchTarget], answers: Sequence[Any], included: Sequence[bool]) -> list[Any]:
    topics: list[Any] = []
    name, topic_id = None, ZERO_ID
    for target, answer, include in zip(targets, answers, included, strict=True):
        if not include:
            continue
        if target.topic != name or target.topic_id != topic_id:
            name, topic_id = target.topic, target.topic_id
            topics.append(FetchableTopicResponse(topic=name, topic_id=topic_id))
        topics[-1].partitions.append(answer)
    return topics
