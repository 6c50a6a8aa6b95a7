"""A shell for one partition's transactional ids: virtual time, a log whose answers can be held back or made to fail.

`Producer` is one client that remembers its producer id and epoch.
"""

from collections import deque
from dataclasses import dataclass
from itertools import count
from typing import Any

from ottla.coordinator.runtime.appends import IN_DOUBT
from ottla.coordinator.runtime.effects import (
    Append,
    AppendCompleted,
    AppendFailed,
    CancelTimer,
    Dispatch,
    Effect,
    Observed,
    Reply,
    SetTimer,
    TimerFired,
)
from ottla.coordinator.runtime.partition import CoordinatorPartition, Phase
from ottla.coordinator.runtime.step_context import NO_BOUND
from ottla.coordinator.transactions.context import TransactionConfig
from ottla.coordinator.transactions.entry import TransactionMetadata, TransactionState
from ottla.coordinator.transactions.events import (
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    InitializeProducer,
    MarkersWritten,
    ProducerResult,
    VerifyPartitions,
    WriteMarkers,
)
from ottla.coordinator.transactions.records import build_transaction_key, parse_transaction_value
from ottla.coordinator.transactions.shard import TransactionShard
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.record import Record, build_batch

WALL_START_MS = 1_700_000_000_000
FIRST_PRODUCER_ID = 1000


def batch_bytes(records: tuple) -> int:
    return len(build_batch([Record(key=key, value=value) for key, value in records]))


@dataclass
class LoggedBatch:
    base_offset: int
    records: tuple
    committed: bool = False


class TransactionLog:
    """The partition, its log, and what it has asked for."""

    def __init__(self, *, level: int = 2, **config: Any) -> None:
        self.config = TransactionConfig(**config)
        self.level = level
        """The cluster's `transaction.version`."""
        self.now_ms = self.clock_is_ahead_ms = 0
        self.tokens = count(1)
        self.producer_ids = count(FIRST_PRODUCER_ID)
        self.has_producer_ids = True
        self.log: list[LoggedBatch] = []
        self.next_offset = 0
        self.answers: dict[int, Any] = {}
        self.facts: list[Any] = []
        self.markers: list[WriteMarkers] = []
        """Of the running coordinator, oldest first."""
        self.hold_appends = False
        self.fail_appends: ErrorCode | None = None
        self.batch_bytes_max = NO_BOUND
        self.elect()

    # The partition's life

    def elect(self) -> None:
        """A new leader takes the partition on from all that is in the log, as after a crash."""
        self.held: dict[int, LoggedBatch] = {}
        self.timers: dict[Any, int] = {}
        self.queue: deque[Any] = deque()
        self.markers.clear()
        self.partition = self.loading_partition()
        while self.partition.phase is Phase.LOADING:
            self.perform(self.partition.finish_loading(self.now_ms, self.wall_ms))
        self.drain()

    def loading_partition(self) -> CoordinatorPartition[TransactionShard]:
        shard = TransactionShard(self.config, self.take_producer_id, lambda: self.level)
        partition = CoordinatorPartition(shard, batch_bytes_max=lambda: self.batch_bytes_max)
        for batch in self.log:
            batch.committed = True
            for offset, record in enumerate(batch.records, batch.base_offset):
                partition.replay(record.key, record.value, offset)
        return partition

    def resign(self) -> None:
        self.perform(self.partition.unload(self.now_ms, self.wall_ms))

    def take_producer_id(self) -> int | None:
        return next(self.producer_ids) if self.has_producer_ids else None

    # Time and events

    @property
    def wall_ms(self) -> int:
        return WALL_START_MS + self.now_ms + self.clock_is_ahead_ms

    def send(self, event: Any) -> Any:
        """Hand in an event; gives the answer to a request if there is one by then, else None."""
        self.queue.append(event)
        self.drain()
        return self.answers.get(getattr(event, "token", -1))

    def drain(self) -> None:
        self._finish_step()
        while self.queue:
            self.perform(self.partition.step(self.queue.popleft(), self.now_ms, self.wall_ms))
            self._finish_step()

    def _finish_step(self) -> None:
        while self.partition.rest:
            self.perform(self.partition.go_on())

    def advance(self, duration_ms: int) -> None:
        """Let time pass, and fire the timers that are due at the end of it."""
        self.now_ms += duration_ms
        for key, deadline_ms in list(self.timers.items()):
            if deadline_ms <= self.now_ms:
                del self.timers[key]
                self.send(TimerFired(key))

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply(token, result):
                    assert token not in self.answers, f"token {token} answered twice"
                    self.answers[token] = result
                case SetTimer(key, deadline_ms):
                    self.timers[key] = deadline_ms
                case CancelTimer(key):
                    self.timers.pop(key, None)
                case Append():
                    self._append(effect)
                case Observed(fact):
                    self.facts.append(fact)
                case Dispatch(command):
                    self.markers.append(command)

    def _append(self, effect: Append) -> None:
        if self.fail_appends is not None and self.fail_appends not in IN_DOUBT:
            self.queue.append(AppendFailed(effect.append_id, self.fail_appends))
            return
        if not effect.ends_transaction and batch_bytes(effect.records) > self.batch_bytes_max:
            self.queue.append(AppendFailed(effect.append_id, ErrorCode.MESSAGE_TOO_LARGE))
            return
        batch = self.add_to_log(effect.records)
        self.held[effect.append_id] = batch
        if self.fail_appends is not None:
            self.queue.append(AppendFailed(effect.append_id, self.fail_appends))
        elif not self.hold_appends:
            self.queue.append(self._completion(effect.append_id))

    def add_to_log(self, records: tuple) -> LoggedBatch:
        batch = LoggedBatch(self.next_offset, records)
        self.next_offset += len(records)
        self.log.append(batch)
        return batch

    def _completion(self, append_id: int) -> AppendCompleted:
        batch = self.held.pop(append_id)
        batch.committed = True
        return AppendCompleted(append_id, batch.base_offset)

    def complete_append(self) -> None:
        """The high watermark passes the oldest append that is held."""
        self.send(self._completion(min(self.held)))

    def acknowledge_markers(self) -> None:
        """All leaders have written the markers that were asked for."""
        while self.markers:
            asked = self.markers.pop(0)
            self.send(MarkersWritten(asked.transactional_id, asked.number, frozenset(asked.partitions)))

    # Looking

    def metadata(self, transactional_id: str = "tx") -> TransactionMetadata:
        return self.partition.shard.entries[transactional_id].metadata

    def state(self, transactional_id: str = "tx") -> TransactionState:
        return self.metadata(transactional_id).state

    def history(self, transactional_id: str = "tx") -> list[TransactionState]:
        """The states in the log, in order."""
        key = build_transaction_key(transactional_id)
        records = [record for batch in self.log for record in batch.records if record.key == key]
        return [
            TransactionState.DEAD if record.value is None else parse_transaction_value(record.value).state
            for record in records
        ]

    def describe(self, transactional_id: str = "tx") -> Any:
        return self.send(DescribeTransaction(next(self.tokens), transactional_id))


