"""The world of a broker: everything that it remembers; and how it is emptied between two tests.

A reset closes the connections of clients, forgets groups, offsets and transactions, and deletes topics, ACLs, quotas,
users and configs that were not there at the beginning. The brokers stay, with their ports and the cluster id.

Identities are not used twice. Topic ids and member ids are random, generations of groups and leader epochs of new
topics begin above all earlier ones, and a batch of a producer id that was given out before the reset is refused with
UNKNOWN_PRODUCER_ID: Kafka would accept any sequence number of an id that a partition knows nothing of.

Each connection that is open at a reset is a leak: its client may go on, and where it is a producer without an id, or
names topics in its requests, the broker cannot know it from a client of the next test.
"""

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

from ottla.broker.assembly import Parts
from ottla.broker.replicas.replica_manager import LeadershipWatcher
from ottla.broker.runtime import next_step
from ottla.broker.server.close_reasons import CloseReason
from ottla.cluster.encoding import BROKER_CONFIGS, FEATURES
from ottla.cluster.image import CONSUMER_OFFSETS, INTERNAL_TOPICS, TRANSACTION_STATE, MetadataImage
from ottla.cluster.store import ACLS, QUOTAS, SCRAM, Change, Delete, Entry, Put, StoreError, Transaction, Unavailable
from ottla.cluster.topic_changes import replace_topics
from ottla.cluster.updates import ImageUpdate
from ottla.protocol.errors import ErrorCode, error_for
from ottla.protocol.records.batch import BATCH_HEADER_SIZE, BatchHeader, parse_batch_header
from ottla.replication.fetch_session_cache import DETACHED_MS
from ottla.replication.partition import Partition
from ottla.storage.log import AppendInfo
from ottla.testing.histories import GroupHistories
from ottla.testing.hosting import HostedBrokers
from ottla.testing.views import ConnectionView
from ottla.testing.wire import WireRing

COORDINATOR_TOPICS = (CONSUMER_OFFSETS, TRANSACTION_STATE)
KEPT_AS_AT_FIRST = (ACLS, QUOTAS, SCRAM, BROKER_CONFIGS, FEATURES)
# A connection that its client has closed already is still accepted, one in each turn of the loop, then read, then lost.
# When nothing has changed for so many turns, there are no more of these.
QUIET_TURNS = 4
# Clients that work all the while leave the loop no quiet.
TURNS_MAX = 400


@dataclass(frozen=True, slots=True)
class ResetReport:
    """What a reset has removed."""

    topics: int
    groups: int
    leaks: tuple[ConnectionView, ...]
    """Connections that clients had left open."""
    duration_ms: float


def describe_leak(leak: ConnectionView) -> str:
    """`consumer rdkafka#1 (group shop) of test_a was not closed`."""
    kind = "consumer" if leak.groups or "Fetch" in leak.apis else "producer" if "Produce" in leak.apis else "client"
    group = f" (group {', '.join(leak.groups)})" if leak.groups else ""
    test = f" of {leak.opened_in}" if leak.opened_in else ""
    return f"{kind} {leak.name}{group}{test} was not closed"


class LeakedClients:
    """Those that a test has left open. They connect again, and what they have open then is no leak of a later test.

    A client is known by its name, software, address, principal and groups. So a later test that leaves another such
    client open is taken for innocent: the leak of the earlier one has been named, and hides it."""

    def __init__(self) -> None:
        self._known: dict[tuple[str | None, ...], list[ConnectionView]] = {}

    def named(self, connections: Iterable[ConnectionView]) -> list[ConnectionView]:
        """With the test that has left the client open in place of the one in which it has connected again."""
        return [replace(each, opened_in=self._first_left_by(each) or each.opened_in) for each in connections]

    def note(self, leaks: Iterable[ConnectionView]) -> None:
        """At the end of a test: as `named` gives them."""
        for each in leaks:
            if each.opened_in and self._first_left_by(each) is None:
                self._known.setdefault(_identity(each), []).append(each)

    def _first_left_by(self, connection: ConnectionView) -> str | None:
        known = self._known.get(_identity(connection), ())
        # A consumer that has connected again need not have joined its group again.
        tests = (each.opened_in for each in known if set(connection.groups) <= set(each.groups))
        return next(tests, None)


def _identity(connection: ConnectionView) -> tuple[str | None, ...]:
    return connection.client_id, connection.software, connection.address, connection.principal


