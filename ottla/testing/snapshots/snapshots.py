"""Snapshots of the world of one broker.

Taking one is a single step of the loop: requests wait in their sockets while it lasts. It notes topics with their
configs, ACLs, quotas, users, configs of the broker and fault rules, and copies each log (`log_copies`), those of
`__consumer_offsets` and `__transaction_state` too: groups, offsets and transactions are in them.

A restore closes the connections of clients and lets new ones wait, takes the coordinators from their logs, puts copies
in the place of all topics that have changed, in one change of the metadata, and has the coordinators load again. Topics
that have not changed stay. The others get new topic ids and leader epochs above all earlier ones; identities are not
used twice (`ottla.testing.worlds`), so what claims and floors there are is not taken back.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from ottla.broker.assembly import Parts
from ottla.broker.runtime import next_step
from ottla.broker.server.connection_interfaces import HELD_BY_START
from ottla.cluster.image import MetadataImage, TopicInfo
from ottla.cluster.store import Transaction
from ottla.cluster.topic_changes import replace_topics
from ottla.cluster.topics import new_partition, new_topic_id
from ottla.coordinator.events import LeaveGroup, LeavingMember
from ottla.storage.checkpoints import TopicPartition
from ottla.storage.log import Log
from ottla.testing.clock.control import ClockControl, KeptClock
from ottla.testing.conditions import GivenCondition, Sources, coordinators_loaded
from ottla.testing.hosting import HostedBrokers
from ottla.testing.snapshots.kept_files import KeptFiles
from ottla.testing.snapshots.log_copies import LogCopy, copy_log
from ottla.testing.views import ConnectionView
from ottla.testing.waits import Waits
from ottla.testing.worlds import WorldKeeper
from ottla.testing.writing import WITHIN_S

MEMBERS = ("leave", "keep")


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
    directory: Path
    topics: dict[str, TopicInfo]
    settings: dict[str, bytes]
    copies: dict[TopicPartition, LogCopy]
    producer_ids: frozenset[int]
    """Those that a log or a transactional id knows."""
    rules: list[dict[str, Any]]
    clock: KeptClock | None


class Snapshots:
    """Everything here runs on the loop of the broker."""

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
        parts = self._parts()
        await parts.topic_logs.all_made()
        settings, rules = await self._settings(parts), self._rules()
        began = perf_counter()
        self._count += 1
        directory = parent / str(self._count)
        parts.runtime.end_event()
        try:
            copies = self._copy_logs(parts, directory)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        topics, producer_ids = dict(parts.metadata.image.topics), _producers(parts, copies)
        kept = _Snapshot(directory, topics, settings, copies, producer_ids, rules, self._clock.kept())
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
            shutil.rmtree(dropped.directory)

    def log_damaged(self, log: Log) -> None:
        """Its files were changed behind its back: snapshots do not take it for what they have."""
        for snapshot in self._kept.values():
            for copy in snapshot.copies.values():
                copy.is_not(log)

    def checked(self, name: str, members: str) -> _Snapshot:
        """What `restore` takes. Raises SnapshotError."""
        self._refuse_several()
        if members not in MEMBERS:
            raise SnapshotError(f"members={members!r}: expected one of {', '.join(MEMBERS)}")
        if name not in self._kept:
            known = ", ".join(map(repr, self._kept)) or "none was taken"
            raise SnapshotError(f"there is no snapshot {name!r}: {known}")
        return self._kept[name]

    async def restore(self, name: str, leaks: Sequence[ConnectionView], *, members: str) -> RestoreReport:
        """`leaks` are the connections that clients have open now. Raises SnapshotError, and StoreError."""
        snapshot = self.checked(name, members)
        parts = self._parts()
        began = perf_counter()
        # The door is closed: connections that come from now on wait as in front of a broker that starts.
        parts.runtime.is_serving = False
        try:
            self._world.close_connections(parts)
            # The requests of a connection are forgotten when it is lost, which is in the next turn.
            await next_step()
            # What is loaded is judged by the time that it is of.
            self._clock.go_back_to(snapshot.clock)
            self._world.floor.rise([parts], snapshot.producer_ids)
            with self._world.without_coordinators(parts):
                changed = await self._replace(parts, snapshot)
            await self._loaded(parts)
            if members == "leave":
                _empty_groups(parts)
        finally:
            parts.runtime.is_serving = True
            for connection in list(parts.server.connections):
                connection.release(HELD_BY_START)
        parts.transaction_loader.start()
        self._world.forget_requests(parts)
        if snapshot.rules:
            self._hosted.fault_host.faults.add_all(snapshot.rules)
        return RestoreReport(name, len(changed), tuple(leaks), (perf_counter() - began) * 1000)

    # Taking.

    async def _settings(self, parts: Parts) -> dict[str, bytes]:
        """Those of one moment with the image."""
        while True:
            revision = parts.metadata.image.revision
            stored = await self._world.stored()
            if parts.metadata.image.revision == revision:
                return {entry.key: entry.value for entry in stored}

    def _copy_logs(self, parts: Parts, directory: Path) -> dict[TopicPartition, LogCopy]:
        directory.mkdir(parents=True)
        copies: dict[TopicPartition, LogCopy] = {}
        try:
            for topic in parts.metadata.image.topics.values():
                for index in range(len(topic.partitions)):
                    replica = parts.replicas.partition(topic.name, index)
                    copies[topic.name, index] = copy_log(replica, directory / f"{topic.name}-{index}", self._files)
        except BaseException:
            for each in copies.values():
                self._files.forget(each.kept_paths())
            raise
        return copies

    def _rules(self) -> list[dict[str, Any]]:
        faults = self._hosted.fault_host.faults_if_used
        return [] if faults is None else [fault.to_json() for fault in faults]

    # Restoring.

    async def _replace(self, parts: Parts, snapshot: _Snapshot) -> dict[str, TopicInfo | None]:
        """The topics that are not as in the snapshot, as they are from now on; None for those that are gone."""
        stored = await self._world.stored()
        changed: dict[str, TopicInfo | None] = {}
        epoch = self._world.leader_epoch_max + 1

        def plan() -> Transaction:
            changed.clear()
            changed.update(_changed_topics(parts, snapshot, epoch))
            topics = replace_topics(parts.metadata.image, changed)
            return Transaction(topics.expected, (*topics.changes, *self._world.changes_to(snapshot.settings, stored)))

        parts.topics.begin_leader_epochs_at(epoch + 1)
        fills = parts.log_directory.fills
        try:
            fills |= {key: partial(copy.fill, self._files) for key, copy in snapshot.copies.items()}
            await parts.metadata.commit_planned(plan)
            made = [each for each in changed.values() if each is not None]
            await parts.topic_logs.made(made)
        finally:
            fills.clear()
        for topic in made:
            for index in range(len(topic.partitions)):
                replica = parts.replicas.partition(topic.name, index)
                snapshot.copies[topic.name, index].is_now(replica.log)
        return changed

    async def _loaded(self, parts: Parts) -> None:
        await self._waits.wait(coordinators_loaded(self._sources), WITHIN_S)
        loader = parts.transaction_loader
        loaded = GivenCondition(lambda: not loader.loading(), "the transaction coordinator's loading")
        await self._waits.wait(loaded, WITHIN_S)

    def _parts(self) -> Parts:
        self._refuse_several()
        return self._hosted.first()

    def _refuse_several(self) -> None:
        if self._hosted.count > 1:
            raise SnapshotError(
                f"a snapshot is of one broker, and here are {self._hosted.count}, whose replicas would have to be "
                "restored together: use reset(), and load the seed again"
            )


def _producers(parts: Parts, copies: dict[TopicPartition, LogCopy]) -> frozenset[int]:
    known = [each.producer_ids for each in copies.values()]
    for shard in parts.transaction_loader.loaded_shards():
        entries = shard.entries.values()
        known.append(frozenset(entry.metadata.producer_id for entry in entries))
        known.append(frozenset(entry.metadata.next_producer_id for entry in entries))
    return frozenset[int]().union(*known)


def _changed_topics(parts: Parts, snapshot: _Snapshot, epoch: int) -> dict[str, TopicInfo | None]:
    image = parts.metadata.image
    changed: dict[str, TopicInfo | None] = {name: None for name in image.topics if name not in snapshot.topics}
    for name, topic in snapshot.topics.items():
        if not _is_as_kept(parts, snapshot, image.topic(name), topic):
            changed[name] = _with_new_identity(parts, image, topic, epoch)
    return changed


def _is_as_kept(parts: Parts, snapshot: _Snapshot, now: TopicInfo | None, kept: TopicInfo) -> bool:
    if now is None or now.configs != kept.configs or len(now.partitions) != len(kept.partitions):
        return False
    replicas = [parts.replicas.find(kept.name, index) for index in range(len(kept.partitions))]
    return all(
        replica is not None and snapshot.copies[kept.name, index].is_like(replica.log)
        for index, replica in enumerate(replicas)
    )


def _with_new_identity(parts: Parts, image: MetadataImage, topic: TopicInfo, epoch: int) -> TopicInfo:
    begun = tuple(
        replace(new_partition(each.replicas, image.active_brokers), leader_epoch=epoch) for each in topic.partitions
    )
    topic_id = new_topic_id(parts.runtime.rng, image.topics_by_id)
    return replace(topic, topic_id=topic_id, partitions=begun)


def _empty_groups(parts: Parts) -> None:
    """The members that the logs have are those of connections that are closed."""
    groups = parts.groups
    for shard in parts.group_loader.loaded_shards():
        for group in list(shard.groups.values()):
            leaving = tuple(LeavingMember(member_id) for member_id in group.members)
            hosted = groups.topic.partition_of(group.group_id)
            if leaving and hosted is not None:
                hosted.handle(LeaveGroup(groups.new_token(), group.group_id, leaving))
    parts.runtime.end_event()
