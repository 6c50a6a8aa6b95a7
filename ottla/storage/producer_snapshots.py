"""The snapshot files of producer state in a log's directory: `<offset>.snapshot`, the state below that offset."""

from pathlib import Path

from ottla.storage.files import FileSystem, write_atomically
from ottla.storage.producer_state import CorruptSnapshot, ProducerStateManager
from ottla.storage.segment import SNAPSHOT_SUFFIX, file_name
from ottla.storage.segments import Segments


class ProducerSnapshots:
    """Knows which snapshots there are. Methods raise OSError."""

    def __init__(self, files: FileSystem, directory: Path, offsets: list[int]) -> None:
        self._files = files
        self._directory = directory
        self._offsets = sorted(offsets)

    def newest_first(self, at_most: int) -> list[int]:
        """Offsets of the snapshots that do not look beyond `at_most`."""
        return [offset for offset in reversed(self._offsets) if offset <= at_most]

    def has(self, offset: int) -> bool:
        return offset in self._offsets

    def read(self, offset: int) -> bytes:
        return self._files.read_bytes(self.path(offset))

    def write(self, offset: int, content: bytes) -> None:
        """Not synced: losing it costs a longer scan."""
        write_atomically(self._files, self.path(offset), content, sync=False)
        if offset not in self._offsets:
            self._offsets = sorted([*self._offsets, offset])

    def remove(self, offset: int) -> None:
        if offset in self._offsets:
            self._files.remove(self.path(offset))
            self._offsets.remove(offset)

    def remove_above(self, offset: int) -> None:
        """What was known about records that are gone from the end of the log."""
        for above in [known for known in self._offsets if known > offset]:
            self.remove(above)

    def keep_only(self, offsets: set[int]) -> None:
        """Remove all but those and the newest."""
        for stray in [known for known in self._offsets[:-1] if known not in offsets]:
            self.remove(stray)

    def path(self, offset: int) -> Path:
        return self._directory / file_name(offset, SNAPSHOT_SUFFIX)


def rebuild_producers(
    producers: ProducerStateManager,
    snapshots: ProducerSnapshots,
    segments: Segments,
    end_offset: int,
    now_wall_ms: int,
) -> None:
    """The producers as of `end_offset`: from the newest good snapshot, then from the batches after it."""
    producers.clear()
    start = segments[0].base_offset
    for offset in snapshots.newest_first(at_most=end_offset):
        try:
            producers.load(snapshots.read(offset), now_wall_ms)
        except CorruptSnapshot:
            snapshots.remove(offset)
        else:
            start = max(offset, start)
            break
    for n in range(segments.index_of(start), len(segments)):
        if start >= end_offset:
            return
        segment = segments[n]
        for batch in segment.batches_from(segment.anchor_for(start).position):
            if batch.header.base_offset >= start:
                producers.replay(batch.header, now_wall_ms)