class WorldKeeper:
    """Everything here runs on the loop of the brokers."""

    def __init__(self, hosted: HostedBrokers, histories: GroupHistories, wire: WireRing) -> None:
        self._hosted = hosted
        self._histories = histories
        self._wire = wire
        self._first: dict[str, bytes] = {}
        self.leader_epoch_max = 0
        """Of all topics that there were."""
        self.floor = ProducerFloor()

    def attach(self, parts: Parts) -> None:
        """To a broker that has started."""
        parts.metadata.watchers.append(self._note_leader_epochs)
        self.floor.attach(parts)

    async def remember(self) -> None:
        """What there is now is what a reset leaves."""
        self._first = {entry.key: entry.value for entry in await self.stored()}

    async def reset(self, connections: Sequence[ConnectionView], groups: int) -> ResetReport:
        """`connections` are those that clients have open now, `groups` how many there are."""
        began = perf_counter()
        all_parts = list(self._hosted.parts().values())
        for parts in all_parts:
            self.close_connections(parts)
        # The requests of a connection are forgotten when it is lost, which is in the next turn.
        await next_step()
        self.floor.rise(all_parts)
        for parts in all_parts:
            self._empty_coordinators(parts)
        topics = await self._delete(all_parts)
        for parts in all_parts:
            self.forget_requests(parts)
        return ResetReport(topics, groups, tuple(connections), (perf_counter() - began) * 1000)

    def forget_requests(self, parts: Parts) -> None:
        """Of clients whose connections were closed: fetch sessions, and what was noted of groups and deliveries."""
        parts.fetch_sessions.drop_detached(parts.runtime.clock.now_ms() + DETACHED_MS)
        parts.runtime.log.levels.reset()
        parts.log_manager.remove_files()
        self._histories.clear()
        self._wire.deliveries.clear()

    def close_connections(self, parts: Parts) -> None:
        """Those of clients."""
        for connection in list(parts.server.connections):
            if not self._wire.notes_of(connection).is_of_broker:
                connection.close(CloseReason.BROKER_STOPS, None)

    # Groups, offsets, transactions.

    def _empty_coordinators(self, parts: Parts) -> None:
        """They resign, their logs begin where they end, and they are elected again, with nothing to load: one step of
        the loop, so that no request meets a broker without its coordinator."""
        with self.without_coordinators(parts):
            for name in COORDINATOR_TOPICS:
                for replica in parts.replicas.of_topic(name):
                    if replica.is_leader:
                        _empty(parts, replica)

    @contextmanager
    def without_coordinators(self, parts: Parts) -> Generator[None]:
        """They resign for the body, and load after it what is in their logs then. Groups begin generations above all
        earlier ones."""
        loaders: dict[str, LeadershipWatcher] = {
            CONSUMER_OFFSETS: parts.group_loader,
            TRANSACTION_STATE: parts.transaction_loader,
        }
        coordinator = parts.group_loader.prepare() if parts.group_loader.topic_exists else None
        if coordinator is not None:
            coordinator.generation_floor = self._histories.generation_max
        for name, loader in loaders.items():
            for replica in parts.replicas.of_topic(name):
                if replica.is_leader:
                    loader.resigned(replica.index)
        parts.runtime.end_event()
        try:
            yield
        finally:
            for name, loader in loaders.items():
                for replica in parts.replicas.of_topic(name):
                    if replica.is_leader:
                        loader.elected(replica.index)
            parts.runtime.end_event()

    # Topics and what else the metadata has.

    async def _delete(self, all_parts: Sequence[Parts]) -> int:
        first = all_parts[0]
        await all_informed(all_parts)
        stored = await self.stored()
        deleted: list[str] = []

        def plan() -> Transaction:
            image = first.metadata.image
            deleted[:] = [name for name in image.topics if name not in INTERNAL_TOPICS]
            topics = replace_topics(image, dict.fromkeys(deleted))
            return Transaction(topics.expected, (*topics.changes, *self.changes_to(self._first, stored)))

        for parts in all_parts:
            parts.topics.begin_leader_epochs_at(self.leader_epoch_max + 1)
        await first.metadata.commit_planned(plan)
        revision = first.metadata.image.revision
        for parts in all_parts:
            await parts.metadata.applied(revision)
            # Of a topic that has gone there may be more logs than one update removes.
            while any(each.topic in deleted for each in parts.replicas):
                await next_step()
        return len(deleted)

    def changes_to(self, wanted: Mapping[str, bytes], stored: Sequence[Entry]) -> list[Change]:
        """What makes `wanted` of what there is."""
        now = {entry.key: entry.value for entry in stored}
        changes: list[Change] = [Put(key, value) for key, value in wanted.items() if now.get(key) != value]
        return changes + [Delete(key) for key in now if key not in wanted]

    async def stored(self) -> list[Entry]:
        """What there is beside topics: ACLs, quotas, users, configs of brokers, features. Raises StoreError."""
        metadata = self._hosted.first().metadata
        found = await metadata.read("")
        if isinstance(found, Unavailable):
            raise StoreError(found.reason)
        return [entry for entry in found.entries if entry.key.startswith(KEPT_AS_AT_FIRST)]

    def _note_leader_epochs(self, before: MetadataImage, update: ImageUpdate) -> None:
        del before
        for name in update.topics:
            topic = update.image.topic(name)
            for each in () if topic is None else topic.partitions:
                self.leader_epoch_max = max(self.leader_epoch_max, each.leader_epoch)


