"""Markers of transactions for partitions that this broker leads: checked, appended, waited for (§39).

A marker counts when the high watermark has passed it; only then may its coordinator forget the partition.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.runtime import Runtime, complete, next_step
from ottla.protocol.errors import ErrorCode, KafkaError, UnknownTopicOrPartition
from ottla.protocol.records.control import TransactionMarker, build_marker
from ottla.storage.log import AppendInfo, Origin

APPENDS_PER_STEP = 100
"""Some 5 ms of the loop."""

OnMarker = Callable[[str, int, int, int, bool], None]
"""(topic, partition, producer id, producer epoch, whether it commits) of each marker that counts from now on, in the
order of the log."""


class MarkerAppend(NamedTuple):
    """A marker, and the partition that it is for."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    marker: TransactionMarker
    transaction_version: int


class TransactionMarkers:
    def __init__(
        self, runtime: Runtime, replicas: ReplicaManager, on_marker: OnMarker, report: Callable[[Any], None]
    ) -> None:
        """`report` takes a `Fact` to the log and to the events."""
        self._runtime = runtime
        self._replicas = replicas
        self._on_marker = on_marker
        self.report = report

    async def append_all(self, appends: Sequence[MarkerAppend]) -> list[ErrorCode]:
        """The outcome of each, when all are known or the time is over."""
        known: asyncio.Future[list[ErrorCode]] = asyncio.get_running_loop().create_future()
        outcomes = _Outcomes(self._runtime, len(appends), partial(complete, known))
        for n, append in enumerate(appends):
            if n and n % APPENDS_PER_STEP == 0:
                await next_step()
            self._try_to_append(append, partial(outcomes.note, n))
        return await known

    def append_some(self, appends: Sequence[MarkerAppend], done: Callable[[list[ErrorCode]], None]) -> None:
        """As `append_all` in one step, for a part of this broker: APPENDS_PER_STEP at most. `done` is called once,
        perhaps before this returns."""
        outcomes = _Outcomes(self._runtime, len(appends), done)
        for n, append in enumerate(appends):
            self._try_to_append(append, partial(outcomes.note, n))

    def _try_to_append(self, append: MarkerAppend, note: Callable[[ErrorCode], None]) -> None:
        try:
            self._append(append, note)
        except KafkaError as error:
            note(error.code)

    def _append(self, append: MarkerAppend, note: Callable[[ErrorCode], None]) -> None:
        """Raises the KafkaError of the answer if nothing is appended; else `note` is called, later."""
        topic, index, producer_id, producer_epoch, marker, transaction_version = append
        replica = self._replicas.find(topic, index)
        if replica is None:
            raise UnknownTopicOrPartition(f"this broker has no replica of {topic}-{index}")
        replica.check_leader()
        replica.log.producers.check_marker(producer_id, producer_epoch, marker, transaction_version)
        batch = build_marker(
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=self._runtime.broker_clock.wall_ms(),
        )
        done = partial(self._appended, append, note)
        self._replicas.append_records(topic, index, memoryview(batch), done, origin=Origin.END_OF_TRANSACTION)

    def _appended(
        self,
        append: MarkerAppend,
        note: Callable[[ErrorCode], None],
        info: AppendInfo | None,
        error: KafkaError | None,
    ) -> None:
        if info is not None:
            topic, index, producer_id, producer_epoch, marker, _ = append
            self._on_marker(topic, index, producer_id, producer_epoch, marker.is_commit)
        note(ErrorCode.NONE if error is None else error.code)


class _Outcomes:
    """Of some appends: `done` gets them once, when all are known or the time is over."""

    def __init__(self, runtime: Runtime, count: int, done: Callable[[list[ErrorCode]], None]) -> None:
        self._codes = [ErrorCode.REQUEST_TIMED_OUT] * count
        self._unknown = count
        self._done = done
        self._timer = runtime.schedule(runtime.config.request_timeout_ms, self._end)

    def note(self, n: int, code: ErrorCode) -> None:
        """What comes when the time is over changes nothing."""
        self._codes[n] = code
        self._unknown -= 1
        if not self._unknown and self._timer.cancel():
            self._end()

    def _end(self) -> None:
        self._done(list(self._codes))