class Producer:
    def __init__(self, log: TransactionLog, transactional_id: str = "tx", *, raises_epoch: bool = False) -> None:
        self.log = log
        self.transactional_id = transactional_id
        self.raises_epoch = raises_epoch
        """Uses EndTxn 5 and later."""
        self.producer_id = self.producer_epoch = -1

    @property
    def pair(self) -> tuple[int, int]:
        return self.producer_id, self.producer_epoch

    def initialize(self, *, timeout_ms: int = 60_000, with_pair: bool = False) -> ErrorCode | None:
        """None: the answer waits for the log. The first time a producer has no pair to give."""
        pair = self.pair if with_pair else (-1, -1)
        request = InitializeProducer(next(self.log.tokens), self.transactional_id, timeout_ms, *pair)
        return self._take(self.log.send(request))

    def add(self, *partitions: int, topic: str = "t") -> ErrorCode | None:
        participants = frozenset((topic, partition) for partition in partitions)
        version = 2 if self.raises_epoch else 0
        return self.log.send(
            AddPartitions(next(self.log.tokens), self.transactional_id, *self.pair, participants, version)
        )

    def missing(self, *partitions: int) -> Any:
        participants = frozenset(("t", partition) for partition in partitions)
        return self.log.send(VerifyPartitions(next(self.log.tokens), self.transactional_id, *self.pair, participants))

    def end(self, *, commit: bool) -> ErrorCode | None:
        request = EndTransaction(next(self.log.tokens), self.transactional_id, *self.pair, commit, self.raises_epoch)
        return self._take(self.log.send(request))

    def commit(self) -> ErrorCode | None:
        return self.end(commit=True)

    def abort(self) -> ErrorCode | None:
        return self.end(commit=False)

    def _take(self, result: ProducerResult | None) -> ErrorCode | None:
        if result is None:
            return None
        if result.producer_id >= 0:
            self.producer_id, self.producer_epoch = result.producer_id, result.producer_epoch
        return result.error
