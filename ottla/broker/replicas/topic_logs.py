"""The logs of this broker's replicas, made and removed as the metadata says.

Many logs are made, and deleted, a few at a time, so that other clients are served in between. Deletions come first:
another topic may have got the name. A request for a partition whose log is still to come is answered
NOT_LEADER_OR_FOLLOWER, and clients ask again, as while a leader moves.

Each partition is on its own: one whose log cannot be opened, or whose state cannot be applied, is tried again every
RETRY_MS, and the others of the same update get their states.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol

from ottla.broker.logging import cause_of
from ottla.broker.replicas.failed_logs import FailedLogs, Metadata, Replica
from ottla.broker.runtime import Runtime, complete
from ottla.cluster.image import MetadataImage, TopicInfo
from ottla.cluster.updates import ImageUpdate
from ottla.protocol.errors import KafkaError
from ottla.replication.partition import Partition

# One step makes so many at most, and begins no more after so long: a disk may be slow.
LOGS_AT_ONCE = 25
STEP_MS = 5


class _Gone(NamedTuple):
    topic: str
    topic_id: bytes
    partition: int


class _Waiting(NamedTuple):
    topic_ids: Collection[bytes]
    made: "asyncio.Future[None]"


class HostedReplicas(Protocol):
    def find(self, topic: str, index: int) -> Partition | None: ...

    def apply_partition_state(self, topic: TopicInfo, index: int) -> None: ...

    def delete_partition(self, topic: str, index: int) -> None: ...

    def metadata_applied(self, update: ImageUpdate) -> None: ...


class TopicLogs:
    def __init__(self, runtime: Runtime, metadata: Metadata, replicas: HostedReplicas) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._replicas = replicas
        # Called with the names of topics that are gone.
        self.deletion_listeners: list[Callable[[Sequence[str]], None]] = []
        self.failed = FailedLogs(runtime, metadata, self._try_again)
        # Still to be deleted.
        self._gone: deque[_Gone] = deque()
        # Still to be made, and how many of each topic id that are.
        self._missing: deque[Replica] = deque()
        self._counts: dict[bytes, int] = {}
        self._waiting: list[_Waiting] = []
        self._is_making = False
        self._stopped = False

    def stop(self) -> None:
        """No more logs are made; the next start makes what is missing. Those that are no replicas any more go now."""
        self._stopped = True
        while self._gone:
            self._delete(self._gone.popleft())
        self.failed.stop()

    def on_metadata_update(self, before: MetadataImage, update: ImageUpdate) -> None:
        """Make the logs agree with the image: those of new replicas are begun, those of others that are none go."""
        deleted = [name for name in update.topics if self._is_gone(before, update.image, name)]
        for name in deleted:
            self._forget(before.topics[name])
        for name, indexes in update.topics.items():
            topic = update.image.topic(name)
            if topic is not None:
                self._follow_topic(topic, indexes)
        if deleted:
            for listener in self.deletion_listeners:
                self._runtime.guard(listener, deleted)
        if not self._is_making:
            self._make_some()

    async def all_made(self) -> None:
        """Returns when this broker has all logs that the image gives it, or could not make them."""
        await self.made(self._metadata.image.topics.values())

    async def made(self, topics: Collection[TopicInfo]) -> None:
        """Returns when this broker has its logs of these topics, which the image has, or could not make them; it goes
        on trying then."""
        waiting = _Waiting([topic.topic_id for topic in topics], asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._complete_waiting()
        await waiting.made

    def _is_gone(self, before: MetadataImage, after: MetadataImage, name: str) -> bool:
        old, new = before.topic(name), after.topic(name)
        return old is not None and (new is None or new.topic_id != old.topic_id)

    def _forget(self, topic: TopicInfo) -> None:
        self._gone += [_Gone(topic.name, topic.topic_id, index) for index in range(len(topic.partitions))]
        self.failed.forget_topic(topic.topic_id)

    def _follow_topic(self, topic: TopicInfo, indexes: Sequence[int]) -> None:
        for index in indexes:
            partition = self._replicas.find(topic.name, index)
            here = partition is not None and partition.topic_id == topic.topic_id
            if not self._is_ours(topic, index):
                if here:
                    self._gone.append(_Gone(topic.name, topic.topic_id, index))
            elif here:
                self._apply_state(topic, index)
            elif not self.failed.has(topic.topic_id, index):
                self._expect(Replica(topic.topic_id, index))

    def _delete(self, gone: _Gone) -> None:
        partition = self._replicas.find(gone.topic, gone.partition)
        topic = self._metadata.image.topic_by_id(gone.topic_id)
        if partition is None or partition.topic_id != gone.topic_id:
            return
        if topic is not None and self._is_ours(topic, gone.partition):
            # It was assigned to this broker again.
            return
        try:
            self._replicas.delete_partition(gone.topic, gone.partition)
        except Exception as error:
            self._log_failure("the log of a deleted partition could not be renamed", gone.topic, gone.partition, error)

    # Making logs.

    def _expect(self, replica: Replica) -> None:
        self._missing.append(replica)
        self._counts[replica.topic_id] = self._counts.get(replica.topic_id, 0) + 1

    def _try_again(self, failed: Sequence[Replica]) -> None:
        for replica in failed:
            self._expect(replica)
        if not self._is_making:
            self._make_more()

    def _make_some(self) -> None:
        deadline_ms = self._runtime.clock.now_ms() + STEP_MS
        for _ in range(min(len(self._gone) + len(self._missing), LOGS_AT_ONCE)):
            if self._gone:
                self._delete(self._gone.popleft())
            else:
                self._make(self._missing.popleft())
            if self._runtime.clock.now_ms() >= deadline_ms:
                break
        self._is_making = bool(self._gone or self._missing)
        if self._is_making:
            self._runtime.soon(self._make_more)

    def _make_more(self) -> None:
        if self._stopped:
            return
        self._make_some()
        image = self._metadata.image
        self._replicas.metadata_applied(ImageUpdate(image, {}, (), controller_changed=False))
        self._complete_waiting()

    def _make(self, missing: Replica) -> None:
        # By now it may have changed, or been deleted.
        topic = self._metadata.image.topic_by_id(missing.topic_id)
        if topic is not None and self._is_ours(topic, missing.partition):
            self._apply_state(topic, missing.partition)
        else:
            self.failed.discard(missing.topic_id, missing.partition)
        self._counts[missing.topic_id] -= 1
        if not self._counts[missing.topic_id]:
            del self._counts[missing.topic_id]

    def _is_ours(self, topic: TopicInfo, index: int) -> bool:
        return index < len(topic.partitions) and self._runtime.node_id in topic.partitions[index].replicas

    def _apply_state(self, topic: TopicInfo, index: int) -> None:
        try:
            self._replicas.apply_partition_state(topic, index)
        except Exception as error:
            if not self.failed.has(topic.topic_id, index):
                self._log_failure("the state of a partition could not be applied", topic.name, index, error)
            partition = self._replicas.find(topic.name, index)
            known = error if isinstance(error, KafkaError) else KafkaError(f"{topic.name}-{index}: {error!r}")
            has_log = partition is not None and partition.topic_id == topic.topic_id
            self.failed.add(topic, index, known, has_log=has_log)
        else:
            self.failed.discard(topic.topic_id, index)

    def _log_failure(self, what: str, topic: str, index: int, error: Exception) -> None:
        self._runtime.log.storage.error(what, topic=topic, partition=index, **cause_of(error))

    def _complete_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if any(topic_id in self._counts for topic_id in each.topic_ids):
                self._waiting.append(each)
            else:
                complete(each.made, None)
