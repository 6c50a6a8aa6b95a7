"""The shell of a coordinator, for any coordinator topic: which of its partitions are led here, and their loading.

It is made for the name of a topic and a factory of what its partitions hold. A partition is loaded when this broker is
elected as its leader, and unloaded when it resigns; requests of the names that hash to it are handed to it as events.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from ottla.broker.coordinators.hosted_partition import AppendDone, HostedPartition
from ottla.broker.coordinators.loading import load
from ottla.broker.coordinators.observers import Observers
from ottla.broker.coordinators.pending_requests import PendingRequests
from ottla.broker.runtime import Runtime, next_step
from ottla.cluster.image import BrokerInfo, MetadataImage
from ottla.coordinator.runtime.hashing import partition_for
from ottla.coordinator.runtime.partition import CoordinatorPartition, CoordinatorShard
from ottla.coordinator.runtime.step_context import NO_BOUND
from ottla.protocol.records.compression import Codec
from ottla.replication.partition import Partition
from ottla.storage.log import Origin, VerificationGuard

# Between the attempts to load a partition: doubled each time, as far as the second.
LOAD_RETRY_MS = 1000
LOAD_RETRY_MS_MAX = 60_000

S = TypeVar("S", bound=CoordinatorShard)


class Replicas(Protocol):
    """The replicas of this broker."""

    def of_topic(self, topic: str) -> Iterable[Partition]: ...

    def find(self, topic: str, index: int) -> Partition | None: ...

    def append_records(
        self,
        topic: str,
        index: int,
        records: memoryview,
        done: AppendDone,
        guard: VerificationGuard | None,
        origin: Origin,
    ) -> None: ...


def has_committed_what_it_loaded(replicas: Replicas, hosted: HostedPartition[Any]) -> bool:
    """Whether the high watermark has passed what the partition's log had at the beginning of this term, and what was
    loaded, which is more if the log has failed since. Until then another leader may be elected that has less."""
    replica = replicas.find(hosted.topic, hosted.index)
    return replica is not None and replica.high_watermark >= max(replica.leader_epoch_start, hosted.loaded_offset)


class MetadataCache(Protocol):
    @property
    def image(self) -> MetadataImage: ...


def coordinator_in(image: MetadataImage, coordinator_topic: str, name: str) -> BrokerInfo | None:
    """The broker that serves `name`; None while the topic or the leader is missing."""
    topic = image.topic(coordinator_topic)
    if topic is None:
        return None
    partition = topic.partitions[partition_for(name, len(topic.partitions))]
    leader = image.brokers.get(partition.leader)
    return leader if leader is not None and leader.is_live else None


class CoordinatorTopic(Generic[S]):
    def __init__(
        self,
        name: str,
        make_shard: Callable[[], S],
        runtime: Runtime,
        replicas: Replicas,
        metadata: MetadataCache,
        *,
        codec: int,
        append_timeout_ms: int,
        load_buffer_bytes: int,
        observe: Callable[[Any, int, int], None],
        dispatch: Callable[[HostedPartition[S], Any], None] | None = None,
    ) -> None:
        """`observe` is called with every fact of a step and the step's time, in the middle of it; `dispatch` with each
        command to the shell of this coordinator, if it has such."""
        self.name = name
        self.is_active = False
        self.codec = codec
        self.append_timeout_ms = append_timeout_ms
        self.observe = observe
        self._dispatch = dispatch
        self.pending = PendingRequests(runtime.soon, runtime.spawn)
        self.deliver = self.pending.deliver
        # Notified of every partition that is served from now on.
        self.when_loaded: Observers[HostedPartition[S]] = Observers(runtime.log)
        self._make_shard = make_shard
        self._runtime = runtime
        self._replicas = replicas
        self._metadata = metadata
        self._load_buffer_bytes = load_buffer_bytes
        self._partitions: dict[int, HostedPartition[S]] = {}
        self._partition_count = 0
        self._loader: asyncio.Task[None] | None = None
        self._to_load: list[HostedPartition[S]] = []

    # Life.

    def start(self) -> None:
        """Begin to serve. Partitions that are led here already begin to load."""
        self.is_active = True
        for replica in self._replicas.of_topic(self.name):
            if replica.is_leader:
                self.elected(replica.index)

    def stop(self) -> None:
        """Answer all requests that wait with NOT_COORDINATOR, and take no more."""
        self.is_active = False
        self.stop_loading()
        hosted, self._partitions = self._partitions, {}
        for partition in hosted.values():
            partition.unload()
        self.pending.clear()

    def stop_loading(self) -> None:
        """What is not loaded yet stays so."""
        if self._loader is not None:
            self._loader.cancel()
            self._loader = None

    # Leadership.

    def elected(self, index: int) -> None:
        """This broker leads the partition in a new term: load all that it holds (§4.4). A known term is ignored."""
        replica = self._replicas.find(self.name, index)
        topic = self._metadata.image.topic(self.name)
        if replica is None or topic is None or not self.is_active:
            return
        self._partition_count = len(topic.partitions)
        known = self._partitions.get(index)
        if known is not None:
            if known.leader_epoch >= replica.leader_epoch:
                return
            self.resigned(index)
        coordinator = self._new_coordinator(index)
        hosted = self._partitions[index] = HostedPartition(
            self._runtime, self, index, coordinator, replica.leader_epoch
        )
        if replica.log.log_start_offset == replica.log.log_end_offset:
            self._finish_loading(hosted)
        else:
            self._load_soon(hosted)

    def _new_coordinator(self, index: int) -> CoordinatorPartition[S]:
        return CoordinatorPartition(self._make_shard(), batch_bytes_max=partial(self.batch_bytes_max, index))

    def resigned(self, index: int) -> None:
        """The partition is led elsewhere or not at all: requests that wait here get NOT_COORDINATOR (§4.5)."""
        # First it is out of reach, so that no request creates anything in it.
        hosted = self._partitions.pop(index, None)
        if hosted is not None:
            hosted.unload()

    def load_again(self, index: int) -> None:
        """The partition's log has more than the coordinator knows: load all that it holds, in the same term."""
        if index in self._partitions:
            self.resigned(index)
            self.elected(index)

    # Which partitions there are.

    def __iter__(self) -> Iterator[HostedPartition[S]]:
        return iter(list(self._partitions.values()))

    def partition_of(self, name: str) -> HostedPartition[S] | None:
        """The one that serves `name`, if this broker leads it."""
        if not self._partition_count:
            return None
        return self._partitions.get(partition_for(name, self._partition_count))

    def partition_at(self, index: int) -> HostedPartition[S] | None:
        """The one with this index, if this broker leads it."""
        return self._partitions.get(index)

    @property
    def exists(self) -> bool:
        return self._metadata.image.topic(self.name) is not None

    def leader_of(self, name: str) -> BrokerInfo | None:
        """The broker that serves `name`, by the metadata; None while the topic or the leader is missing."""
        return coordinator_in(self._metadata.image, self.name, name)

    def append(
        self, index: int, records: memoryview, done: AppendDone, guard: VerificationGuard | None, origin: Origin
    ) -> None:
        """For its partitions."""
        self._replicas.append_records(self.name, index, records, done, guard, origin)

    def batch_bytes_max(self, index: int) -> int:
        """For its partitions: what the log takes in one batch. One that is compressed may have been of any size, and a
        log that is not here any more says so itself."""
        replica = self._replicas.find(self.name, index) if self.codec == Codec.NONE else None
        return NO_BOUND if replica is None else replica.log.config.batch_bytes_max

    def dispatch(self, partition: HostedPartition[S], command: Any) -> None:
        """For its partitions."""
        assert self._dispatch is not None, f"{self.name} has no shell for {command}"
        self._dispatch(partition, command)

    # Loading. A partition that fails to load holds up none of the others.

    def _load_soon(self, hosted: HostedPartition[S]) -> None:
        self._to_load.append(hosted)
        if self._loader is None:
            self._loader = self._runtime.start_task(self._load_all(), f"loader of {self.name}")

    async def _load_all(self) -> None:
        while self._to_load:
            await self._load(self._to_load.pop(0))
            # A task is an event of its own.
            self._runtime.guard(self._runtime.end_event)
        self._loader = None

    async def _load(self, hosted: HostedPartition[S]) -> None:
        replica = self._replicas.find(self.name, hosted.index)
        try:
            if replica is not None:
                await load(self._runtime, replica, hosted, self._load_buffer_bytes)
        except Exception:
            self._fail_loading(hosted)
            return
        while not hosted.is_unloaded and not self._finish_loading(hosted):
            self._runtime.guard(self._runtime.end_event)
            await next_step()

    def _finish_loading(self, hosted: HostedPartition[S]) -> bool:
        """Whether it is over: the partition is served, or failed to load."""
        try:
            if not hosted.finish_loading():
                return False
        except Exception:
            self._fail_loading(hosted)
            return True
        self.when_loaded.notify(hosted)
        return True

    def _fail_loading(self, hosted: HostedPartition[S]) -> None:
        """Called in the handler of the exception. The partition is loaded again later: the cause may have gone by then,
        and without that it would not be served until it gets another leader."""
        if hosted.is_unloaded:
            return
        hosted.fail_loading()
        retry_ms = min(LOAD_RETRY_MS << (hosted.failed_loads - 1), LOAD_RETRY_MS_MAX)
        self._runtime.log.exception(
            "coordinator could not be loaded", topic=self.name, partition=hosted.index, retry_ms=retry_ms
        )
        hosted.reload = self._runtime.schedule(retry_ms, lambda: self._load_again(hosted))

    def _load_again(self, hosted: HostedPartition[S]) -> None:
        hosted.restart_loading(self._new_coordinator(hosted.index))
        self._load_soon(hosted)
