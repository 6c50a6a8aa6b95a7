"""Three brokers with one partition, a toy controller and a lossy channel, all driven by hand or by chance.

Nothing moves by itself: a test, or a random walk, lets a fetcher ask, delivers or loses a message, lets a broker learn
the next metadata, crashes it. Logs are real ones on disks in memory. `Oracle` knows what must never get lost.
"""

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.protocol.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.offset_for_leader_epoch import EpochEndOffset as EpochEnd
from ottla.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult
from ottla.protocol.records.batch import iterate_batches
from ottla.protocol.records.record import Record, build_batch
from ottla.replication.facts import Fact, Truncated
from ottla.replication.fetch_session import FetchSessionCache, FetchTarget
from ottla.replication.fetcher import Endpoint, Fetcher, FetcherConfig, Planned
from ottla.replication.fetcher_manager import FetcherManager
from ottla.replication.follower import LATEST_TIMESTAMP, Follower
from ottla.replication.follower_session import FollowerSession
from ottla.replication.isr import IsrChange, IsrOutcome
from ottla.replication.leadership import ReplicationRules
from ottla.replication.leading import ACKS_ALL
from ottla.replication.partition import Partition, Taken
from ottla.replication.serving_followers import FollowerFetch
from ottla.storage.config import LogConfig
from tests.fakes.disk import FakeDisk
from tests.storage.support import TOPIC_ID, open_directory

BROKERS = (1, 2, 3)
TOPIC, INDEX = "t", 0
NOBODY = -1
LAG_MS_MAX = 60
NOW = 1_700_000_000_000


class Violation(AssertionError):
    """An invariant of KAFKA_SEMANTICS §20 does not hold."""


def require(holds: bool, what: str) -> None:
    if not holds:
        raise Violation(what)


# The controller.


