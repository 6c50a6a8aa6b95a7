"""Topics that were deleted, and partitions that were moved away, while brokers may still have logs of them.

A deletion leaves a mark that names the brokers with replicas. A broker that is up deletes its logs when the topic
leaves the image; one that was down does it at its next start, by the mark. From time to time each broker that has no
such log any more, durably, takes itself out of the marks, and a mark that names no broker goes. A log of a partition
whose replicas are all elsewhere was moved away while its broker was down: it is set aside, not deleted, for the image
may be an older one that an operator has put back. So may be one that does not know the log's topic: that log stays.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.runtime import Runtime
from ottla.cluster.encoding import DeletionMark
from ottla.cluster.image import MetadataImage
from ottla.cluster.store import Committed
from ottla.cluster.topic_changes import has_to_tidy, without_logs_on
from ottla.cluster.updates import ImageUpdate
from ottla.storage.files import FileSystem
from ottla.storage.log_directory import LogDirectory

# Marks are small, and may wait. Brokers that begin at one moment should not all be refused again and again.
TIDY_MS_MIN, TIDY_MS_MAX = 20_000, 40_000


class DeletedTopics:
    def __init__(
        self,
        runtime: Runtime,
        metadata: ClusterMetadata,
        directory: LogDirectory,
        files: FileSystem,
        log_deleted: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._directory = directory
        self._files = files
        self._log_deleted = log_deleted
        self._is_started = False
        self._tidying: asyncio.Task[None] | None = None

    def on_metadata_update(self, before: MetadataImage, update: ImageUpdate) -> None:  # noqa: ARG002
        if not self._is_started:
            self._is_started = True
            self._finish()
        if self._tidying is None and any(map(self._concerns, self._metadata.deletion_marks.values())):
            self._tidying = self._runtime.spawn(self._tidy(), "marks of deleted topics")

    @property
    def _marks(self) -> Mapping[str, DeletionMark]:
        return self._metadata.deletion_marks

    def _finish(self) -> None:
        """At the start: delete the logs of topics whose deletion this broker has missed; set those of moved partitions
        aside."""
        deleted = {mark.topic_id for mark in self._marks.values()}
        # A power failure may take the topic id from a log of which nothing was flushed yet: nothing in it is promised.
        node_id = self._runtime.node_id
        names = {mark.name for mark in self._marks.values() if node_id in mark.brokers}
        directory = self._directory
        for (name, index), log in list(directory.logs.items()):
            topic = self._metadata.image.topic(name)
            if log.topic_id in deleted or (log.topic_id is None and name in names):
                self._runtime.guard(self._delete, name, index)
            elif topic is None or log.topic_id not in (None, topic.topic_id) or index >= len(topic.partitions):
                self._runtime.log.metadata.warning("a log of no known topic is left alone", topic=name, partition=index)
            elif node_id not in topic.partitions[index].replicas:
                self._runtime.guard(self._set_aside, name, index)
            elif log.topic_id is None:
                directory.assign_topic_id(log, topic.topic_id)

    def _delete(self, name: str, index: int) -> None:
        try:
            self._directory.delete_log(name, index, now_wall_ms=self._runtime.broker_clock.wall_ms())
        finally:
            self._log_deleted()

    def _set_aside(self, name: str, index: int) -> None:
        target = self._directory.set_stray_aside(name, index)
        self._log_deleted()
        self._runtime.log.metadata.warning(
            "a partition was moved away while this broker was down: its log is set aside",
            topic=name,
            partition=index,
            directory=str(target),
        )

    def _concerns(self, mark: DeletionMark) -> bool:
        return has_to_tidy(self._runtime.node_id, mark, self._metadata.image.brokers)

    async def _tidy(self) -> None:
        """Marks that are left wait for the next update of the metadata, or the next life of this broker."""
        try:
            is_tidy = False
            while not is_tidy:
                await self._runtime.sleep(self._runtime.rng.randint(TIDY_MS_MIN, TIDY_MS_MAX))
                is_tidy = await self._take_out_of_marks()
        finally:
            self._tidying = None

    async def _take_out_of_marks(self) -> bool:
        """Once the names of deleted logs are durably gone from the directory. False: the store did not take all."""
        gone = self._marks_without_logs()
        if not gone:
            return True
        try:
            await self._runtime.in_thread(lambda: self._files.sync_directory(self._directory.path))
        except OSError as error:
            self._runtime.log.metadata.error("the data directory could not be synced", why=str(error))
            return True
        unchanged = [mark for mark in gone if self._marks.get(mark.key) == mark]
        is_tidy = True
        for transaction in without_logs_on(self._runtime.node_id, unchanged, self._metadata.image.brokers):
            is_tidy &= isinstance(await self._metadata.commit(transaction), Committed)
        return is_tidy

    def _marks_without_logs(self) -> Sequence[DeletionMark]:
        marks = [mark for mark in self._marks.values() if self._concerns(mark)]
        here = self._directory.has_log_of({mark.topic_id for mark in marks})
        return [mark for mark in marks if mark.topic_id not in here]
