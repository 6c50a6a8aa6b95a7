"""The disks of brokers, as a test sees them: `kafka.disk(2)`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from ottla.broker.assembly import Parts
from ottla.protocol.errors import UnknownTopicOrPartition
from ottla.protocol.records.batch import BATCH_HEADER_SIZE
from ottla.storage.log import Log
from ottla.storage.segment import LOG_SUFFIX, Segment
from ottla.testing.surroundings.around import FaultSteps
from ottla.testing.surroundings.disk_files import (
    OPERATIONS,
    DiskFailure,
    DiskState,
    cut_end,
    descriptor_to_change,
    flip_bit,
)
from ottla.testing.surroundings.links import Caller
from ottla.testing.worker import NotRunningError


class DiskError(Exception):
    """A fault that a disk cannot have: one sentence."""


class BrokerDisk:
    """The disk of one broker: all in its data directory but the file of the metadata. What is in force stays when the
    broker starts again, until `heal`. All may be called from any thread."""

    def __init__(
        self,
        caller: Caller,
        node_id: int,
        state: DiskState,
        steps: FaultSteps,
        parts: Callable[[], Parts | None],
        damaged: Callable[[Log], None],
    ) -> None:
        """`parts`: those of the broker; None while it does not run. `damaged` is called with a log of which a file was
        changed behind its back."""
        self._damaged = damaged
        self._caller = caller
        self._node_id = node_id
        self._state = state
        self._steps = steps
        self._parts = parts

    def full(self, *, after_bytes: int = 0) -> None:
        """So many bytes still fit; a write that does not fit is written as far as it does, and fails with ENOSPC."""
        self._change(f"full after {after_bytes} bytes", lambda: setattr(self._state, "room_bytes", after_bytes))

    def slow_fsync(self, ms: float) -> None:
        """Each sync takes so much longer."""
        self._change(f"slow_fsync {ms:g} ms", lambda: setattr(self._state, "fsync_ms", ms))

    def fail(self, operation: str, *, match: str = "*", times: int | None = 1) -> None:
        """The next `times` operations fail with EIO, or all of them (None): `fsync`, `write` or `read`, of files whose
        path in the data directory is like `match` (`orders-0/*`). Raises DiskError."""
        if operation not in OPERATIONS:
            raise DiskError(f"{operation!r}: expected one of {', '.join(OPERATIONS)}")
        failure = DiskFailure(operation, match, times)
        often = "always" if times is None else f"{times} times"
        self._change(f"fail {operation} of {match}, {often}", lambda: self._state.failures.append(failure))

    def stall(self) -> None:
        """Syncs, and reads of what is not at hand, wait until the disk is healed. What is written goes to the page
        cache of the system, and does not wait."""
        self._change("stall", self._state.stall)

    def heal(self) -> None:
        """What has failed stays failed: a log whose write or sync failed is offline until its broker starts again."""
        self._caller.call(self._heal)

    def corrupt(self, topic: str, partition: int, *, offset: int) -> None:
        """Flips one bit of the stored batch that has this offset. Raises UnknownTopicOrPartition where the broker has
        no replica, DiskError where that has no such offset, NotRunningError."""
        self._caller.call(partial(self._corrupt, topic, partition, offset))

    def tear_tail(self, size: int, *, match: str = "*") -> None:
        """The last bytes of the last segments go, as of a crash in the middle of a write: of all partitions, or those
        whose directory is like `match` (`orders-*`). Raises DiskError while the broker runs."""
        self._caller.call(partial(self._tear_tail, size, match))

    def lose_unsynced(self) -> None:
        """Raises DiskError."""
        raise DiskError(
            "what was never synced is not known: that needs a journal of all writes since the start, which is not "
            "kept; tear_tail(bytes) takes the end of logs away"
        )

    # On the loop of the brokers.

    def _change(self, what: str, change: Callable[[], object]) -> None:
        def alter() -> None:
            self._note(what)
            change()
            self._state.apply()

        self._caller.call(alter)

    def _heal(self) -> None:
        self._note("heal")
        self._state.heal()

    def _corrupt(self, topic: str, index: int, offset: int) -> None:
        parts = self._parts()
        if parts is None:
            raise NotRunningError(f"broker {self._node_id} does not run")
        replica = parts.replicas.find(topic, index)
        if replica is None:
            raise UnknownTopicOrPartition(f"broker {self._node_id} has no replica of {topic}-{index}")
        log = replica.log
        if not log.log_start_offset <= offset < log.log_end_offset:
            ends = f"{log.log_start_offset} to {log.log_end_offset - 1}"
            raise DiskError(f"offset {offset} of {topic}-{index} is not there: it has {ends}")
        segment = log.segments[log.segments.index_of(offset)]
        position = _position_of(segment, offset)
        self._note(f"corrupt {topic}-{index} at offset {offset}")
        path = segment.path(LOG_SUFFIX)
        with descriptor_to_change(path) as descriptor:
            self._state.before_change(descriptor)
        flip_bit(path, position + BATCH_HEADER_SIZE)
        self._damaged(log)
        parts.replicas.shared_reads.forget(log)

    def _tear_tail(self, size: int, match: str) -> None:
        if self._parts() is not None:
            raise DiskError(f"broker {self._node_id} runs: its files are torn after kafka.brokers[n].kill()")
        found = [path for path in sorted(self._state.directory.glob(match)) if path.is_dir()]
        last = [logs[-1] for path in found if (logs := _segments(path))]
        if not last:
            raise DiskError(f"broker {self._node_id} has no partition like {match!r}")
        self._note(f"tear_tail {size} bytes of {len(last)} partitions")
        for path in last:
            cut_end(path, size)

    def _note(self, what: str) -> None:
        self._steps.note(f"disk {self._node_id}: {what}")


def _position_of(segment: Segment, offset: int) -> int:
    """Where the batch with this offset begins."""
    return next(each.position for each in segment.batches_from(0) if each.header.last_offset >= offset)


def _segments(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"[0-9]*{LOG_SUFFIX}"))