@dataclass(frozen=True)
class State:
    """What is committed: the partition, and who is registered."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    elr: frozenset[int]
    broker_epochs: dict[int, int]
    live: frozenset[int]

    def epoch_of(self, broker_id: int) -> int:
        return self.broker_epochs.get(broker_id, -1)

    def may_join_isr(self, broker_id: int, broker_epoch: int) -> bool:
        return broker_id in self.live and broker_epoch in (-1, self.epoch_of(broker_id))


class Controller:
    """§19.3, §19.4.3, as far as one partition needs it. Every commit is kept, for brokers to learn in order."""

    def __init__(self, min_isr: int) -> None:
        self.min_isr = min_isr
        self.history = [State(1, 0, 0, BROKERS, frozenset(), dict.fromkeys(BROKERS, 0), frozenset(BROKERS))]
        self._epochs = itertools.count(1)

    @property
    def state(self) -> State:
        return self.history[-1]

    def _commit(self, **changes: Any) -> None:
        state = replace(self.state, **changes)
        if "isr" in changes or "leader" in changes:
            state = replace(state, partition_epoch=state.partition_epoch + 1)
        if state.leader != self.state.leader or changes.get("begins_term"):
            state = replace(state, leader_epoch=state.leader_epoch + 1)
        self.history.append(state)

    def _with_isr(self, isr: tuple[int, ...], elr: frozenset[int]) -> dict[str, Any]:
        """Who leaves while too few are in sync still has everything that was acknowledged."""
        if len(isr) >= self.min_isr:
            return {"isr": isr, "elr": frozenset()}
        return {"isr": isr, "elr": (elr | (set(self.state.isr) - set(isr))) - set(isr)}

    def alter_isr(self, sender: int, change: IsrChange) -> tuple[ErrorCode, State | None]:
        """§19.3.3"""
        state = self.state
        if change.leader_epoch < state.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH, None
        if sender != state.leader:
            return ErrorCode.INVALID_REQUEST, None
        if change.partition_epoch < state.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION, None
        if not all(state.may_join_isr(member.broker_id, member.broker_epoch) for member in change.isr):
            return ErrorCode.INELIGIBLE_REPLICA, None
        self._commit(**self._with_isr(tuple(member.broker_id for member in change.isr), state.elr))
        return ErrorCode.NONE, self.state

    def fence(self, broker: int) -> None:
        state = self.state
        changes: dict[str, Any] = {"live": state.live - {broker}}
        if broker in state.isr and len(state.isr) > 1:
            changes |= self._with_isr(tuple(r for r in state.isr if r != broker), state.elr)
        if state.leader == broker:
            changes["leader"] = NOBODY
        self._commit(**changes)
        self.maybe_elect()

    def register(self, broker: int, *, was_clean: bool) -> int:
        if broker in self.state.live:
            self.fence(broker)
        state = self.state
        epoch = next(self._epochs)
        changes: dict[str, Any] = {
            "broker_epochs": {**state.broker_epochs, broker: epoch},
            "live": state.live | {broker},
        }
        if not was_clean and broker in (*state.isr, *state.elr):
            changes |= {"isr": tuple(r for r in state.isr if r != broker), "elr": state.elr - {broker}}
        self._commit(**changes)
        self.maybe_elect()
        return epoch

    def maybe_elect(self) -> None:
        if self.state.leader == NOBODY:
            self.elect(self.candidates()[:1])

    def candidates(self) -> list[int]:
        state = self.state
        in_sync = [r for r in BROKERS if r in state.isr and r in state.live]
        return in_sync or [r for r in BROKERS if r in state.elr and r in state.live]

    def elect(self, candidates: list[int]) -> None:
        state = self.state
        for leader in candidates:
            changes = {} if leader in state.isr else self._with_isr((leader,), state.elr)
            self._commit(leader=leader, **changes)


# Brokers.


class Registrations:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def epoch_of(self, broker_id: int) -> int:
        return self._broker.known.epoch_of(broker_id)

    def may_join_isr(self, broker_id: int, broker_epoch: int) -> bool:
        return self._broker.known.may_join_isr(broker_id, broker_epoch)


@dataclass
class Kinds:
    """What the brokers are made of; a mutant changes one of them."""

    partition: type[Partition] = Partition
    follower: Callable[..., Follower] = Follower


class Broker:
    """One life of a broker process: the shell around a partition."""

    def __init__(self, cluster: "Cluster", broker_id: int, disk: FakeDisk, epoch: int) -> None:
        self.cluster, self.id, self.disk, self.epoch = cluster, broker_id, disk, epoch
        self.learnt = 0
        self.directory = open_directory(disk, cluster.config, node_id=broker_id)
        log = self.directory.logs.get((TOPIC, INDEX))
        if log is None:
            log = self.directory.create_log(TOPIC, INDEX, TOPIC_ID, cluster.config, now_wall_ms=NOW)
            log.flush()
        self.log = log
        self.partition = cluster.kinds.partition(
            TOPIC,
            INDEX,
            TOPIC_ID,
            log,
            local_id=broker_id,
            high_watermark=log.restored_high_watermark,
            rules=ReplicationRules(Registrations(self), lag_ms_max=LAG_MS_MAX),
        )
        self.sessions = FetchSessionCache(10, itertools.count(1).__next__, FollowerSession)
        self.fetchers = FetcherManager(
            FetcherConfig(replica_id=broker_id, partition_max_bytes=cluster.fetch_bytes),
            new_follower=cluster.kinds.follower,
        )
        self.asking: dict[int, Planned] = {}

    @property
    def known(self) -> State:
        return self.cluster.controller.history[self.learnt]

    def learn(self, version: int) -> None:
        """Apply one committed state."""
        self.learnt = version
        state, partition = self.known, self.partition
        taken = partition.take_state(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            replicas=BROKERS,
            isr=state.isr,
            elr=sorted(state.elr),
            now_ms=self.cluster.now_ms,
        )
        if taken is Taken.LEADS or (taken is Taken.FOLLOWS and state.leader == NOBODY):
            self.fetchers.stop(TOPIC, INDEX)
        elif taken is Taken.FOLLOWS:
            self.fetchers.follow(partition, Endpoint("broker", state.leader))
        changes = self.fetchers.settle()
        self.heard(changes.facts)

    def heard(self, facts: list[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, Truncated):
                # Or the old end could come back with the power, under the epochs of the new one.
                self.log.flush()
            self.cluster.facts.append((self.id, fact))

    # As a leader.

    def serve(self, request: Any) -> Any:
        if isinstance(request, FetchRequest):
            return self._serve_fetch(request)
        return self._serve_offsets(request) if isinstance(request, ListOffsetsRequest) else self._serve_epochs(request)

    def _serve_fetch(self, request: FetchRequest) -> FetchResponse:
        targets = [
            FetchTarget(
                TOPIC,
                topic.topic_id,
                asked.partition,
                fetch_offset=asked.fetch_offset,
                max_bytes=asked.partition_max_bytes,
                current_leader_epoch=asked.current_leader_epoch,
                last_fetched_epoch=asked.last_fetched_epoch,
                log_start_offset=asked.log_start_offset,
                uses_topic_ids=True,
            )
            for topic in request.topics
            for asked in topic.partitions
        ]
        context = self.sessions.begin(
            request.session_id,
            request.session_epoch,
            targets,
            [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions],
            uses_topic_ids=True,
            is_follower=True,
            now_ms=self.cluster.now_ms,
        )
        if context.error:
            return FetchResponse(error_code=int(context.error))
        session = context.session
        assert isinstance(session, FollowerSession), "a follower has a session of its kind"
        session.replica_id = request.replica_state.replica_id
        answers = [self._fetch(target, request.replica_state, session) for target in context.targets]
        session.contact.last_fetch_ms = self.cluster.now_ms
        included = context.answered(answers, self.cluster.now_ms)
        partitions = [answer for answer, include in zip(answers, included, strict=True) if include]
        topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=partitions)] if partitions else []
        return FetchResponse(session_id=context.session_id, responses=topics)

    def _fetch(self, target: FetchTarget, replica: Any, session: FollowerSession) -> PartitionData:
        """What the shell does for each partition of a replica's fetch."""
        partition = self.partition
        session.watch(target, partition)
        answer = PartitionData(partition_index=INDEX, records=b"")
        fetch = FollowerFetch(
            replica.replica_id,
            replica.replica_epoch,
            target.fetch_offset,
            target.log_start_offset,
            target.current_leader_epoch,
            target.last_fetched_epoch,
        )
        try:
            read = partition.read_for_follower(fetch, target.max_bytes, at_least_one_batch=True)
            if read.diverging is None:
                now_ms = self.cluster.now_ms
                noted = partition.note_follower_fetch(fetch, read.leader_end_offset, now_ms, session.contact)
                self.ask_for(noted.isr_change)
                answer.records = memoryview(bytes(read.records))
            else:
                answer.diverging_epoch = EpochEndOffset(epoch=read.diverging[0], end_offset=read.diverging[1])
        except KafkaError as error:
            answer.error_code = int(error.code)
        answer.high_watermark, answer.log_start_offset = partition.high_watermark, partition.log.log_start_offset
        return answer

    def _serve_epochs(self, request: Any) -> OffsetForLeaderEpochResponse:
        asked = request.topics[0].partitions[0]
        answer = EpochEnd(partition=INDEX)
        try:
            self.partition.check_leader(asked.current_leader_epoch)
            answer.leader_epoch, answer.end_offset = self.partition.end_offset_for_epoch(asked.leader_epoch)
        except KafkaError as error:
            answer.error_code = int(error.code)
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic=TOPIC, partitions=[answer])])

    def _serve_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        asked = request.topics[0].partitions[0]
        answer = ListOffsetsPartitionResponse(partition_index=INDEX)
        try:
            self.partition.check_leader(asked.current_leader_epoch)
            is_end = asked.timestamp == LATEST_TIMESTAMP
            answer.offset = self.log.log_end_offset if is_end else self.log.log_start_offset
        except KafkaError as error:
            answer.error_code = int(error.code)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[answer])])

    def ask_for(self, change: IsrChange | None) -> None:
        if change is not None:
            self.cluster.network.append(ChangeMessage(self, change))

    # As a follower.

    def ask(self) -> None:
        """Let each fetcher that waits for no answer ask its leader."""
        for fetcher in self.fetchers.fetchers:
            if id(fetcher) not in self.asking:
                planned = fetcher.next_request(self.cluster.now_ms, self.epoch)
                if planned is not None:
                    self.asking[id(fetcher)] = planned
                    self.cluster.network.append(Request(self, fetcher, planned))


