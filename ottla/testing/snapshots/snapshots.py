"""Snapshots of the world of a broker or a cluster.

Taking one is a single step of the loop that all brokers share: requests wait in their sockets while it lasts. It notes
topics with their configs, ACLs, quotas, users, configs of the brokers and fault rules, and copies the log of each
leader (`log_copies`), those of `__consumer_offsets` and `__transaction_state` too: groups, offsets and transactions are
in them. What a follower has not fetched yet, it has in the snapshot, as it would have soon.

A restore closes the connections of clients and lets new ones wait, takes the coordinators from their logs, puts copies
in the place of all topics that have changed, on all their replicas and in one change of the metadata, and has the
coordinators load again. Topics that have changed on no replica stay. The others have the leaders that they had, and get
new topic ids and leader epochs above all earlier ones; identities are not used twice (`ottla.testing.worlds`), so what
claims and floors there are is not taken back.
"""

import gc
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from ottla.broker.assembly import Parts
from ottla.broker.runtime import next_step
from ottla.broker.server.connection_interfaces import HELD_BY_START
from ottla.cluster.image import MetadataImage, PartitionInfo, TopicInfo
from ottla.cluster.store import Transaction
from ottla.cluster.topic_changes import replace_topics
from ottla.cluster.topics import new_partition, new_topic_id
from ottla.coordinator.events import LeaveGroup, LeavingMember
from ottla.storage.checkpoints import TopicPartition
from ottla.storage.leader_epoch_cache import EpochEntry
from ottla.storage.log import Log
from ottla.testing.clock.control import ClockControl, KeptClock
from ottla.testing.conditions import CoordinatorsLoaded, GivenCondition, Sources
from ottla.testing.hosting import HostedBrokers
from ottla.testing.snapshots.kept_files import KeptFiles
from ottla.testing.snapshots.log_copies import CopyFill, LogCopy, copy_log
from ottla.testing.views import ConnectionView
from ottla.testing.waits import DeadlineExceeded, Waits
from ottla.testing.worlds import WorldKeeper, all_informed
from ottla.testing.writing import WITHIN_S

if TYPE_CHECKING:
    from ottla.testing.faults.state import FaultState

MEMBERS = ("leave", "keep")
ELECTIONS_S = 5.0
"""How long a snapshot waits for leaders that are about to be elected."""


class SnapshotError(Exception):
    """A snapshot cannot be taken, or there is none of this name: one sentence for the user."""


