"""The partitions of this broker, and the requests that wait for something to happen in them.

Appends are queued in the logs while the requests of a read event are handled. `flush_appends`, which the broker calls
at the end of every event, writes them with one system call per partition, raises the high watermarks, and wakes who
waits: parked fetches, produce requests that wait for the disk, group coordinators. A write that fails changes the
answers of the requests it belonged to, which have not been sent yet.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from ottla.broker.disk_sync import DiskSync
from ottla.cluster.image import TopicInfo
from ottla.cluster.updates import ImageUpdate
from ottla.protocol.errors import (
    ErrorCode,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
    error_for,
)
from ottla.replication.partition import ACKS_ALL, Partition
from ottla.storage.config import LogConfig
from ottla.storage.log import AppendInfo, Origin
from ottla.timer.purgatory import Purgatory

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

# (where the records are, None) once they are below the high watermark, or (None, why not).
AppendDone = Callable[[AppendInfo | None, KafkaError | None], None]


class ReplicaManager:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._partitions: dict[str, dict[int, Partition]] = {}
        # Partitions with queued appends, and the answers that a failing write would change.
        self._unwritten: dict[Partition, list[AppendAnswer]] = {}
        self._own_appends: list[_OwnAppend] = []
        self._disk_sync = DiskSync(broker, self._synced)
        self.delayed_produce = Purgatory("produce", broker.wheel)
        self.delayed_fetch = Purgatory("fetch", broker.wheel)

    # Which partitions there are.

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._partitions.values():
            yield from partitions.values()

    def partition(self, topic: str, index: int) -> Partition:
        """Raises what a client gets for a partition that is not here (§15.1.1)."""
        try:
            return self._partitions[topic][index]
        except KeyError:
            raise self._absent(topic, index) from None

    def find(self, topic: str, index: int) -> Partition | None:
        return self._partitions.get(topic, {}).get(index)

    def create_partition(self, topic: str, index: int, topic_id: bytes, config: LogConfig) -> Partition:
        """Opens the log, or makes it. The partition leads nothing before `Partition.take_state`.

        Raises KafkaStorageError."""
        partition = self.find(topic, index)
        if partition is not None:
            return partition
        directory = self._broker.log_directory
        log = directory.logs.get((topic, index))
        if log is None:
            log = directory.create_log(topic, index, topic_id, config, now_wall_ms=self._broker.clock.wall_ms())
        partition = Partition(
            topic,
            index,
            topic_id,
            log,
            local_id=self._broker.node_id,
            high_watermark=log.restored_high_watermark,
        )
        self._partitions.setdefault(topic, {})[index] = partition
        return partition

    def host(self, topic: TopicInfo, index: int) -> None:
        """Opens or makes the log of this broker's replica, and takes the state that was committed; to be called again
        whenever that is another.

        Raises KafkaStorageError."""
        log = self._broker.log_directory.logs.get((topic.name, index))
        if log is not None and log.topic_id != topic.topic_id:
            raise KafkaStorageError(f"{log.directory} holds the log of another topic of this name")
        config = self._broker.topics.log_config_of(topic)
        state = topic.partitions[index]
        self.create_partition(topic.name, index, topic.topic_id, config).take_state(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            replicas=state.replicas,
            isr=state.isr,
            now_ms=self._broker.clock.now_ms(),
        )

    def metadata_applied(self, update: ImageUpdate) -> None:
        """All partitions have taken what the update says of them: who waits for one that is led no more learns it."""
        for name, indexes in update.topics.items():
            for index in indexes:
                partition = self.find(name, index)
                if partition is not None and not partition.is_leader:
                    self.delayed_produce.check_and_complete(partition)
                    self.delayed_fetch.check_and_complete(partition)

    def delete_partition(self, topic: str, index: int) -> None:
        """Forgets the partition and removes its log; who waits for it learns that it is gone."""
        partition = self._partitions.get(topic, {}).pop(index, None)
        if partition is None:
            return
        if not self._partitions[topic]:
            del self._partitions[topic]
        self._stop_leading(partition)
        self._disk_sync.forget(partition)
        self._broker.log_directory.delete_log(topic, index, now_wall_ms=self._broker.clock.wall_ms())

    def step_down(self) -> None:
        """The broker stops: who waits for a partition is sent away."""
        for partition in self:
            self._stop_leading(partition)

    def _stop_leading(self, partition: Partition) -> None:
        partition.resign()
        self.delayed_produce.check_and_complete(partition)
        self.delayed_fetch.check_and_complete(partition)

    def configure(self, topic: str, config: LogConfig) -> None:
        partitions = self._partitions.get(topic, {}).values()
        ends_compaction = any(p.log.config.is_compacted for p in partitions) and not config.is_compacted
        for partition in partitions:
            partition.log.configure(config)
        if ends_compaction:
            self._broker.housekeeping.gaps_changed()

    def _absent(self, topic: str, index: int) -> KafkaError:
        if self._broker.image.partition(topic, index) is not None:
            return NotLeaderOrFollower(f"this broker has no replica of {topic}-{index}")
        return UnknownTopicOrPartition(f"there is no partition {topic}-{index}")

    # Appending.

    def append(
        self,
        partition: Partition,
        records: memoryview,
        acks: int,
        answer: "AppendAnswer",
        *,
        origin: Origin = Origin.CLIENT,
        zstd_allowed: bool = True,
    ) -> AppendInfo:
        """Queues one batch; `flush_appends` writes it, and should that fail, tells the answer.

        Raises KafkaError, and then nothing is queued."""
        wall_ms = self._broker.clock.wall_ms()
        info = partition.append(records, acks=acks, wall_ms=wall_ms, origin=origin, zstd_allowed=zstd_allowed)
        answers = self._unwritten.get(partition)
        if answers is not None:
            answers.append(answer)
        elif not info.duplicate:
            self._unwritten[partition] = [answer]
        return info

    def append_records(self, topic: str, index: int, records: memoryview, done: AppendDone) -> None:
        """Appends a batch of the broker's own. `done` is called once, later: when the high watermark has passed it."""
        outcome = _OwnAppend(done)
        try:
            partition = self.partition(topic, index)
            outcome.info = self.append(partition, records, ACKS_ALL, outcome, origin=Origin.COORDINATOR)
        except KafkaError as error:
            outcome.fail(error)
        self._own_appends.append(outcome)

    @property
    def has_unwritten(self) -> bool:
        return bool(self._unwritten or self._own_appends)

    def flush_appends(self) -> None:
        """Writes what was appended since the last call, then tells everyone it concerns."""
        while self._unwritten or self._own_appends:
            unwritten, self._unwritten = self._unwritten, {}
            own_appends, self._own_appends = self._own_appends, []
            for partition, answers in unwritten.items():
                self._write(partition, answers)
            for outcome in own_appends:
                self._broker.guard(outcome.tell)
            for partition in unwritten:
                self._broker.guard(self.delayed_fetch.check_and_complete, partition)

    def _write(self, partition: Partition, answers: "list[AppendAnswer]") -> None:
        try:
            partition.log.write_pending(now_wall_ms=self._broker.clock.wall_ms())
        except KafkaError as error:
            self._broker.log.error("append failed", topic=partition.topic, partition=partition.index, why=str(error))
            for answer in answers:
                answer.error_code = int(error.code)
                answer.error_message = str(error)
                answer.base_offset = -1
        partition.maybe_raise_high_watermark(self._broker.clock.now_ms())
        if partition.log.config.waits_for_sync:
            self._disk_sync.written(partition)

    def sync_if_overdue(self, partition: Partition) -> None:
        """Makes complete segments durable (§16.2.3), so that a start after a crash need not read them again."""
        if partition.log.failure is None and partition.log.is_flush_overdue(self._broker.clock.wall_ms()):
            self._disk_sync.request(partition)

    def _synced(self, partition: Partition) -> None:
        self.delayed_produce.check_and_complete(partition)


class AppendAnswer(Protocol):
    """What becomes of an append: the answer for a partition in a produce response, or a note of the broker's own."""

    error_code: int
    error_message: str | None
    base_offset: int


class _OwnAppend:
    """An append of the broker's own, and who wants to know."""

    __slots__ = ("_done", "base_offset", "error_code", "error_message", "info")

    def __init__(self, done: AppendDone) -> None:
        self._done = done
        self.info: AppendInfo | None = None
        self.base_offset = 0
        self.error_code = 0
        self.error_message: str | None = None

    def fail(self, error: KafkaError) -> None:
        self.error_code = int(error.code)
        self.error_message = str(error)

    def tell(self) -> None:
        if self.error_code:
            self._done(None, error_for(ErrorCode(self.error_code), self.error_message or ""))
        else:
            self._done(self.info, None)