# The channel.


@dataclass(eq=False)
class Request:
    sender: Broker
    fetcher: Fetcher
    planned: Planned

    def deliver(self, cluster: "Cluster") -> None:
        leader = cluster.brokers.get(self.fetcher.key.leader_id)
        if leader is None:
            self.lose(cluster)
        else:
            cluster.network.append(Response(self, leader.serve(self.planned.request)))

    def lose(self, cluster: "Cluster") -> None:
        if self.sender.asking.pop(id(self.fetcher), None):
            self.fetcher.failed(self.planned, cluster.now_ms)


@dataclass(eq=False)
class Response:
    request: Request
    content: Any

    def deliver(self, cluster: "Cluster") -> None:
        sender, fetcher = self.request.sender, self.request.fetcher
        if cluster.brokers.get(sender.id) is sender and sender.asking.pop(id(fetcher), None):
            facts = fetcher.answered(self.request.planned, self.content, now_ms=cluster.now_ms, wall_ms=NOW)
            sender.heard(facts)

    def lose(self, cluster: "Cluster") -> None:
        self.request.lose(cluster)


@dataclass(eq=False)
class ChangeMessage:
    sender: Broker
    change: IsrChange
    answer: tuple[ErrorCode, State | None] | None = None

    def deliver(self, cluster: "Cluster") -> None:
        if self.answer is None:
            self.answer = cluster.controller.alter_isr(self.sender.id, self.change)
            cluster.network.append(self)
            return
        self._tell(cluster, *self.answer)

    def lose(self, cluster: "Cluster") -> None:
        self._tell(cluster, ErrorCode.REQUEST_TIMED_OUT, None)

    def _tell(self, cluster: "Cluster", error: ErrorCode, state: State | None) -> None:
        if cluster.brokers.get(self.sender.id) is not self.sender:
            return
        outcome = self.sender.partition.isr_change_answered(
            self.change,
            error,
            partition_epoch=-1 if state is None else state.partition_epoch,
            isr=() if state is None else state.isr,
            elr=() if state is None else sorted(state.elr),
            now_ms=cluster.now_ms,
        )
        if outcome is IsrOutcome.RESEND:
            cluster.network.append(ChangeMessage(self.sender, self.change))


