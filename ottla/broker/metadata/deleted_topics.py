"""Topics that were deleted while brokers may still have logs of them.

A deletion leaves a mark that names the brokers with replicas. Whoever is there deletes its logs when the topic leaves
the image; who was down does it at its next start, by the mark. From time to time each broker that has no such log any
more, durably, takes itself out of the marks, and a mark that names nobody goes.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.runtime import Runtime
from ottla.cluster.encoding import DeletionMark
from ottla.cluster.image import MetadataImage
from ottla.cluster.store import CommitResult, Committed
from ottla.cluster.topic_changes import has_to_tidy, without_logs_on
from ottla.cluster.updates import ImageUpdate
from ottla.storage.files import FileSystem
from ottla.storage.log_directory import LogDirectory

if TYPE_CHECKING:
    from ottla.timer.wheel import TimerEntry

# Marks are small: nothing presses. Brokers that begin at one moment should not all be refused again and again.
TIDY_MS_MIN, TIDY_MS_MAX = 20_000, 40_000


class DeletedTopics:
    def __init__(
        self,
        runtime: Runtime,
        metadata: ClusterMetadata,
        directory: LogDirectory,
        files: FileSystem,
        recovery_points_fell: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._directory = directory
        self._files = files
        self._recovery_points_fell = recovery_points_fell
        self._is_started = False
        self._timer: TimerEntry | None = None

    def stop(self) -> None:
        """Marks wait for the next life of this broker."""
        if self._timer is not None:
            self._timer.cancel()

    def on_metadata_update(self, before: MetadataImage, update: ImageUpdate) -> None:  # noqa: ARG002
        if not self._is_started:
            self._is_started = True
            self._finish()
        if self._timer is None and any(map(self._concerns, self._marks.values())):
            self._tidy_later()

    @property
    def _marks(self) -> Mapping[str, DeletionMark]:
        return self._metadata.deletion_marks

    def _finish(self) -> None:
        """At the start: delete the logs of topics whose deletion this broker has missed."""
        deleted = {mark.topic_id for mark in self._marks.values()}
        # A power failure may take the topic id from a log of which nothing was flushed yet: nothing in it is promised.
        node_id = self._runtime.node_id
        names = {mark.name for mark in self._marks.values() if node_id in mark.brokers}
        directory = self._directory
        for (name, index), log in list(directory.logs.items()):
            topic = self._metadata.image.topic(name)
            if log.topic_id in deleted or (log.topic_id is None and name in names):
                self._runtime.guard(self._delete, name, index)
            elif topic is not None and log.topic_id is None:
                directory.assign_topic_id(log, topic.topic_id)
            elif topic is None or topic.topic_id != log.topic_id or index >= len(topic.partitions):
                self._runtime.log.warning("a log of no known topic is left alone", topic=name, partition=index)

    def _delete(self, name: str, index: int) -> None:
        self._recovery_points_fell()
        self._directory.delete_log(name, index, now_wall_ms=self._runtime.clock.wall_ms())

    def _concerns(self, mark: DeletionMark) -> bool:
        return has_to_tidy(self._runtime.node_id, mark, self._metadata.image.brokers)

    def _tidy_later(self) -> None:
        wait_ms = self._runtime.rng.randint(TIDY_MS_MIN, TIDY_MS_MAX)
        self._timer = self._runtime.wheel.schedule(self._runtime.clock.now_ms() + wait_ms, self._tidy)

    def _tidy(self) -> None:
        """The names of deleted logs are gone from the directory; when that is durable, the marks may follow."""
        self._timer = None
        marks = [mark for mark in self._marks.values() if self._concerns(mark)]
        here = self._directory.has_log_of({mark.topic_id for mark in marks})
        gone = [mark for mark in marks if mark.topic_id not in here]
        if not self._runtime.is_serving or not gone:
            return
        synced: list[bool] = []

        def sync() -> None:
            self._files.sync_directory(self._directory.path)
            synced.append(True)

        self._runtime.offload(sync, lambda: self._take_out(gone) if synced else None)

    def _take_out(self, marks: Iterable[DeletionMark]) -> None:
        unchanged = [mark for mark in marks if self._marks.get(mark.key) == mark]
        for transaction in without_logs_on(self._runtime.node_id, unchanged, self._metadata.image.brokers):
            self._metadata.commit(transaction, self._taken_out)

    def _taken_out(self, result: CommitResult) -> None:
        if not isinstance(result, Committed) and self._timer is None and self._runtime.is_serving:
            self._tidy_later()
