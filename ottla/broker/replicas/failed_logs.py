"""Replicas of this broker whose log could not be created: their disk is full, or fails.

What was committed stays, for other brokers may have acknowledged records in it by now. Such a replica is offline: its
clients get KAFKA_STORAGE_ERROR, it leaves the ISR, and as a leader hands over, if another replica can take its place.
Its log is tried again and again until the disk works; then it is a replica like any other.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from ottla.broker.runtime import Runtime, next_step
from ottla.cluster.alterations import leave
from ottla.cluster.controller import CHANGES_PER_TRANSACTION, PartitionChange, TopicRules, transaction_of_leaders
from ottla.cluster.image import MetadataImage, TopicInfo
from ottla.cluster.store import CommitResult, Transaction
from ottla.protocol.errors import KafkaError
from ottla.timer.wheel import TimerEntry

RETRY_MS = 2000


class Metadata(Protocol):
    @property
    def image(self) -> MetadataImage: ...

    @property
    def broker_epoch(self) -> int:
        """Of this broker's registration, -1 before."""
        ...

    def rules_of(self, topic: TopicInfo) -> TopicRules: ...

    def commit(self, transaction: Transaction) -> Awaitable[CommitResult]:
        """One transaction to the store."""
        ...

    def applied(self, revision: int) -> Awaitable[None]:
        """Until the image has come to `revision`."""
        ...


class Replica(NamedTuple):
    topic_id: bytes
    partition: int


class _Failure(NamedTuple):
    error: KafkaError
    has_log: bool


class FailedLogs:
    def __init__(self, runtime: Runtime, metadata: Metadata, retry: Callable[[Sequence[Replica]], None]) -> None:
        """`retry` tries replicas again, and reports each by `add` or `discard`."""
        self._runtime = runtime
        self._metadata = metadata
        self._retry = retry
        self._failures: dict[bytes, dict[int, _Failure]] = {}
        self._leaving: dict[Replica, None] = {}
        self._timer: TimerEntry | None = None

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def add(self, topic: TopicInfo, index: int, error: KafkaError, *, has_log: bool) -> None:
        """The log could not be created or, if it `has_log`, not take the replica's state."""
        failures = self._failures.setdefault(topic.topic_id, {})
        if not failures:
            # The others of this topic are likely to fail for the same reason.
            self._runtime.log.storage.error(
                "a replica is offline, its log could not be created",
                topic=topic.name,
                partition=index,
                why=str(error),
                next_try_ms=RETRY_MS,
            )
        failures[index] = _Failure(error, has_log)
        if self._timer is None:
            self._timer = self._runtime.schedule(RETRY_MS, self._try_again)
        if not self._leaving:
            self._runtime.spawn(self._leave_isr(), "failed logs leave the ISR")
        self._leaving[Replica(topic.topic_id, index)] = None

    def discard(self, topic_id: bytes, index: int) -> None:
        """The replica has its log now, or is none of this broker any more."""
        failures = self._failures.get(topic_id)
        if failures is None or failures.pop(index, None) is None or failures:
            return
        del self._failures[topic_id]
        topic = self._metadata.image.topic_by_id(topic_id)
        if topic is not None:
            self._runtime.log.storage.info("no replica of a topic is offline any more", topic=topic.name)

    def forget_topic(self, topic_id: bytes) -> None:
        self._failures.pop(topic_id, None)

    def error_of(self, topic: str, index: int) -> KafkaError | None:
        """Why this broker has no log of a replica that it should have."""
        info = self._metadata.image.topic(topic)
        failure = None if info is None else self._failures.get(info.topic_id, {}).get(index)
        return None if failure is None else failure.error

    def has(self, topic_id: bytes, index: int) -> bool:
        return index in self._failures.get(topic_id, ())

    def _try_again(self) -> None:
        self._timer = None
        self._retry([Replica(topic_id, index) for topic_id, each in self._failures.items() for index in each])

    # Out of the ISR.

    async def _leave_isr(self) -> None:
        """What the store refuses now is decided again when the log has failed again."""
        while self._leaving:
            some = list(islice(self._leaving, CHANGES_PER_TRANSACTION))
            for replica in some:
                del self._leaving[replica]
            changes = list(self._changes(some)) if self._runtime.is_serving else []
            if changes:
                await self._metadata.commit(transaction_of_leaders(changes, self._metadata.image))
            await next_step()

    def _changes(self, replicas: Sequence[Replica]) -> Iterator[PartitionChange]:
        metadata = self._metadata
        for replica in replicas:
            failure = self._failures.get(replica.topic_id, {}).get(replica.partition)
            topic = metadata.image.topic_by_id(replica.topic_id)
            if failure is None or topic is None or replica.partition >= len(topic.partitions):
                continue
            change = leave(
                metadata.image,
                topic.name,
                replica.partition,
                self._runtime.node_id,
                metadata.rules_of,
                # Without a log it has nothing of what others have acknowledged by now.
                has_lost=not failure.has_log,
            )
            if change is not None:
                yield change