Message = Request | Response | ChangeMessage


@dataclass
class Write:
    leader: Broker
    leader_epoch: int
    last_offset: int
    value: bytes


@dataclass
class Cluster:
    min_isr: int = 2
    fetch_bytes: int = 1 << 20
    kinds: Kinds = field(default_factory=Kinds)

    def __post_init__(self) -> None:
        self.now_ms = 0
        self.config = LogConfig(min_insync_replicas=self.min_isr)
        self.controller = Controller(self.min_isr)
        self.network: list[Message] = []
        self.facts: list[tuple[int, Fact]] = []
        self.disks = {broker: FakeDisk() for broker in BROKERS}
        self.brokers: dict[int, Broker] = {}
        self.unwell: set[int] = set()
        self.writes: list[Write] = []
        self.numbers = itertools.count()
        for broker in BROKERS:
            self.brokers[broker] = Broker(self, broker, self.disks[broker], 0)
        for broker in self.brokers.values():
            broker.learn(0)

    # What tests do.

    def append(self, broker_id: int) -> bool:
        """A client writes to whoever it takes for the leader; whether that took it."""
        broker = self.brokers[broker_id]
        values = [b"%d" % next(self.numbers) for _ in range(1 + next(self.numbers) % 2)]
        batch = memoryview(bytearray(build_batch([Record(timestamp=NOW, value=value) for value in values])))
        try:
            info = broker.partition.append(batch, acks=ACKS_ALL, wall_ms=NOW)
        except KafkaError:
            return False
        broker.log.write_pending(now_wall_ms=NOW)
        broker.partition.written(self.now_ms)
        self.writes.append(Write(broker, broker.partition.leader_epoch, info.last_offset, values[-1]))
        return True

    def deliver(self, message: Message) -> None:
        self.network.remove(message)
        message.deliver(self)

    def lose(self, message: Message) -> None:
        self.network.remove(message)
        message.lose(self)

    def learn(self, broker_id: int) -> bool:
        """The broker learns the next committed state; whether there was one."""
        broker = self.brokers[broker_id]
        if broker.learnt + 1 >= len(self.controller.history):
            return False
        broker.learn(broker.learnt + 1)
        return True

    def kill(self, broker_id: int) -> None:
        """The process ends at once; what it has written is in the page cache."""
        del self.brokers[broker_id]
        self.disks[broker_id].locked.clear()

    def cut_power(self, broker_id: int, seed: int) -> None:
        """Seed 0 loses all that was not synced, others a part of it."""
        del self.brokers[broker_id]
        lose_power(self.disks[broker_id], seed)
        self.unwell.add(broker_id)

    def restart(self, broker_id: int) -> None:
        epoch = self.controller.register(broker_id, was_clean=broker_id not in self.unwell)
        self.unwell.discard(broker_id)
        self.brokers[broker_id] = broker = Broker(self, broker_id, self.disks[broker_id], epoch)
        # It takes part when its metadata has reached its own registration.
        broker.learn(len(self.controller.history) - 1)

    def run(self, *brokers: int, rounds: int = 12) -> None:
        """Let these brokers, or all, fetch and hear everything, without loss; ISR changes travel too."""
        for _ in range(rounds):
            for broker_id in brokers or tuple(self.brokers):
                while self.learn(broker_id):
                    pass
                self.brokers[broker_id].ask()
            while self.network:
                self.deliver(self.network[0])
            self.now_ms += 30

    def records(self, broker_id: int) -> bytes:
        return log_bytes(self.brokers[broker_id])


