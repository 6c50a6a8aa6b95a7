"""The replicas of this broker: which there are, who leads each, and what a change of that sets in motion.

A committed state comes in through `apply_partition_state`, which opens the log and applies it. Where this broker begins
to lead, it stops fetching and notifies the watcher of the topic. Where it begins to follow, the watcher is notified
first, requests that wait for this leader are refused, then it fetches from the new leader. After all of an update,
`metadata_applied` begins and ends connections once for everything together.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ottla.broker.config.topic import log_config
from ottla.broker.replicas.alter_partition import AlterPartitionManager, ImageRegistrations
from ottla.broker.replicas.appends import AppendAnswer, AppendDone, Appends
from ottla.broker.replicas.disk_sync import DiskSync, NameSync, SnapshotWrites
from ottla.broker.replicas.failed_logs import Metadata
from ottla.broker.replicas.failed_replicas import FailedReplicas
from ottla.broker.replicas.log_end_reports import LogEndReports
from ottla.broker.replicas.replication_throttles import ReplicationThrottles
from ottla.broker.runtime import Runtime
from ottla.broker.server.network import Network
from ottla.cluster.image import MetadataImage, PartitionInfo, TopicInfo
from ottla.cluster.updates import ImageUpdate
from ottla.protocol.errors import KafkaError, KafkaStorageError, NotLeaderOrFollower, UnknownTopicOrPartition
from ottla.replication.leadership import FetchNoted, ReplicationRules
from ottla.replication.partition import Partition, StateChange, TopicTraffic
from ottla.security.client import LoginCredentials
from ottla.storage.checkpoints import TopicPartition
from ottla.storage.log import Origin, VerificationGuard
from ottla.storage.log_config import LogConfig
from ottla.storage.log_directory import LogDirectory

if TYPE_CHECKING:
    from ottla.broker.replicas.fetcher_tasks import FetcherTasks

__all__ = ["AppendAnswer", "AppendDone", "ReplicaManager"]


class LeadershipWatcher(Protocol):
    """What is notified of the partitions of a topic that this broker begins, or ceases, to lead."""

    def elected(self, index: int) -> None: ...

    def resigned(self, index: int) -> None: ...

    def log_failed(self, index: int) -> None:
        """Records of a partition that is led here were refused, and are in its log."""


class Checkpoints(Protocol):
    def recovery_points_fell(self, done: Callable[[], None] | None = None) -> None: ...

    def log_deleted(self) -> None: ...


class ReplicaManager:
    def __init__(
        self,
        runtime: Runtime,
        metadata: Metadata,
        directory: LogDirectory,
        network: Network,
        *,
        inter_broker_listener: str,
        login: LoginCredentials | None,
        log_ends: LogEndReports,
        checkpoints: Checkpoints,
        log_failure: Callable[[str, int], KafkaError | None],
        session_is_over: Callable[[], bool],
    ) -> None:
        """`log_failure` says why a replica of this broker has no log, if it has none.

        `session_is_over` says whether the broker's session has ended by its own clock, or a new one has begun that its
        metadata does not have: then others may lead by now what it leads, whether or not the store answers it."""
        self.node_id = runtime.node_id
        self._runtime = runtime
        self._metadata, self._directory, self._network = metadata, directory, network
        self._inter_broker_listener, self._login = inter_broker_listener, login
        self._log_ends, self._checkpoints = log_ends, checkpoints
        self._log_failure, self.session_is_over = log_failure, session_is_over
        self._watchers: dict[str, LeadershipWatcher] = {}
        self._partitions: dict[str, dict[int, Partition]] = {}
        self.traffic, self.traffic_of_deleted = dict[str, TopicTraffic](), TopicTraffic()
        """By topic, and of those that were here together."""
        self._rules = ReplicationRules(ImageRegistrations(metadata), runtime.config.replica_lag_time_max_ms)
        self.throttles = ReplicationThrottles(runtime)
        self._disk_sync = DiskSync(runtime, self._synced, self._write_failed)
        self._name_sync, self._snapshot_writes = NameSync(runtime, self._names_not_synced), SnapshotWrites(runtime)
        appends = self._appends = Appends(runtime, self._disk_sync, self._write_failed)
        # Called for every batch and at the end of every event: so they are the methods of `Appends` themselves.
        self.append = appends.append
        self.flush_and_notify = appends.flush_and_notify
        self.shared_reads = appends.shared_reads
        self.write_times, self.flush_times = appends.write_times, self._disk_sync.flush_times
        self.delayed_produce, self.delayed_fetch = appends.delayed_produce, appends.delayed_fetch
        self.delayed_delete_records = appends.delayed_delete_records
        self._alter_partition = AlterPartitionManager(runtime, metadata, appends.mark_changed)
        self.failed = FailedReplicas(runtime, metadata, self, checkpoints.recovery_points_fell)
        self._fetching: FetcherTasks | None = None
        self._has_stepped_down = False

    @property
    def isr_changes(self) -> Mapping[str, int]:
        """Of partitions that are led here, since the start: shrink, expand."""
        return self._alter_partition.committed

    @property
    def image(self) -> MetadataImage:
        return self._metadata.image

    def on_leadership(self, topic: str, watcher: LeadershipWatcher) -> None:
        """`watcher` is notified of each partition of the topic that this broker begins, or ceases, to lead."""
        self._watchers[topic] = watcher

    # Which partitions there are.

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._partitions.values():
            yield from partitions.values()

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return {(partition.topic, partition.index): partition.high_watermark for partition in self}

    def of_topic(self, topic: str) -> list[Partition]:
        return list(self._partitions.get(topic, {}).values())

    def partition(self, topic: str, index: int) -> Partition:
        """Raises what a client gets for a partition that is not here (§15.1.1)."""
        try:
            return self._partitions[topic][index]
        except KeyError:
            raise self._absent(topic, index) from None

    def find(self, topic: str, index: int) -> Partition | None:
        return self._partitions.get(topic, {}).get(index)

    def _absent(self, topic: str, index: int) -> KafkaError:
        failure = self._log_failure(topic, index)
        if failure is not None:
            return failure
        if self._metadata.image.partition(topic, index) is not None:
            return NotLeaderOrFollower(f"this broker has no replica of {topic}-{index}")
        return UnknownTopicOrPartition(f"there is no partition {topic}-{index}")

    def count_sent(self, topic: str, records: "bytes | memoryview | list[memoryview]", *, to_follower: bool) -> None:
        """Records of a topic leave in a response."""
        traffic = self.traffic.get(topic)
        if traffic is None:
            return
        size = sum(map(len, records)) if type(records) is list else len(records)
        if to_follower:
            traffic.bytes_to_followers += size
        else:
            traffic.bytes_to_consumers += size

    def append_records(
        self,
        topic: str,
        index: int,
        records: memoryview,
        done: AppendDone,
        guard: VerificationGuard | None = None,
        origin: Origin = Origin.COORDINATOR,
    ) -> None:
        """Appends a batch of the broker's own. `done` is called once, later: when the high watermark has passed it.

        `guard` is what the first batch of a transaction presents to the log."""
        try:
            partition = self.partition(topic, index)
        except KafkaError as error:
            self._runtime.soon(partial(done, None, error))
        else:
            self._appends.append_own(partition, records, done, guard, origin)

    # What metadata says of them.

    def apply_partition_state(self, topic: TopicInfo, index: int) -> None:
        """Opens the log, or makes it, and takes the state that is committed. Raises KafkaStorageError.

        After an error the replica serves no request until the state is applied again."""
        if self._has_stepped_down:
            return
        partition = self.find(topic.name, index) or self._open(topic, index)
        state = topic.partitions[index]
        try:
            self._apply_state(partition, state)
        except Exception:
            self._state_failed(partition, state)
            raise

    def _apply_state(self, partition: Partition, state: PartitionInfo) -> None:
        if partition.log.has_pending_writes:
            # It was accepted in the term that may end now.
            self.flush_and_notify()
        taken = partition.apply_state(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            replicas=state.replicas,
            isr=state.isr,
            elr=state.elr,
            now_ms=self._runtime.lag_clock.now_ms(),
        )
        self._log_ends.state_applied(partition, state)
        match taken:
            case StateChange.NONE:
                return
            case StateChange.BECAME_LEADER:
                self._lead(partition)
            case StateChange.BECAME_FOLLOWER:
                self._resign(partition)
                self._follow(partition)
            case StateChange.UPDATED:
                pass
        self._appends.mark_changed(partition)
        if taken is not StateChange.UPDATED:
            self._appends.wake_followers(partition)
        self.failed.state_taken(partition)

    def _state_failed(self, partition: Partition, state: PartitionInfo) -> None:
        """The replica counts as failed: others are to lead, until the state can be applied."""
        self._stop_fetching(partition)
        partition.forget_state()
        self._appends.mark_changed(partition)
        if len(state.replicas) > 1:
            self.failed.write_failed(partition)

    def delete_partition(self, topic: str, index: int) -> None:
        """Forgets the partition and removes its log; requests that wait for it are answered. Raises KafkaStorageError
        if the log's directory could not be renamed yet."""
        partition = self._partitions.get(topic, {}).pop(index, None)
        if partition is None:
            return
        if not self._partitions[topic]:
            del self._partitions[topic]
            self.traffic_of_deleted.add(self.traffic.pop(topic))
        self._stop_fetching(partition)
        self._stop_leading(partition)
        self.shared_reads.forget(partition.log)
        self._disk_sync.forget(partition)
        self._name_sync.forget(partition)
        self._snapshot_writes.forget(partition)
        self.failed.forget(partition)
        self._log_ends.forget(partition)
        try:
            self._directory.delete_log(topic, index, now_wall_ms=self._runtime.broker_clock.wall_ms())
        finally:
            self._checkpoints.log_deleted()

    def on_metadata_update(self, before: MetadataImage, update: ImageUpdate) -> None:  # noqa: ARG002
        self.metadata_applied(update)

    def metadata_applied(self, update: ImageUpdate) -> None:
        """All partitions have their states: see to the connections to their leaders."""
        for node_id in update.brokers:
            self._leader_changed(node_id)
        if self._fetching is not None:
            self._fetching.apply_changes()
        self._log_ends.update()

    def configure(self, topic: str, config: LogConfig) -> None:
        for partition in self._partitions.get(topic, {}).values():
            partition.log.configure(config)
            if config.waits_for_sync:
                self._disk_sync.configured(partition)
            # A smaller min.insync.replicas may let it rise.
            if partition.maybe_raise_high_watermark(self._runtime.lag_clock.now_ms()):
                self._appends.high_watermark_rose(partition)
                self._appends.wake_followers(partition)

    def step_down(self) -> None:
        """The broker stops: nothing is copied any more, and requests that wait for a partition are refused."""
        self._has_stepped_down = True
        self.stop_fetching()
        for partition in self:
            self._stop_leading(partition)

    def stop_fetching(self) -> None:
        """Nothing is copied from now on."""
        if self._fetching is not None:
            self._fetching.end()

    def stop_following(self, partition: Partition) -> None:
        """The log is about to be cut: the answer to a fetch that is under way must not be appended to it."""
        self._stop_fetching(partition)

    def follow_again(self, partition: Partition) -> None:
        """After the log was cut, or when its disk may have recovered."""
        if not partition.is_leader and self.find(partition.topic, partition.index) is partition:
            self._stop_fetching(partition)
            self._follow(partition)
            if self._fetching is not None:
                self._fetching.apply_changes()

    def _write_failed(self, partition: Partition) -> None:
        """Records of a partition that is led here could not be written."""
        if partition.has_followers:
            self.failed.write_failed(partition)

    # Leading and following.

    def _open(self, topic: TopicInfo, index: int) -> Partition:
        log = self._directory.logs.get((topic.name, index))
        config, wall_ms = log_config(topic.configs, self._runtime.config), self._runtime.broker_clock.wall_ms()
        if log is None:
            log = self._directory.create_log(topic.name, index, topic.topic_id, config, now_wall_ms=wall_ms)
        elif log.topic_id != topic.topic_id:
            raise KafkaStorageError(f"{log.directory} holds the log of another topic of this name")
        elif log.config != config:  # Altered while this broker was no replica.
            log.configure(config)
        partition = Partition(
            topic.name,
            index,
            topic.topic_id,
            log,
            local_id=self.node_id,
            high_watermark=log.restored_high_watermark,
            rules=self._rules,
            traffic=self.traffic.setdefault(topic.name, TopicTraffic()),
        )
        self._partitions.setdefault(topic.name, {})[index] = partition
        log.watch_segments(partial(self._segment_begun, partition))
        self._disk_sync.opened(partition)
        return partition

    def _segment_begun(self, partition: Partition) -> None:
        self._name_sync.request(partition)
        self._snapshot_writes.request(partition)

    def _lead(self, partition: Partition) -> None:
        self._stop_fetching(partition)
        watcher = self._watchers.get(partition.topic)
        if watcher is not None:
            watcher.elected(partition.index)

    def _resign(self, partition: Partition) -> None:
        watcher = self._watchers.get(partition.topic)
        if watcher is not None:
            watcher.resigned(partition.index)

    def _stop_leading(self, partition: Partition) -> None:
        self._resign(partition)
        # Before it resigns, for the sessions that wake up read the partition.
        self._appends.wake_followers(partition)
        partition.resign()
        self._appends.mark_changed(partition)

    def _follow(self, partition: Partition) -> None:
        leader = self._metadata.image.brokers.get(partition.leader_id)
        if leader is None or not leader.is_live:
            self._stop_fetching(partition)
            return
        host, port = leader.endpoint(self._inter_broker_listener)
        self._fetchers().add_partition(partition, host, port)

    def _leader_changed(self, node_id: int) -> None:
        """A broker has registered, come to life or gone; it may be reached elsewhere."""
        if node_id == self.node_id:
            return
        leader = self._metadata.image.brokers.get(node_id)
        if leader is not None and leader.is_live and self._fetching is not None:
            self._fetching.move_leader(node_id, *leader.endpoint(self._inter_broker_listener))
        for partition in self:
            if partition.leader_id == node_id:
                self._follow(partition)

    def _stop_fetching(self, partition: Partition) -> None:
        if self._fetching is not None:
            self._fetching.remove_partition(partition.topic, partition.index)

    def _fetchers(self) -> "FetcherTasks":
        """Imported for the first partition that is led elsewhere: a broker that is alone need not pay for it."""
        if self._fetching is None:
            from ottla.broker.replicas.fetcher_tasks import FetcherTasks

            self._fetching = FetcherTasks(
                self._runtime,
                self._metadata,
                self,
                self._network,
                self._login,
                self._checkpoints.recovery_points_fell,
                self.throttles.follower,
            )
        return self._fetching

    # What replication brings.

    def followed(self, partition: Partition, *, high_watermark_rose: bool) -> None:
        """The leader's answer had records for the partition, or a higher high watermark."""
        # Consumers may read from a follower; no other request waits for one.
        if high_watermark_rose and self.delayed_fetch.keys:
            self._appends.mark_changed(partition)
        if partition.log.waits_for_sync:
            self._disk_sync.written(partition)

    def _synced(self, partition: Partition) -> None:
        """Records of the partition have reached the disk, or failed to."""
        if partition.maybe_raise_high_watermark(self._runtime.lag_clock.now_ms()):
            self._appends.high_watermark_rose(partition)
            self._appends.wake_followers(partition)
        self._appends.mark_changed(partition)
        if self._fetching is not None:
            self._fetching.synced(partition)
        watcher = self._watchers.get(partition.topic)
        if watcher is not None and partition.is_leader and partition.log.failure is not None:
            # When appends that wait for the sync have been refused, at the end of this event.
            self._runtime.soon(partial(watcher.log_failed, partition.index))

    def _names_not_synced(self, partition: Partition) -> None:
        """The log has failed."""
        self._write_failed(partition)
        self._synced(partition)

    def follower_noted(self, partition: Partition, noted: FetchNoted) -> None:
        """A follower has fetched from this leader."""
        if noted.high_watermark_rose:
            self._appends.high_watermark_rose(partition)
            if self._runtime.config.replica_selector_class is not None:
                # Consumers read there, and see nothing above what the follower knows.
                self._appends.wake_followers(partition)
        if self.delayed_delete_records.keys:
            # Its log may begin later now.
            self._appends.mark_changed(partition)
        if noted.isr_change is not None:
            self._alter_partition.submit(partition, noted.isr_change)

    def log_start_rose(self, partition: Partition) -> None:
        """Records of the leader's log were deleted; followers are to delete theirs."""
        partition.sessions.mark_dirty()
        self._appends.wake_followers(partition)

    def sync_if_overdue(self, partition: Partition) -> None:
        """Makes complete segments durable (§16.2.3), so that a start after a crash need not read them again, and the
        names of those that have records."""
        log = partition.log
        if log.failure is not None:
            return
        if log.is_flush_overdue(self._runtime.broker_clock.wall_ms()):
            self._disk_sync.request(partition)
        elif not log.has_durable_names and log.segments.active.size:
            self._name_sync.request(partition)

    def shrink_isr(self, partition: Partition) -> None:
        """To be called for each partition every half of `replica.lag.time.max.ms` (§14.7.1)."""
        if partition.has_followers:
            change = partition.maybe_shrink_isr(self._runtime.lag_clock.now_ms())
            if change is not None:
                self._alter_partition.submit(partition, change)
