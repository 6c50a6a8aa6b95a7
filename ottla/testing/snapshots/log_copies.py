"""The copy of one log in a snapshot.

    00000000000000000000.log .index .timeindex .txnindex     sealed segments: hard links
    00000000000000000137.log                                 the active one: a copy of what it has now
    00000000000000000137.index .timeindex .txnindex          made of what the log has in memory
    00000000000000000151.snapshot                            the idempotent producers at the log end
    leader-epoch-checkpoint, ottla-no-gaps, ottla-compacted-ranges

The log itself is only read. Its copy is as a clean close would have left it, so that it opens without a scan. A log
that is made of it links everything but the active segment, which it appends to. Of several replicas the leader's is
copied, and all are made of that: the one of the same broker with links, the others with files of their own, for no two
logs may share one that either of them can cut.
"""

import os
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ottla.replication.partition import Partition
from ottla.storage import checkpoints
from ottla.storage.found_log import FoundLog
from ottla.storage.indexes import TimeIndex, build_transaction_index
from ottla.storage.interrupted_work import bases_of
from ottla.storage.leader_epoch_cache import build_epochs
from ottla.storage.local_log import NO_GAPS
from ottla.storage.log import Log
from ottla.storage.producer_entry import NO_OFFSET, ProducerState
from ottla.storage.producer_table import ProducerTable
from ottla.storage.recovery import LogHistory
from ottla.storage.segment import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
    file_name,
)
from ottla.testing.snapshots.kept_files import KeptFiles, copy_file


@dataclass(slots=True)
class LogCopy:
    """The files of a log as they were at a snapshot."""

    directory: Path
    node_id: int
    """Of the broker whose log it is."""
    history: LogHistory
    linked: list[str]
    """Names of files that are kept as they are."""
    active: str
    """That of the active segment."""
    active_bytes: int
    producers: ProducerTable
    found: FoundLog | None = None
    """What the first log that was made of it has found in it."""
    # The logs of brokers that have what the copy has, and how they were then.
    _alike: "dict[int, tuple[weakref.ref[Log], tuple[int, int, int]]]" = field(default_factory=dict)  # pyright: ignore[reportUnknownVariableType]

    def is_like(self, node_id: int, log: Log) -> bool:
        """Whether nothing was appended, deleted, compacted or truncated since, in the log of a broker that was copied,
        or made of the copy, or had the same."""
        known = self._alike.get(node_id)
        return known is not None and known[0]() is log and known[1] == self._stamp(node_id, log)

    def parted(self, node_id: int, log: Log) -> Iterator[int]:
        """Producers that wrote to the log of a broker after it was copied, or made of the copy."""
        if not self.is_like(node_id, log) and log.known_producers is not None:
            for producer_id, state in log.known_producers.states.items():
                kept = self.producers.find(producer_id)
                if kept is None or _last_of(kept) != _last_of(state):
                    yield producer_id

    def is_now(self, node_id: int, log: Log) -> None:
        """The log of a broker has what this copy has."""
        self._alike[node_id] = weakref.ref(log), self._stamp(node_id, log)

    def _stamp(self, node_id: int, log: Log) -> tuple[int, int, int]:
        # A follower hears with its next fetch where the log begins.
        start = log.log_start_offset if node_id == self.node_id else self.history.log_start_offset
        return start, log.log_end_offset, log.truncations

    def is_not(self, log: Log) -> None:
        """The files of a log are not what they were."""
        self._alike = {node_id: known for node_id, known in self._alike.items() if known[0]() is not log}

    def fill(self, files: KeptFiles, node_id: int, directory: Path) -> LogHistory:
        """Puts the files into the directory of a broker's log; the copy keeps its own. Raises OSError."""
        # By plain text: a restore makes very many of these paths.
        kept, made = os.fspath(self.directory), os.fspath(directory)
        for name in self.linked:
            source, target = f"{kept}/{name}", f"{made}/{name}"
            if node_id == self.node_id:
                files.link(source, target)
            else:
                copy_file(source, target, os.stat(source).st_size)  # noqa: PTH116 - as above
        copy_file(f"{kept}/{self.active}", f"{made}/{self.active}", self.active_bytes)
        return self.history

    def kept_paths(self) -> list[Path]:
        return [self.directory / name for name in self.linked]