def lose_power(disk: FakeDisk, seed: int) -> None:
    """What is on the disk then is all there is, and is durable."""
    disk._lose(random.Random(seed) if seed else None)
    for inode in disk._inodes.values():
        inode.synced = bytes(inode.content)
    disk._durable_names = {directory: dict(names) for directory, names in disk._names.items()}
    disk.journal.clear()
    disk.locked.clear()


def log_bytes(broker: Broker, upper_bound: int | None = None) -> bytes:
    log = broker.log
    bound = log.log_end_offset if upper_bound is None else upper_bound
    found, at = b"", log.log_start_offset
    try:
        while (result := log.read(at, 1 << 24, upper_bound=bound, wait=True)).records:
            found += bytes(result.records)
            at = result.end_offset
    except CorruptMessage as error:
        raise Violation(f"I-7: {error}") from error
    return found


Batch = tuple[int, int, bytes]


def batches_of(broker: Broker) -> list[Batch]:
    """(base offset, leader epoch, bytes) of each."""
    content = memoryview(log_bytes(broker))
    return [
        (header.base_offset, header.partition_leader_epoch, bytes(content[at : at + header.size_bytes]))
        for at, header in iterate_batches(content)
    ]


# What must hold.


class Oracle:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        # Everything that was below the high watermark of a leader, ever.
        self.committed: list[Batch] = []
        self.acknowledged: list[bytes] = []
        self._leaders: dict[int, int] = {}
        self._high_watermarks: dict[tuple[int, int, int], int] = {}

    @property
    def committed_end(self) -> int:
        return self._end_of(self.committed)

    def _end_of(self, batches: list[Batch]) -> int:
        if not batches:
            return 0
        return max(header.next_offset for _, header in iterate_batches(memoryview(batches[-1][2])))

    def check(self) -> None:
        """After every step: I-1, I-4, I-5, I-6, and no truncation below the high watermark."""
        for broker in self.cluster.brokers.values():
            partition, log = broker.partition, broker.log
            require(
                log.log_start_offset <= partition.high_watermark <= log.log_end_offset,
                f"I-6 {partition}: {log.log_start_offset} {partition.high_watermark} {log.log_end_offset}",
            )
            if partition.is_leader:
                leader = self._leaders.setdefault(partition.leader_epoch, broker.id)
                require(leader == broker.id, f"I-1: {leader} and {broker.id} lead in epoch {partition.leader_epoch}")
                term = (broker.id, broker.epoch, partition.leader_epoch)
                require(self._high_watermarks.get(term, 0) <= partition.high_watermark, "I-5: the high watermark fell")
                self._high_watermarks[term] = partition.high_watermark
                if partition.high_watermark > self.committed_end:
                    self._commit(broker)
        while self.cluster.facts:
            broker_id, fact = self.cluster.facts.pop(0)
            require(
                not isinstance(fact, Truncated) or not fact.lost_committed,
                f"I-5: broker {broker_id} truncated below its high watermark",
            )
        self._acknowledge()

    def _commit(self, leader: Broker) -> None:
        below = [batch for batch in batches_of(leader) if batch[0] < leader.partition.high_watermark]
        require(below[: len(self.committed)] == self.committed, f"I-3: leader {leader.id} has other committed records")
        self.committed = below
        self.check_isr()

    def check_isr(self) -> None:
        """I-3: what is committed is on every member of the committed ISR."""
        for broker_id in self.cluster.controller.state.isr:
            broker = self.cluster.brokers.get(broker_id)
            if broker is not None:
                has = batches_of(broker)[: len(self.committed)]
                require(has == self.committed, f"I-3: committed records are not on broker {broker_id} of the ISR")

    def _acknowledge(self) -> None:
        waiting: list[Write] = []
        for write in self.cluster.writes:
            if self.cluster.brokers.get(write.leader.id) is not write.leader:
                continue
            code = write.leader.partition.acknowledgement(write.last_offset, write.leader_epoch)
            if code is None:
                waiting.append(write)
            elif code is ErrorCode.NONE:
                require(write.last_offset < write.leader.partition.high_watermark, "I-4: acknowledged above the HW")
                self.acknowledged.append(write.value)
        self.cluster.writes = waiting

    def check_logs(self) -> None:
        """I-2, I-3, I-7, I-9: contents of all logs that are open."""
        logs = {broker.id: batches_of(broker) for broker in self.cluster.brokers.values()}
        for broker_id, batches in logs.items():
            broker = self.cluster.brokers[broker_id]
            entries = broker.log.epochs.entries
            require(
                all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in itertools.pairwise(entries)),
                f"I-7: {entries}",
            )
            expected = 0
            for base, epoch, content in batches:
                require(base == expected, f"I-9: broker {broker_id} has {base} where {expected} was due")
                require(broker.log.epochs.epoch_at(base) == epoch, f"I-7: epoch {epoch} at {base}, {entries}")
                expected = base + 1 + int.from_bytes(content[23:27])
        for a, b in itertools.combinations(logs.values(), 2):
            self._check_matching(a, b)
        self.check_isr()

    def _check_matching(self, a: list[Batch], b: list[Batch]) -> None:
        """I-2: beyond the first difference, no two batches have both offset and epoch in common."""
        same = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        common = {batch[:2] for batch in a[same:]} & {batch[:2] for batch in b[same:]}
        require(not common, f"I-2: different logs share {sorted(common)}")

    def check_healed(self) -> None:
        """R12: all logs are the same, and nothing that was acknowledged is missing."""
        first, *others = self.cluster.brokers.values()
        end = first.partition.high_watermark
        for broker in (first, *others):
            require(
                (broker.partition.high_watermark, broker.log.log_end_offset) == (end, end),
                f"R06: {broker.id} has HW {broker.partition.high_watermark} of {broker.log.log_end_offset}, not {end}",
            )
            require(log_bytes(broker) == log_bytes(first), f"R12: {broker.id} and {first.id} differ")
        content = b"".join(batch[2] for batch in batches_of(first))
        for value in self.acknowledged:
            require(value in content, f"I-4: {value!r} was acknowledged and is gone")
