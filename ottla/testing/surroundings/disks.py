"""The disks of brokers, as a test sees them: `kafka.disk(2)`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from ottla.broker.assembly import Parts
from ottla.protocol.errors import UnknownTopicOrPartition
from ottla.protocol.records.batch import BATCH_HEADER_SIZE
from ottla.storage.log import Log
from ottla.storage.segment import LOG_SUFFIX, Segment
from ottla.testing.audit.findings import LogDamage
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


@dataclass(frozen=True, slots=True)
class DiskFaults:
    """What is wrong with a disk, as it was at one moment."""

    room_bytes: int | None
    """What still fits; None: it is not full."""
    fsync_ms: float
    """How much longer each sync takes."""
    failures: tuple[DiskFailure, ...]
    """Also those that have no times left."""
    is_stalled: bool


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

    def in_force(self) -> DiskFaults:
        """What is wrong with it now, but for what was corrupted or torn."""

        def look() -> DiskFaults:
            state = self._state
            failures = tuple(replace(each) for each in state.failures)
            return DiskFaults(state.room_bytes, state.fsync_ms, failures, state.is_stalled)

        found: DiskFaults = self._caller.call(look)
        return found

    def full(self, *, after_bytes: int = 0) -> None:
        """So many bytes still fit; a write that does not fit is written as far as it does, and fails with ENOSPC."""
        self._change(f"full after {after_bytes} bytes", lambda: setattr(self._state, "room_bytes", after_bytes))

    def slow_fsync(self, ms: float) -> None:
        """Each sync takes so much longer."""
        self._change(f"slow_fsync {ms:g} ms", lambda: setattr(self._state, "fsync_ms", ms))

    def fail(self, operation: str, *, match: str = "*", times: int | None = 1) -> None:
        """The next `times` operations fail with EIO, or all of them (None): `fsync`, `write` or `read`, of files whose
        path in the data directory is like `match` (`orders-0/*`). Raises DiskError."""
        check_operation(operation)
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
        """What was never synced is lost, as by a power cut: at once where the broker was killed or stopped, else at its
        next `kill`. That needs brokers with `unsynced=True`. Raises DiskError."""
        self._caller.call(self._lose_unsynced)

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
        self._note(f"corrupt {topic}-{index} at offset {offset}", [f"{topic}-{index}"])
        path = segment.path(LOG_SUFFIX)
        with descriptor_to_change(path) as descriptor:
            self._state.before_change(descriptor)
        flip_bit(path, position + BATCH_HEADER_SIZE)
        self._damaged(log)
        parts.replicas.shared_reads.forget(log)

    def _tear_tail(self, size: int, match: str) -> None:
        if self._parts() is not None:
            raise DiskError(f"broker {self._node_id} runs: the ends of its files are torn off once it was killed")
        inside = sorted(self._state.directory.iterdir())
        found = [path for path in inside if fnmatchcase(path.name, match) and path.is_dir()]
        last = [logs[-1] for path in found if (logs := _segments(path))]
        if not last:
            raise DiskError(f"broker {self._node_id} has no partition like {match!r}")
        self._note(f"tear_tail {size} bytes of {len(last)} partitions", [path.parent.name for path in last])
        for path in last:
            cut_end(path, size)

    def _lose_unsynced(self) -> None:
        journal = self._state.journal
        if journal is None:
            raise DiskError(
                "what was never synced is known of brokers with unsynced=True only: @pytest.mark.kafka(unsynced=True), "
                "broker_fixture(..., unsynced=True); tear_tail(bytes) takes the end of logs away"
            )
        if journal.is_full:
            from ottla.testing.surroundings.unsynced import HELD_BYTES_MAX

            raise DiskError(
                f"what was never synced is not known any more: more than {HELD_BYTES_MAX >> 20} MiB was removed or cut "
                "off since it was synced; a reset begins again"
            )
        if self._parts() is None:
            lose_unsynced(self._state, self._node_id, self._steps)
            return
        self._note("lose_unsynced, at the next kill")
        self._state.loses_at_kill = True

    def _note(self, what: str, damaged: Iterable[str] = ()) -> None:
        """`damaged`: partitions whose logs are not what their broker has written."""
        damage = LogDamage(f"{what.split()[0]} on broker {self._node_id}", frozenset(damaged))
        self._steps.note(f"disk {self._node_id}: {what}", damage if damage.partitions else None)


def check_operation(operation: str) -> None:
    """Raises DiskError."""
    if operation not in OPERATIONS:
        raise DiskError(f"{operation!r}: expected one of {', '.join(OPERATIONS)}")


def lose_unsynced(disk: DiskState, node_id: int, steps: FaultSteps) -> None:
    """Of a broker that does not run any more. On the loop of the brokers."""
    lost = disk.lose()
    places = f" of {', '.join(sorted(lost.partitions))}" if lost.partitions else ""
    what = f"disk {node_id}: lose_unsynced, {lost.record_bytes} bytes of records{places}"
    steps.note(what, LogDamage(f"lose_unsynced on broker {node_id}", lost.partitions))


def _position_of(segment: Segment, offset: int) -> int:
    """Where the batch with this offset begins. Raises DiskError."""
    for each in segment.batches_from(segment.anchor_for(offset).position):
        if each.header.last_offset >= offset:
            if each.header.base_offset <= offset:
                return each.position
            break
    raise DiskError(f"offset {offset} is not there any more: compaction has removed its batch")


def _segments(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"[0-9]*{LOG_SUFFIX}"))
