"""Where offsets may be missing from a log, on disk and in memory.

Compaction leaves gaps, and a copy of a compacted log has those of its leader. In all other logs a missing offset means
damage. The file `ottla-no-gaps` in a log's directory says that none is missing: it is made with the log, and removed
before the first gap gets into it. A log without the file, one that Kafka wrote for instance, may have gaps anywhere.

The removal becomes durable with the flush that makes the gap durable. If the power fails before that, recovery may take
the gap for damage; then it cuts off nothing that a flush has promised.
"""

from pathlib import Path

from ottla.storage.files import FileSystem

NO_GAPS = "ottla-no-gaps"


class Gaps:
    """What one log knows of its gaps."""

    def __init__(self, files: FileSystem, directory: Path, *, until: int, is_marked: bool) -> None:
        self.until = until
        """Below this offset, others may be missing. Above it, none is."""
        self.is_marked = is_marked
        """Whether the file is there."""
        self._path = directory / NO_GAPS
        self._files = files

    def note(self, until: int) -> bool:
        """Call before anything with a gap below `until` gets into the log; whether that removed the file.

        Raises OSError; nothing is noted then."""
        was_marked = self.is_marked
        if was_marked:
            self._files.remove(self._path)
            self.is_marked = False
        self.until = max(self.until, until)
        return was_marked

    def truncate_from_end(self, log_end_offset: int) -> None:
        self.until = min(self.until, log_end_offset)


def mark_without_gaps(files: FileSystem, directory: Path) -> None:
    """For a log that is being made. Raises OSError."""
    files.open(directory / NO_GAPS).close()