async def all_informed(all_parts: Sequence[Parts]) -> None:
    """Until each broker knows all that one of them knows."""
    revision = max(parts.metadata.image.revision for parts in all_parts)
    for parts in all_parts:
        await parts.metadata.applied(revision)


def _empty(parts: Parts, replica: Partition) -> None:
    log = replica.log
    if log.log_start_offset == log.log_end_offset:
        return
    log.truncate_fully_and_start_at(log.log_end_offset)
    replica.log_truncated()
    parts.replicas.log_start_rose(replica)


class ProducerFloor:
    """Producer ids that were given out before the last reset or restore are old: those below what any broker has
    claimed, but for what was left of a claim, and for those of the restored state. It stands before the appends of
    clients, once there are any.

    A producer of the restored state that wrote after its snapshot goes on from batches that are gone: it may only
    follow on what a log has of it. A new epoch of its own making (the Java client's answer to
    OUT_OF_ORDER_SEQUENCE_NUMBER), or a partition that does not know it, would be taken with whatever sequence number.
    """

    def __init__(self) -> None:
        self.rises = 0
        self._claimed_until = 0
        self._unused: Sequence[range] = ()
        self._known: Collection[int] = ()
        self._parted: set[int] = set()

    def rise(self, all_parts: Sequence[Parts], known: Collection[int] = (), parted: Collection[int] = ()) -> None:
        """`known` are those that the world has from now on, `parted` those of them that wrote what it does not have."""
        self.rises += 1
        self._known = known
        self._parted.update(parted)
        claimed = [parts.producer_ids.claimed_until for parts in all_parts]
        self._unused = [each for parts in all_parts for each in parts.producer_ids.unused]
        if not self._claimed_until and any(claimed):
            for parts in all_parts:
                self._install(parts)
        self._claimed_until = max(self._claimed_until, *claimed)

    def attach(self, parts: Parts) -> None:
        """To a broker that has started."""
        if self._claimed_until:
            self._install(parts)

    def _install(self, parts: Parts) -> None:
        parts.replicas.append = partial(self._checked, parts.replicas.append)

    def _checked(self, append: Any, partition: Partition, records: memoryview, *rest: Any, **named: Any) -> AppendInfo:
        if len(records) >= BATCH_HEADER_SIZE:
            header = parse_batch_header(records)
            if 0 <= header.producer_id < self._claimed_until:
                self._refuse_old(partition, header)
        info: AppendInfo = append(partition, records, *rest, **named)
        return info

    def _refuse_old(self, partition: Partition, header: BatchHeader) -> None:
        producer_id = header.producer_id
        if producer_id not in self._known and not any(producer_id in each for each in self._unused):
            raise error_for(
                ErrorCode.UNKNOWN_PRODUCER_ID, f"producer id {producer_id} was given out before the world was reset"
            )
        # Epochs of transactional producers are the coordinator's.
        if producer_id in self._parted and not header.is_transactional:
            state = partition.log.producers.states.find(producer_id)
            if state is None or header.producer_epoch > state.epoch:
                raise error_for(
                    ErrorCode.UNKNOWN_PRODUCER_ID, f"producer id {producer_id} wrote what the restored state has not"
                )