@dataclass(frozen=True, slots=True)
class SnapshotReport:
    """What a snapshot has."""

    name: str
    partitions: int
    copied_bytes: int
    """Of active segments; sealed ones are shared with the log."""
    duration_ms: float


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What a restore has changed."""

    name: str
    topics: int
    """Those that were not as in the snapshot: replaced, made again or removed; with internal ones."""
    leaks: tuple[ConnectionView, ...]
    """Connections that clients had left open."""
    duration_ms: float


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """What there was at one moment."""

    directory: Path
    topics: dict[str, TopicInfo]
    settings: dict[str, bytes]
    copies: dict[TopicPartition, LogCopy]
    producer_ids: frozenset[int]
    """Those that a log or a transactional id knows."""
    world: int
    """The one that it was taken in, or last restored to, by how often the floor of producers had risen."""
    rules: "list[FaultState]"
    clock: KeptClock | None


class Snapshots:
    """Everything here runs on the loop of the brokers."""

    def __init__(
        self,
        hosted: HostedBrokers,
        world: WorldKeeper,
        clock: ClockControl,
        files: KeptFiles,
        sources: Sources,
        waits: Waits,
    ) -> None:
        self._hosted = hosted
        self._clock = clock
        self._world = world
        self._files = files
        self._sources = sources
        self._waits = waits
        self._kept: dict[str, _Snapshot] = {}
        self._count = 0

    @property
    def names(self) -> list[str]:
        """In the order in which they were taken."""
        return list(self._kept)

    async def take(self, name: str, parent: Path) -> SnapshotReport:
        """Its files are in a directory of `parent`. It takes the place of one of this name. Raises SnapshotError,
        OSError, KafkaStorageError and RuleError; nothing is left behind then."""
        for parts in self._hosted.running():
            await parts.topic_logs.all_made()
        elected = GivenCondition(self._are_elected, "the election of leaders")
        with suppress(DeadlineExceeded):
            await self._waits.wait(elected, ELECTIONS_S)
        settings, rules = await self._settings(), self._rules()
        began = perf_counter()
        self._count += 1
        directory = parent / str(self._count)
        all_parts = self._hosted.running()
        for parts in all_parts:
            parts.runtime.end_event()
        try:
            copies = self._copy_logs(directory)
        except BaseException:
            from shutil import rmtree

            rmtree(directory, ignore_errors=True)
            raise
        topics, producer_ids = dict(self._sources.reader.image.topics), _producers(all_parts, copies)
        world = self._world.floor.rises
        kept = _Snapshot(directory, topics, settings, copies, producer_ids, world, rules, self._clock.kept())
        duration_ms = (perf_counter() - began) * 1000
        self.drop(name)
        self._kept[name] = kept
        copied_bytes = sum(each.active_bytes for each in copies.values())
        return SnapshotReport(name, len(copies), copied_bytes, duration_ms)

    def drop(self, name: str) -> None:
        """Forgets it and removes its files; one that is not there is fine."""
        dropped = self._kept.pop(name, None)
        if dropped is not None:
            for each in dropped.copies.values():
                self._files.forget(each.kept_paths())
            from shutil import rmtree

            rmtree(dropped.directory)

    def log_damaged(self, log: Log) -> None:
        """Its files were changed behind its back: snapshots do not take it for what they have."""
        for snapshot in self._kept.values():
            for copy in snapshot.copies.values():
                copy.is_not(log)

    def checked(self, name: str, members: str) -> _Snapshot:
        """What `restore` takes. Raises SnapshotError."""
        if members not in MEMBERS:
            raise SnapshotError(f"members={members!r}: expected one of {', '.join(MEMBERS)}")
        if name not in self._kept:
            known = ", ".join(map(repr, self._kept)) or "none was taken"
            raise SnapshotError(f"there is no snapshot {name!r}: {known}")
        return self._kept[name]

    async def restore(self, name: str, leaks: Sequence[ConnectionView], *, members: str) -> RestoreReport:
        """`leaks` are the connections that clients have open now. Raises SnapshotError, and StoreError."""
        with _without_collections():
            return await self._restore(name, leaks, members)

    async def _restore(self, name: str, leaks: Sequence[ConnectionView], members: str) -> RestoreReport:
        snapshot = self.checked(name, members)
        all_parts = self._hosted.running()
        began = perf_counter()
        await all_informed(all_parts)
        for parts in all_parts:
            _make_coordinators(parts)
        with _closed_doors(all_parts):
            for parts in all_parts:
                self._world.close_connections(parts)
            # The requests of a connection are forgotten when it is lost, which is in the next turn.
            await next_step()
            # What is loaded is judged by the time that it is of.
            self._clock.go_back_to(snapshot.clock)
            self._world.floor.rise(all_parts, snapshot.producer_ids, self._parted(snapshot))
            self._kept[name] = replace(snapshot, world=self._world.floor.rises)
            with ExitStack() as without:
                for parts in all_parts:
                    without.enter_context(self._world.without_coordinators(parts))
                changed = await self._replace(snapshot)
            await self._loaded(all_parts)
            for parts in all_parts if members == "leave" else ():
                _empty_groups(parts)
        for parts in all_parts:
            parts.transaction_loader.start()
            self._world.forget_requests(parts)
        if snapshot.rules:
            self._hosted.fault_host.faults.restore(snapshot.rules)
        return RestoreReport(name, len(changed), tuple(leaks), (perf_counter() - began) * 1000)

    # Taking.

    async def _settings(self) -> dict[str, bytes]:
        """Those of one moment with the image."""
        while True:
            revision = self._sources.reader.image.revision
            stored = await self._world.stored()
            if self._sources.reader.image.revision == revision:
                return {entry.key: entry.value for entry in stored}

    def _are_elected(self) -> bool:
        """Whether all partitions have leaders that can have one."""
        running, reader = self._hosted.parts(), self._sources.reader
        return not any(
            reader.leader(topic.name, index) is None and any(each in running for each in state.isr)
            for topic in reader.image.topics.values()
            for index, state in enumerate(topic.partitions)
        )

    def _copy_logs(self, directory: Path) -> dict[TopicPartition, LogCopy]:
        directory.mkdir(parents=True)
        copies: dict[TopicPartition, LogCopy] = {}
        try:
            for topic in self._sources.reader.image.topics.values():
                for index, state in enumerate(topic.partitions):
                    copies[topic.name, index] = self._copy(topic.name, index, state, directory)
        except BaseException:
            for each in copies.values():
                self._files.forget(each.kept_paths())
            raise
        return copies

    def _copy(self, topic: str, index: int, state: PartitionInfo, directory: Path) -> LogCopy:
        leader = self._sources.reader.leader(topic, index)
        if leader is None:
            raise SnapshotError(f"{topic}-{index} has no leader at the moment: what is in it is not known")
        if state.is_reassigning:
            raise SnapshotError(f"{topic}-{index} is being reassigned: wait for the end of that")
        copy = copy_log(state.leader, leader, directory / f"{topic}-{index}", self._files)
        for node_id, parts in self._hosted.parts().items():
            follower = parts.replicas.find(topic, index)
            if follower is not None and follower is not leader and _have_the_same(follower.log, leader.log):
                copy.is_now(node_id, follower.log)
        return copy

    def _rules(self) -> "list[FaultState]":
        faults = self._hosted.fault_host.faults_if_used
        return [] if faults is None else faults.kept()

    # Restoring.

    def _parted(self, snapshot: _Snapshot) -> Collection[int]:
        """The producers of the snapshot that have written since: all of them may, where another world came between."""
        if snapshot.world != self._world.floor.rises:
            return snapshot.producer_ids
        wrote: set[int] = set()
        for node_id, parts in self._hosted.parts().items():
            for replica in parts.replicas:
                copy = snapshot.copies.get((replica.topic, replica.index))
                producers = replica.log.known_producers
                if copy is not None:
                    wrote.update(copy.parted(node_id, replica.log))
                elif producers is not None:
                    wrote.update(producers.states)
        return snapshot.producer_ids & wrote

    async def _replace(self, snapshot: _Snapshot) -> dict[str, TopicInfo | None]:
        """The topics that are not as in the snapshot, as they are from now on; None for those that are gone."""
        all_parts, first = self._hosted.parts(), self._hosted.first()
        stored = await self._world.stored()
        changed: dict[str, TopicInfo | None] = {}
        epoch = self._world.leader_epoch_max + 1

        def plan() -> Transaction:
            changed.clear()
            changed.update(_changed_topics(first, all_parts, snapshot, epoch))
            topics = replace_topics(first.metadata.image, changed)
            return Transaction(topics.expected, (*topics.changes, *self._world.changes_to(snapshot.settings, stored)))

        try:
            for node_id, parts in all_parts.items():
                parts.topics.begin_leader_epochs_at(epoch + 1)
                for place, copy in snapshot.copies.items():
                    parts.log_directory.fills[place] = CopyFill(copy, self._files, node_id)
            await first.metadata.commit_planned(plan)
            made = [each for each in changed.values() if each is not None]
            for parts in all_parts.values():
                await parts.metadata.applied(first.metadata.image.revision)
                await parts.topic_logs.made(made)
        finally:
            for parts in all_parts.values():
                parts.log_directory.fills.clear()
        for topic in made:
            for index, state in enumerate(topic.partitions):
                for node_id in state.replicas:
                    replica = all_parts[node_id].replicas.partition(topic.name, index)
                    snapshot.copies[topic.name, index].is_now(node_id, replica.log)
        return changed

    async def _loaded(self, all_parts: Sequence[Parts]) -> None:
        await self._waits.wait(CoordinatorsLoaded(self._sources), WITHIN_S)
        loaders = [parts.transaction_loader for parts in all_parts]
        loaded = GivenCondition(
            lambda: not any(loader.loading() for loader in loaders), "the transaction coordinator's loading"
        )
        await self._waits.wait(loaded, WITHIN_S)


def _make_coordinators(parts: Parts) -> None:
    """A broker that has just started may still be about to, which it does not while its doors are closed."""
    groups, transactions = parts.group_loader, parts.transaction_loader
    made = (
        groups.coordinator if groups.topic_exists else None,
        transactions.coordinator if transactions.topic_exists else None,
    )
    del made


@contextmanager
def _closed_doors(all_parts: Sequence[Parts]) -> Generator[None]:
    """Connections that come during the body wait as in front of a broker that starts."""
    for parts in all_parts:
        parts.runtime.is_serving = False
    try:
        yield
    finally:
        for parts in all_parts:
            parts.runtime.is_serving = True
            for connection in list(parts.server.connections):
                connection.release(HELD_BY_START)


@contextmanager
def _without_collections() -> Generator[None]:
    """For some ten thousand objects that come, and as many that go without cycles: CPython would look for garbage a
    dozen times, in all that the tests have too, which takes a fifth of a restore."""
    is_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_on:
            gc.enable()


def _have_the_same(follower: Log, leader: Log) -> bool:
    """A follower may still have what its leader has deleted, and lacks an epoch without records."""
    start, end = leader.log_start_offset, leader.log_end_offset
    if follower.log_start_offset > start or follower.log_end_offset != end:
        return False
    return start == end or _epochs_of(follower, start, end) == _epochs_of(leader, start, end)


def _epochs_of(log: Log, start: int, end: int) -> tuple[int, list[EpochEntry]]:
    """The one at the start, and those that begin later."""
    return log.epochs.epoch_at(start), [each for each in log.epochs.below(end) if each.start_offset > start]


def _producers(all_parts: Sequence[Parts], copies: dict[TopicPartition, LogCopy]) -> frozenset[int]:
    known = [frozenset(each.producers) for each in copies.values()]
    for shard in (shard for parts in all_parts for shard in parts.transaction_loader.loaded_shards()):
        entries = shard.entries.values()
        known.append(frozenset(entry.metadata.producer_id for entry in entries))
        known.append(frozenset(entry.metadata.next_producer_id for entry in entries))
    return frozenset[int]().union(*known)


def _changed_topics(
    first: Parts, all_parts: Mapping[int, Parts], snapshot: _Snapshot, epoch: int
) -> dict[str, TopicInfo | None]:
    image = first.metadata.image
    changed: dict[str, TopicInfo | None] = {name: None for name in image.topics if name not in snapshot.topics}
    for name, topic in snapshot.topics.items():
        if not _is_as_kept(all_parts, snapshot, image.topic(name), topic):
            changed[name] = _with_new_identity(first, image, topic, epoch)
    return changed


def _is_as_kept(all_parts: Mapping[int, Parts], snapshot: _Snapshot, now: TopicInfo | None, kept: TopicInfo) -> bool:
    if now is None or now.configs != kept.configs or len(now.partitions) != len(kept.partitions):
        return False
    for index, (state, wanted) in enumerate(zip(now.partitions, kept.partitions, strict=True)):
        if (state.leader, state.replicas) != (wanted.leader, wanted.replicas):
            return False
        for node_id in wanted.replicas:
            replica = all_parts[node_id].replicas.find(kept.name, index)
            if replica is None or not snapshot.copies[kept.name, index].is_like(node_id, replica.log):
                return False
    return True


def _with_new_identity(parts: Parts, image: MetadataImage, topic: TopicInfo, epoch: int) -> TopicInfo:
    begun = tuple(
        replace(new_partition(each.replicas, image.active_brokers), leader=each.leader, leader_epoch=epoch)
        for each in topic.partitions
    )
    topic_id = new_topic_id(parts.runtime.rng, image.topics_by_id)
    return replace(topic, topic_id=topic_id, partitions=begun)


def _empty_groups(parts: Parts) -> None:
    """The members that the logs have are those of connections that are closed."""
    for shard in parts.group_loader.loaded_shards():
        for group in list(shard.groups.values()):
            leaving = tuple(LeavingMember(member_id) for member_id in group.members)
            hosted = parts.groups.topic.partition_of(group.group_id)
            if leaving and hosted is not None:
                hosted.handle(LeaveGroup(parts.groups.new_token(), group.group_id, leaving))
    parts.runtime.end_event()