class CopyFill:
    """Logs of a broker that are made of a copy."""

    def __init__(self, copy: LogCopy, files: KeptFiles, node_id: int) -> None:
        self._copy = copy
        self._files = files
        self._node_id = node_id

    @property
    def known(self) -> FoundLog | None:
        return self._copy.found

    @known.setter
    def known(self, found: FoundLog) -> None:
        self._copy.found = found

    def put(self, directory: Path) -> LogHistory:
        return self._copy.fill(self._files, self._node_id, directory)


def copy_log(node_id: int, replica: Partition, directory: Path, files: KeptFiles) -> LogCopy:
    """The log of a broker as it is now, in a directory that is made. Raises OSError and KafkaStorageError."""
    log = replica.log
    directory.mkdir()
    linked = list(_keep_sealed(log, directory, files))
    for name, content in _files_of_end(log).items():
        if name not in linked:
            (directory / name).write_bytes(content)
            files.keep_made(directory / name)
            linked.append(name)
    active = log.segments.active
    copied = file_name(active.base_offset, LOG_SUFFIX)
    copy_file(active.path(LOG_SUFFIX), directory / copied, active.size)
    history = LogHistory(
        was_closed_cleanly=True,
        recovery_point=log.log_end_offset,
        log_start_offset=log.log_start_offset,
        high_watermark=replica.high_watermark,
        cleaned_until=log.cleaned_offset,
    )
    producers = log.producers.states.copy()
    copy = LogCopy(directory, node_id, history, linked, copied, active.size, producers)
    copy.is_now(node_id, log)
    return copy


def _keep_sealed(log: Log, directory: Path, files: KeptFiles) -> Iterator[str]:
    for segment in log.segments.up_to_active():
        for suffix in SEGMENT_SUFFIXES:
            source, name = segment.path(suffix), file_name(segment.base_offset, suffix)
            if log.files.exists(source):
                files.keep(source, directory / name)
                yield name
    for offset in bases_of(log.files.list_directory(log.directory), SNAPSHOT_SUFFIX):
        if offset <= log.log_end_offset:
            name = file_name(offset, SNAPSHOT_SUFFIX)
            files.keep(log.directory / name, directory / name)
            yield name


def _files_of_end(log: Log) -> dict[str, bytes]:
    """What a clean close would write, and what is small."""
    active = log.segments.active
    written = {
        file_name(active.base_offset, OFFSET_INDEX_SUFFIX): active.offset_index.to_bytes(),
        file_name(active.base_offset, TIME_INDEX_SUFFIX): _time_index(active),
        file_name(log.log_end_offset, SNAPSHOT_SUFFIX): log.producers.snapshot_bytes(),
        checkpoints.LEADER_EPOCHS: build_epochs(log.epochs.entries),
    }
    if active.aborted:
        written[file_name(active.base_offset, TRANSACTION_INDEX_SUFFIX)] = build_transaction_index(active.aborted)
    ranges = log.directory / checkpoints.COMPACTED_RANGES
    if log.gaps.is_marked:
        written[NO_GAPS] = b""
    elif log.files.exists(ranges):
        written[checkpoints.COMPACTED_RANGES] = log.files.read_bytes(ranges)
    return written


def _time_index(active: Segment) -> bytes:
    """With the largest timestamp, which a close adds."""
    index = TimeIndex.from_bytes(active.time_index.to_bytes())
    assert index is not None, "an index can be read again"
    index.maybe_append(active.max_timestamp, active.max_timestamp_offset - active.base_offset)
    return index.to_bytes()


def _last_of(state: ProducerState) -> tuple[int, int]:
    """Its epoch, and the offset of its last record."""
    return state.epoch, state.batches[-1].last_offset if state.batches else NO_OFFSET
