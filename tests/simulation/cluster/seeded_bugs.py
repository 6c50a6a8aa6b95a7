"""Bugs of docs/seeded-bugs §21, seeded in the broker one at a time, for tests only.

Each is a function that is handed pytest's monkeypatch, or anything with its `setattr`. What it breaks is what its
number in that list speaks of; `docs/seeded-bugs.md` says which seed finds it.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ottla.broker.coordinators import coordinator_topic, loading
from ottla.broker.metadata.broker_registration import BrokerRegistration
from ottla.replication.leadership import Leadership
from ottla.replication.partition import Partition
from ottla.replication.replica_follower import FollowerState, ReplicaFollower
from ottla.storage import log_directory, producer_state, recovery
from ottla.storage.leader_epoch_cache import EpochWrite
from tests.fakes.disk import FakeDisk
from tests.simulation.loop import VirtualClock

Patch = Any


def truncates_to_the_high_watermark(patch: Patch) -> None:
    """T-14: on start a follower cuts what it does not know to be committed, though its leader may know."""

    def start(self: ReplicaFollower) -> list[Any]:
        return [self._truncate(self.partition.high_watermark, FollowerState.FETCHING)]

    patch.setattr(ReplicaFollower, "start", start)


def counts_the_committed_isr_only(patch: Patch) -> None:
    """T-16: who is about to join the ISR is not waited for."""

    def is_waited_for(self: Leadership, replica: int, *_: Any) -> bool:
        return replica in self.isr_state.isr

    patch.setattr(Leadership, "is_waited_for", is_waited_for)


def answers_any_end(patch: Patch) -> None:
    """T-17: a new leader answers with its high watermark before it knows that of its predecessor."""
    patch.setattr(Partition, "check_end_offset_is_known", lambda self: None)


def believes_every_answer(patch: Patch) -> None:
    """T-18: a follower is taken to have what was read for it, whether or not that arrives."""
    note_follower_fetch = Partition.note_follower_fetch

    def note(self: Partition, fetch: Any, leader_end_offset: int, now_ms: int, *rest: Any, **named: Any) -> Any:
        believed = fetch._replace(fetch_offset=max(fetch.fetch_offset, leader_end_offset))
        return note_follower_fetch(self, believed, leader_end_offset, now_ms, *rest, **named)

    patch.setattr(Partition, "note_follower_fetch", note)


def loads_to_the_high_watermark(patch: Patch) -> None:
    """T-11: a coordinator that has just become one loads what it knows to be committed, and no more."""
    load = loading.load

    class UpToTheHighWatermark:
        def __init__(self, partition: Partition) -> None:
            self.log = _ShortLog(partition)

    class _ShortLog:
        def __init__(self, partition: Partition) -> None:
            self._log = partition.log
            self.log_start_offset = partition.log.log_start_offset
            self.log_end_offset = partition.high_watermark

        def read(self, *arguments: Any, **named: Any) -> Any:
            return self._log.read(*arguments, **named)

    async def short(runtime: Any, partition: Partition, hosted: Any, buffer_bytes: int) -> None:
        await load(runtime, UpToTheHighWatermark(partition), hosted, buffer_bytes)  # type: ignore[arg-type]

    patch.setattr(coordinator_topic, "load", short)


def looks_for_repetitions_last(patch: Patch) -> None:
    """T-20: a batch is held against what should come next before it is held against what has come."""
    patch.setattr(producer_state, "_find_duplicate", lambda *_: None)


def writes_checkpoints_in_place(patch: Patch) -> None:
    """T-21"""

    def run(write: Any) -> None:
        checkpoint = write._checkpoint
        write.discard()
        write_in_place(checkpoint._files, checkpoint._path, write._content)
        checkpoint._in_place = checkpoint._written = write._number

    patch.setattr(EpochWrite, "run", run)
    for module in (log_directory, recovery):
        patch.setattr(module, "write_atomically", write_in_place)


def write_in_place(files: Any, path: Any, content: bytes, *, sync: bool = True) -> None:
    file = files.open(path)
    try:
        file.truncate(0)
        file.writev([content])
    finally:
        file.close()


def leaves_the_mark_of_a_clean_shutdown(patch: Patch) -> None:
    """T-22: the mark is still there when the broker has begun to write again."""
    remove = FakeDisk.remove

    def leave(self: FakeDisk, path: Any) -> None:
        if not Path(path).name.startswith(".kafka_cleanshutdown"):
            remove(self, path)

    patch.setattr(FakeDisk, "remove", leave)


def believes_in_torn_logs(patch: Patch) -> None:
    """T-26: a broker that comes back after a power failure counts as having everything."""
    registration = BrokerRegistration._registration

    def whole(self: BrokerRegistration) -> Any:
        return replace(registration(self), clean_shutdown=True)

    patch.setattr(BrokerRegistration, "_registration", whole)


def takes_deadlines_from_the_wall_clock(patch: Patch) -> None:
    """T-28"""
    patch.setattr(VirtualClock, "now_ms", VirtualClock.wall_ms)


SEEDED_BUGS: dict[str, Callable[[Patch], None]] = {
    "T-11": loads_to_the_high_watermark,
    "T-14": truncates_to_the_high_watermark,
    "T-16": counts_the_committed_isr_only,
    "T-17": answers_any_end,
    "T-18": believes_every_answer,
    "T-20": looks_for_repetitions_last,
    "T-21": writes_checkpoints_in_place,
    "T-22": leaves_the_mark_of_a_clean_shutdown,
    "T-26": believes_in_torn_logs,
    "T-28": takes_deadlines_from_the_wall_clock,
}
