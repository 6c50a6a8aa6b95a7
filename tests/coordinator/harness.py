"""A shell for one partition's groups: virtual time, timers, a log whose answers can be held back or made to fail.

`Shell` performs effects as a broker would. `Client` is one consumer that remembers its member id and generation.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from ottla.coordinator.classic.causes import TimerKey
from ottla.coordinator.events import (
    CommitOffsets,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OffsetToCommit,
    SyncGroup,
)
from ottla.coordinator.facts import Fact, GenerationStarted, MemberRemoved, RebalanceStarted, StateChanged
from ottla.coordinator.group_context import GroupConfig
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.runtime.effects import (
    Append,
    AppendCompleted,
    AppendFailed,
    CancelTimer,
    Effect,
    Observed,
    ProducerIdAndEpoch,
    Reply,
    SetTimer,
    TimerFired,
    TransactionCompleted,
)
from ottla.coordinator.runtime.partition import CoordinatorPartition, Phase
from ottla.coordinator.runtime.step_context import MEMBERS_PER_SLICE
from ottla.protocol.errors import ErrorCode

IN_DOUBT = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
WALL_START_MS = 1_700_000_000_000
NO_DELAY = GroupConfig(group_initial_rebalance_delay_ms=0)
CONSUMER = "consumer"


@dataclass
class Batch:
    base_offset: int
    records: tuple
    committed: bool = False
    producer_id: int | None = None
    """Of a transactional batch."""
    marker: bool | None = None
    """Whether the marker commits; None for records."""

    def replay_into(self, partition: CoordinatorPartition[GroupShard]) -> None:
        if self.marker is not None:
            assert self.producer_id is not None
            for _ in partition.replay_marker(self.producer_id, commit=self.marker):
                pass
        for offset, record in enumerate(self.records, self.base_offset):
            partition.replay(record.key, record.value, offset, self.producer_id)


class Shell:
    def __init__(self, config: GroupConfig = NO_DELAY, *, members_per_slice: int = MEMBERS_PER_SLICE) -> None:
        self.config = config
        self.members_per_slice = members_per_slice
        self.now_ms = 0
        self.last_token = 0
        self.ids = 0
        self.log: list[Batch] = []
        self.next_offset = 0
        self.answers: dict[int, Any] = {}
        self.facts: list[tuple[int, Fact]] = []
        self.effects: list[Effect] = []
        self.slices: list[list[Effect]] = []
        """The effects of each slice of every step."""
        self.hold_appends = False
        self.fail_appends: ErrorCode | None = None
        self.restart_partition()

    # The partition's life

    def restart_partition(self) -> None:
        """Take the partition on from what the log has committed, as after a crash."""
        self.timers: dict[TimerKey, tuple[int, int]] = {}
        self.armed = 0
        self.held: dict[int, Batch] = {}
        self.queue: deque[Any] = deque()
        self.partition = self.empty_partition()
        self.load_into(self.partition)
        self.finish_loading()

    def finish_loading(self) -> None:
        while self.partition.phase is Phase.LOADING:
            self.perform(self.partition.finish_loading(self.now_ms, self.wall_ms))

    def empty_partition(self) -> CoordinatorPartition[GroupShard]:
        shard = GroupShard(self.config, self.new_member_id)
        shard.context.members_per_slice = self.members_per_slice
        return CoordinatorPartition(shard)

    def load_into(self, partition: CoordinatorPartition[GroupShard]) -> None:
        for batch in self.log:
            if batch.committed:
                batch.replay_into(partition)

    def unload(self) -> None:
        self.perform(self.partition.unload(self.now_ms, self.wall_ms))

    def move_coordinator(self) -> None:
        """Leadership is lost and won: what was appended but not yet committed becomes committed on the way."""
        self.unload()
        for batch in self.held.values():
            batch.committed = True
        self.restart_partition()

    def new_member_id(self, prefix: str) -> str:
        self.ids += 1
        return f"{prefix}-{self.ids:04}"

    # Time and events

    @property
    def wall_ms(self) -> int:
        return WALL_START_MS + self.now_ms

    def token(self) -> int:
        self.last_token += 1
        return self.last_token

    def send(self, event: Any) -> Any:
        """Hand in a request; gives its answer if there is one by then, else None."""
        self.happen(event)
        return self.answers.get(getattr(event, "token", -1))

    def happen(self, event: Any) -> list[Effect]:
        first = len(self.effects)
        self.queue.appendleft(event)
        while self.queue:
            self.perform(self.partition.step(self.queue.popleft(), self.now_ms, self.wall_ms))
            while self.partition.rest:
                self.perform(self.partition.go_on())
        return self.effects[first:]

    def advance(self, duration_ms: int) -> None:
        """Let time pass; timers fire at their deadline, in order of deadline, then of being set."""
        end_ms = self.now_ms + duration_ms
        while self.timers:
            key, (deadline_ms, _) = min(self.timers.items(), key=lambda item: item[1])
            if deadline_ms > end_ms:
                break
            del self.timers[key]
            self.now_ms = max(self.now_ms, deadline_ms)
            self.happen(TimerFired(key))
        self.now_ms = end_ms

    # Effects

    def perform(self, effects: list[Effect]) -> None:
        self.effects += effects
        self.slices.append(effects)
        for effect in effects:
            match effect:
                case Reply(token, result):
                    assert token not in self.answers, f"token {token} answered twice: {self.answers[token]}, {result}"
                    self.answers[token] = result
                case SetTimer(key, deadline_ms):
                    self.armed += 1
                    self.timers[key] = (deadline_ms, self.armed)
                case CancelTimer(key):
                    self.timers.pop(key, None)
                case Append():
                    self._append(effect)
                case Observed(fact):
                    self.facts.append((self.now_ms, fact))

    def _append(self, effect: Append) -> None:
        if self.fail_appends is not None and self.fail_appends not in IN_DOUBT:
            self.queue.append(AppendFailed(effect.append_id, self.fail_appends))
            return
        producer_id = None if effect.producer is None else effect.producer.producer_id
        batch = Batch(self.next_offset, effect.records, producer_id=producer_id)
        self.next_offset += len(effect.records)
        self.log.append(batch)
        self.held[effect.append_id] = batch
        if self.fail_appends is not None:
            self.queue.append(AppendFailed(effect.append_id, self.fail_appends))
        elif not self.hold_appends:
            self.queue.append(self._completion(effect.append_id))

    def write_marker(self, producer_id: int, *, commit: bool) -> None:
        """The transaction coordinator ends the producer's transaction. Held markers have ids below 0."""
        batch = Batch(self.next_offset, (), producer_id=producer_id, marker=commit)
        self.next_offset += 1
        self.log.append(batch)
        self.held[-self.next_offset] = batch
        if not self.hold_appends:
            self.complete_append(-self.next_offset)

    def _completion(self, append_id: int) -> AppendCompleted | TransactionCompleted:
        batch = self.held.pop(append_id)
        batch.committed = True
        if batch.marker is None:
            return AppendCompleted(append_id, batch.base_offset)
        assert batch.producer_id is not None
        return TransactionCompleted(batch.producer_id, batch.marker)

    def complete_append(self, append_id: int | None = None) -> None:
        """The high watermark passes a held append, the oldest unless one is named."""
        self.happen(self._completion(next(iter(self.held)) if append_id is None else append_id))

    def fail_append(self, error: ErrorCode, append_id: int | None = None) -> None:
        append_id = next(iter(self.held)) if append_id is None else append_id
        if error not in IN_DOUBT:
            self.log.remove(self.held.pop(append_id))
        self.happen(AppendFailed(append_id, error))

    # Looking

    def group(self, group_id: str = "g") -> Any:
        return self.partition.shard.groups.get(group_id)

    def state(self, group_id: str = "g") -> str:
        return self.send(DescribeGroup(self.token(), group_id)).state

    def facts_of(self, kind: type) -> list[Any]:
        return [fact for _, fact in self.facts if isinstance(fact, kind)]

    def states(self, group_id: str = "g") -> list[str]:
        """Every state of the group, in order."""
        changes = [fact for fact in self.facts_of(StateChanged) if fact.group_id == group_id]
        return [changes[0].from_state.value, *(change.to_state.value for change in changes)] if changes else []

    def appended_for(self, key: bytes, *, committed: bool = False) -> list[bytes | None]:
        """The values of a key in the log, or only those below the high watermark."""
        batches = [batch for batch in self.log if batch.committed or not committed]
        return [record.value for batch in batches for record in batch.records if record.key == key]

    def fetch(self, topic: str = "t", partition: int = 0, *, group_id: str = "g", require_stable: bool = False) -> Any:
        result = self.send(FetchOffsets(self.token(), group_id, ((topic, (partition,)),), require_stable))
        return result.partitions[0] if result.partitions else result

    def committed(self, topic: str = "t", partition: int = 0, group_id: str = "g") -> int:
        return self.fetch(topic, partition, group_id=group_id).offset

    def commit(self, offset: int, **changes: Any) -> Any:
        """A commit of a simple consumer for t-0."""
        return self.send(simple_commit(self.token(), offset, **changes))

    def commit_in_transaction(self, offset: int, producer_id: int = 7, **changes: Any) -> Any:
        """As `commit`, in the transaction of a producer."""
        return self.commit(offset, producer=ProducerIdAndEpoch(producer_id, 0), **changes)

    def client(self, name: str, **settings: Any) -> "Client":
        return Client(self, name, **settings)

    def stable_group(self, *names: str, **settings: Any) -> list["Client"]:
        """Clients of one Stable generation; the first leads, and every one is assigned its own name."""
        clients = [self.client(name, **settings) for name in names]
        for client in clients:
            client.join()
        self.advance(self.config.group_initial_rebalance_delay_ms)
        for client in clients[1:]:
            client.sync()
        clients[0].sync_all(clients)
        assert self.state(clients[0].group_id) == "Stable"
        self.facts.clear()
        return clients


