"""`leader-epoch-checkpoint`: the leader epochs of one log on disk, written when a flush needs them and not before.

The file may lag behind the cache. What it must have, durably, are the epochs below the recovery point: recovery reads
every batch above it and takes the epochs from there, but believes what is below. So it is written by each flush that
raises the recovery point over an epoch that the file does not have, and by a compaction, which may remove the only
batches of one.

An epoch without records is never written. No other broker can know it, for epochs travel with batches: no log can
diverge from this one there, and a leader that goes on in the same term begins it again at the log end.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from ottla.storage import checkpoints
from ottla.storage.epoch_cache import EpochEntry, LeaderEpochCache, entries_below
from ottla.storage.files import FileSystem, write_atomically

EpochWrite: TypeAlias = Callable[[], None]
"""Makes the entries durable, from any thread. Raises OSError."""


class EpochFile:
    def __init__(self, files: FileSystem, directory: Path, stored: Sequence[EpochEntry]) -> None:
        """`stored` is what the file says."""
        self._files = files
        self._path = directory / checkpoints.LEADER_EPOCHS
        self._latest = list(stored)
        # Writes are numbered as they are begun; several may be under way, and the latest is to remain.
        self._begun: int = 0
        self._written: int = 0
        self._lock = threading.Lock()

    def begin_write(self, epochs: LeaderEpochCache, end_offset: int) -> EpochWrite | None:
        """What makes the epochs of all records durable, which end at `end_offset`; None if they are."""
        entries = epochs.below(end_offset)
        if entries == entries_below(self._latest, end_offset) and self._written == self._begun:
            return None
        self._begun += 1
        self._latest = entries
        return partial(self._write, self._begun, entries)

    def _write(self, number: int, entries: list[EpochEntry]) -> None:
        with self._lock:
            if number > self._written:
                write_atomically(self._files, self._path, checkpoints.build_epochs(entries))
                self._written = number
