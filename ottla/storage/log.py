"""The log of one partition: appending, reading, cutting.

Appending has two steps, so that one system call serves all requests of a read event. `append_as_leader` and
`append_as_follower` check the batches, give them offsets and queue the very buffers they arrived in; `write_pending`
writes the queue. Until then nothing of it can be read, and `log_end_offset` does not count it. If the write fails, the
log is what it was before the queue began.

    segments    [ inactive ] [ inactive ] [ active:  written          |  queued ]
    offsets     ^ log_start_offset        flushed_offset ^  log_end_offset ^

Everything is called from one thread. What takes long comes in three parts: prepared here, worked off on files alone,
in a thread if one likes, and applied here (`WouldBlock`, `flushing`, `compaction`, `deletions`).
"""

from ottla.protocol.errors import KafkaStorageError
from ottla.storage.appending import AppendInfo, Appending, Origin
from ottla.storage.log_base import LoadedLog
from ottla.storage.reader import ReadResult, WouldBlock
from ottla.storage.reading import Reading

__all__ = ["AppendInfo", "LoadedLog", "Log", "Origin", "ReadResult", "WouldBlock"]


class Log(Appending, Reading):
    """One partition's records. All methods raise KafkaStorageError when the disk fails; other errors they name."""

    def close(self) -> None:
        """Leave everything on disk as a clean shutdown does: nothing has to be scanned or rebuilt at the next start."""
        assert not self._queue, "a log is not closed while batches are queued"
        if self.failure is None and not self._is_as_last_closed():
            self._guarded("close", self._write_all)
            self.flush()
        self.release()

    def _is_as_last_closed(self) -> bool:
        """Nothing was appended, cut or rolled since a close left its snapshot at this offset: the files still hold.

        Most logs of a broker with thousands see no record between two starts, and four syncs for each take seconds."""
        ends = (self.log_end_offset, self._active.base_offset)
        return self.cuts == 0 and ends == self._durable_when_loaded and self.snapshots.has(self.log_end_offset)

    def _write_all(self) -> None:
        self._active.write_indexes()
        self.snapshots.write(self.log_end_offset, self.producers.snapshot_bytes())

    def release(self) -> None:
        """Let go of all descriptors, writing nothing. The log is not used any more."""
        for segment in self.segments:
            segment.release()

    def retire(self) -> None:
        """Let go of everything for ever: the files are about to go, and another log may soon live at their place."""
        # Work on the log that is under way in a thread is thrown away when it comes back.
        self._fail(KafkaStorageError(f"the log of {self.topic}-{self.partition} was deleted"))
        for segment in self.segments:
            segment.retire()

    def release_idle(self) -> None:
        """Let go of descriptors and indexes of segments that nobody appends to; they come back when they are read."""
        for segment in self.segments.up_to_active():
            segment.release()