def simple_commit(token: int, offset: int, **changes: Any) -> CommitOffsets:
    settings: dict[str, Any] = {
        "group_id": "g",
        "member_id": "",
        "group_instance_id": None,
        "generation": -1,
        "offsets": (OffsetToCommit("t", 0, offset),),
    }
    return CommitOffsets(token=token, **(settings | changes))


def subscription(*topics: str) -> bytes:
    """Version 0 of the consumer protocol's subscription, made by hand."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


def short_subscription(*topics: str) -> bytes:
    """It says version 1 and has no `owned_partitions`, as kafkajs writes it."""
    return b"\0\1" + subscription(*topics)[2:]


@dataclass
class Client:
    shell: Shell
    name: str
    group_id: str = "g"
    instance_id: str | None = None
    session_timeout_ms: int = 10_000
    rebalance_timeout_ms: int = 60_000
    protocols: tuple = (("range", subscription("t")),)
    protocol_type: str = CONSUMER
    knows_member_ids: bool = False
    """Joins as version 4 and later do: by asking for an id first."""
    skips_assignment: bool = False
    member_id: str = ""
    generation: int = -1
    join_tokens: list[int] = field(default_factory=list)
    sync_tokens: list[int] = field(default_factory=list)

    def join(self, **changes: Any) -> Any:
        """Join, with the id that is asked for if one is; gives the answer or None while it is parked."""
        result = self._join(changes)
        if result is not None and result.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = result.member_id
            result = self._join(changes)
        return result

    def _join(self, changes: dict[str, Any]) -> Any:
        token = self.shell.token()
        self.join_tokens.append(token)
        return self.shell.send(self.join_event(token, **changes))

    def join_event(self, token: int, **changes: Any) -> JoinGroup:
        settings: dict[str, Any] = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "client_id": self.name,
            "client_host": f"/{self.name}.example",
            "session_timeout_ms": self.session_timeout_ms,
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "protocol_type": self.protocol_type,
            "protocols": self.protocols,
            "require_known_member_id": self.knows_member_ids,
            "supports_skip_assignment": self.skips_assignment,
        }
        return JoinGroup(token=token, **(settings | changes))

    @property
    def joined(self) -> Any:
        """The answer to the latest join, which the client learns its id and generation from; None while parked."""
        result = self.shell.answers.get(self.join_tokens[-1])
        if result is not None and result.error is ErrorCode.NONE:
            self.member_id, self.generation = result.member_id, result.generation
        return result

    def sync(self, assignments: dict[str, bytes] | None = None, **changes: Any) -> Any:
        assert not self.join_tokens or self.joined is not None or changes, f"{self.name} syncs before it has joined"
        token = self.shell.token()
        self.sync_tokens.append(token)
        return self.shell.send(self.sync_event(token, assignments, **changes))

    def sync_event(self, token: int, assignments: dict[str, bytes] | None = None, **changes: Any) -> SyncGroup:
        settings: dict[str, Any] = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "generation": self.generation,
            "assignments": tuple((assignments or {}).items()),
        }
        return SyncGroup(token=token, **(settings | changes))

    def sync_all(self, clients: list["Client"]) -> Any:
        """Sync as the leader: every client is assigned its name."""
        assert all(client.joined is not None for client in clients)
        return self.sync({client.member_id: client.name.encode() for client in clients})

    @property
    def synced(self) -> Any:
        """The answer to the latest sync; None while it is parked."""
        return self.shell.answers.get(self.sync_tokens[-1])

    def heartbeat(self, **changes: Any) -> ErrorCode:
        settings: dict[str, Any] = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "generation": self.generation,
        }
        return self.shell.send(Heartbeat(token=self.shell.token(), **(settings | changes))).error

    def commit(self, offset: int, topic: str = "t", partition: int = 0, **changes: Any) -> Any:
        """The error of one partition's commit; None while the append is under way."""
        settings: dict[str, Any] = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "generation": self.generation,
            "offsets": (OffsetToCommit(topic, partition, offset),),
        }
        result = self.shell.send(CommitOffsets(token=self.shell.token(), **(settings | changes)))
        return None if result is None else result.partitions[0].error

    def leave(self, *, reason: str | None = None) -> ErrorCode:
        leaving = LeavingMember(self.member_id, self.instance_id, reason)
        return self.shell.send(LeaveGroup(self.shell.token(), self.group_id, (leaving,))).members[0].error


def timeline(facts: list[tuple[int, Fact]]) -> str:
    """What happened to a group, one line per fact that a reader asks about, with the time in seconds."""
    lines = []
    for now_ms, fact in facts:
        match fact:
            case StateChanged():
                text = f"{fact.from_state.value:>20} -> {fact.to_state.value:<20} {fact.reason}"
            case RebalanceStarted():
                text = f"rebalance: {fact.cause} ({fact.member_id}), {fact.members} members"
            case GenerationStarted():
                members = ", ".join(fact.member_ids)
                text = f"generation {fact.generation}, leader {fact.leader_id}: {members}"
            case MemberRemoved():
                text = f"member {fact.member_id} removed: {fact.cause}"
            case _:
                continue
        lines.append(f"{now_ms / 1000:9.3f}  {text}")
    return "\n".join(lines)
