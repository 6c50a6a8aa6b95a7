"""What recovery has found in the directory of a log: all that a `Log` is made of.

The same files in another directory make the same log. Who puts them there can keep what was found in them once
(`in_directory`), and recovery need not look at them again: of all files only the producer snapshot is read.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.storage.files import FileSystem
from ottla.storage.leader_epoch_cache import EpochEntry, LeaderEpochCache
from ottla.storage.local_log import Gaps, Segments
from ottla.storage.log import LoadedLog, Log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_producers import SNAPSHOT_IN_PLACE_MAX, rebuild_producers
from ottla.storage.producer_snapshots import ProducerSnapshots
from ottla.storage.producer_state import ProducerStateManager
from ottla.storage.segment import Segment


class FoundLog(NamedTuple):
    """For one log: it goes on with these segments and epochs."""

    segments: list[Segment]
    """At least one."""
    epochs: LeaderEpochCache
    stored_epochs: Sequence[EpochEntry]
    """Those in the file."""
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    high_watermark: int
    cleaned_until: int
    has_gaps: bool
    """Whether offsets may be missing."""
    snapshots: list[int]
    """The offsets of the producer snapshots."""
    marked: Sequence[int]
    """Base offsets of recovered segments that have markers of transactions, or other control batches."""
    topic_id: bytes | None

    @property
    def was_closed(self) -> bool:
        """Not of what was recovered: it is indexed by files that are not synced."""
        return all(segment.is_flushed for segment in self.segments)

    def log(
        self, files: FileSystem, directory: Path, topic: str, partition: int, config: LogConfig, now_wall_ms: int
    ) -> Log:
        """Raises OSError."""
        segments = Segments(self.segments)
        snapshots = ProducerSnapshots(files, directory, self.snapshots)
        snapshots.remove_above(self.log_end_offset)
        snapshots.keep_only({segment.base_offset for segment in segments})
        producers = ProducerStateManager(config.producer_id_expiration_ms)
        self._rebuild_producers(producers, snapshots, segments, now_wall_ms)
        if len(producers) > SNAPSHOT_IN_PLACE_MAX:
            # Some may have been late.
            snapshots.note_missing([segment.base_offset for segment in segments][1:])
        until = self.log_end_offset if self.has_gaps else 0
        loaded = LoadedLog(
            segments=segments,
            producers=producers,
            snapshots=snapshots,
            epochs=self.epochs,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            recovery_point=self.recovery_point,
            gaps=Gaps(files, directory, until=until, is_marked=not self.has_gaps),
            cleaned_offset=self.cleaned_until,
            loaded_at_ms=now_wall_ms,
            stored_epochs=self.stored_epochs,
            was_closed=self.was_closed,
        )
        log = Log(
            files,
            directory,
            topic=topic,
            partition=partition,
            topic_id=self.topic_id,
            config=config,
            loaded=loaded,
        )
        log.restored_high_watermark = self.high_watermark
        return log

    def _rebuild_producers(
        self, producers: ProducerStateManager, snapshots: ProducerSnapshots, segments: Segments, now_wall_ms: int
    ) -> None:
        """With them the transaction indexes of recovered segments: only who follows the producers knows where a
        transaction began that was aborted (§44.4)."""
        index_from = min((base for base in self.marked if base <= segments.active.base_offset), default=None)
        indexed = [segment for segment in segments if index_from is not None and segment.base_offset >= index_from]
        for segment in indexed:
            segment.forget_aborted()
        rebuild_producers(producers, snapshots, segments, self.log_end_offset, now_wall_ms, index_from)
        for segment in indexed:
            segment.replace_transaction_index()
            if segment.base_offset in self.marked:
                segment.write_position_indexes()

    def in_directory(self, files: FileSystem, directory: Path, topic_id: bytes | None) -> "FoundLog":
        """In another one with the same files. Of one that no log was made of."""
        segments = [segment.copy_in(files, directory) for segment in self.segments]
        return self._replace(segments=segments, epochs=LeaderEpochCache(self.epochs.entries), topic_id=topic_id)
