"""Consumers that ask for much at once and take it in slowly, or never: they go on, go away, or are closed.

What a broker keeps for one of them is bounded (docs/decisions/0004-order-and-parking-on-a-connection.md), and so is
what it keeps for all; what arrives is right, however late; and nothing of it is left when they have gone (I-19).
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from ottla.broker.server import socket_server
from ottla.broker.server.close_reasons import CloseReason
from ottla.broker.server.connection_memory import WRITE_BUFFER_BYTES, ConnectionMemory
from ottla.broker.server.receive_buffers import KEPT_WHILE_HELD
from ottla.broker.server.response_queue import REQUESTS_MAX, RESPONSE_BYTES_MAX
from ottla.broker.server.socket_server import CLOSE_TIMEOUT_MS
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.histories.events import Read
from tests.simulation.cluster.client import REQUEST_TIMEOUT_MS, ClusterWire, Partition
from tests.simulation.cluster.faults import LONGEST_STALL_MS
from tests.simulation.traffic import records_of
from tests.simulation.wire import Waiting, connect

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

FETCH_VERSION = 12
FETCH_BYTES = 64 * 1024
# Sent together when 256 KiB are ready; as much may wait behind a parked request; each beyond one answer of any size.
UNREAD_BYTES_MAX = WRITE_BUFFER_BYTES + 2 * (RESPONSE_BYTES_MAX + FETCH_BYTES)
# Four times what arrived, as decision 0004 has it.
KEPT_BYTES_MAX = 4 * KEPT_WHILE_HELD
LITTLE_BYTES = 200_000
# Answers that are asked for: more than what a broker may keep of them, and the windows of the network take.
ASKED_BYTES, REQUESTS_ASKED = 2 * UNREAD_BYTES_MAX, (20, 600)
GOES_ON, TRICKLES, LEAVES, STAYS = "goes on", "trickles", "leaves", "stays"
LOOK_MS, LOOKS_MAX = 500, 44
ANSWER_MS = REQUEST_TIMEOUT_MS + 3 * LOOK_MS * LOOKS_MAX
# Who is slow to read is not sent everything that was asked for before.
EXPECTED = {ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE}
OF_THE_BROKER = CloseReason.IDLE, CloseReason.SLOW_CLIENT


@contextmanager
def little_memory(is_drawn: bool) -> Iterator[None]:
    """While it lasts, and if the world has drawn it, so few bytes of answers are held for all connections together
    that two slow readers are too many."""
    if not is_drawn:
        yield
        return
    little = partial(ConnectionMemory, LITTLE_BYTES, LITTLE_BYTES // 2)
    with patch.object(socket_server, "ConnectionMemory", little):
        yield


class SlowWire(ClusterWire):
    """Takes in more than may come within the time of one answer: logs grow after it has asked, and its window is small.
    While answers come none of them is overdue, but its client hangs up instead of waiting for them all."""

    _answered_us = 0

    def _answered(self, frame: bytes) -> None:
        self._answered_us = self.world.now_us
        super()._answered(frame)

    def _overdue(self, waiting: Waiting, allowed_ms: int) -> None:
        answered_ms_ago = (self.world.now_us - self._answered_us) // 1000
        if answered_ms_ago > REQUEST_TIMEOUT_MS + self._judge.network_allowance_ms:
            super()._overdue(waiting, allowed_ms)
        elif not self._lost:
            self.close()


class SlowReader:
    def __init__(self, world: "ClusterWorld", rng: random.Random, name: str) -> None:
        self.name = name
        self._world, self._rng = world, rng
        self._session = 0
        # What it has read of each partition so far, and where the last answer was the same.
        self._seen: dict[tuple[Partition, int], str] = {}
        self._last: dict[Partition, bytes] = {}
        self._answer_bytes = 0

    async def live(self) -> None:
        while not self._world.writing_is_over:
            await self._world.sleep_ms(self._rng.randint(50, 1_500))
            state = self._world.truth.partition(*self._rng.choice(self._world.partitions))
            node = self._world.nodes.get(-1 if state is None else state.leader)
            if node is None:
                continue
            try:
                wire = await self._connect_to(node.address)
            except OSError:
                continue
            await self._read_slowly(wire)
            wire.close()

    async def _connect_to(self, address: tuple[str, int]) -> SlowWire:
        wire = await connect(self._world.network, self._world.judge, address, self.name, SlowWire)
        wire.world = self._world
        return wire

    async def _read_slowly(self, wire: ClusterWire) -> None:
        wire.transport.narrow(self._rng.choice([4_096, 1 << 16]))
        await self._fetch(wire)
        if wire.is_lost or not self._answer_bytes:
            return
        fewest, most = REQUESTS_ASKED
        count = min(max(ASKED_BYTES // self._answer_bytes, fewest), most)
        ending = self._rng.choice([GOES_ON, TRICKLES, LEAVES, STAYS])
        self._world.judge.counts["slow readers"] += 1
        self._world.trace.note(self.name, ending, count)
        wire.transport.pause_reading()
        asked = [self._world.loop.create_task(self._fetch(wire)) for _ in range(count)]
        await self._look_on(wire, LOOKS_MAX if ending == STAYS else self._rng.randint(1, 10))
        if ending == TRICKLES:
            await self._trickle(wire)
        if ending in (LEAVES, STAYS):
            self._world.judge.counts["slow readers that left"] += not wire.is_lost
            wire.close()
        else:
            wire.transport.resume_reading()
        for each in asked:
            await each

    async def _look_on(self, wire: ClusterWire, looks: int) -> None:
        """Reads nothing, and sees what the broker keeps for it."""
        connection, idle_ms = wire.transport.peer.get_protocol(), 0
        answered_bytes, closed_before = _answered_bytes(wire), _closed_by(connection)
        for _ in range(looks):
            await self._world.sleep_ms(LOOK_MS)
            before, answered_bytes = answered_bytes, _answered_bytes(wire)
            if answered_bytes > before:
                idle_ms = 0
            elif self._is_undisturbed(wire):
                idle_ms += LOOK_MS
            if wire.is_lost:
                for reason, count in _closed_by(connection).items():
                    self._world.judge.counts[f"slow readers closed: {reason}"] += count > closed_before[reason]
                return
            if self._world.writing_is_over:
                return
            self._check_held(connection)
            self._check_is_closed_when_idle(connection, idle_ms)

    def _is_undisturbed(self, wire: ClusterWire) -> bool:
        """Whether the broker goes on, and what it sends arrives."""
        goes_on = self._world.serves(wire) and not self._world.process_behind(wire).is_paused
        return goes_on and not self._world.network.links.cuts

    def _check_is_closed_when_idle(self, connection: Any, idle_ms: int) -> None:
        """`idle_ms` after its last answer. What was not read is waited for (`CLOSE_TIMEOUT_MS`). Whether the broker has
        closed it does not show at this end: who reads nothing does not read the end of the stream either. Of a broker
        that has died, a stall holds up the reset."""
        if connection not in connection._owner.connections:
            return
        plan = self._world.plan
        stall_ms = LONGEST_STALL_MS if "stall" in plan.faults else 0
        allowed_ms = CLOSE_TIMEOUT_MS + stall_ms + 2 * LOOK_MS
        if plan.idle_ms_max is not None and idle_ms > plan.idle_ms_max + allowed_ms:
            held = connection.transport.get_write_buffer_size()
            how = f"{self.name} reads nothing, was answered {idle_ms} ms ago, and {held} bytes are kept for it"
            self._world.judge.violated("I-19", how)

    async def _trickle(self, wire: ClusterWire) -> None:
        for _ in range(self._rng.randint(1, 10)):
            if wire.is_lost:
                return
            wire.transport.resume_reading()
            await self._world.sleep_ms(self._rng.randint(0, 20))
            wire.transport.pause_reading()
            await self._look_on(wire, 1)

    def _check_held(self, connection: Any) -> None:
        if connection is None or connection.is_closed:
            return
        judge, memory = self._world.judge, connection._memory
        unread_bytes = connection.transport.get_write_buffer_size()
        kept_bytes = 0 if connection._kept is None else len(connection._kept.view)
        judge.counts["slow readers that hold a broker up"] += unread_bytes > WRITE_BUFFER_BYTES
        for what, is_kept, most in (
            ("bytes of answers", unread_bytes, UNREAD_BYTES_MAX),
            ("bytes of requests", kept_bytes, KEPT_BYTES_MAX),
            ("parked requests", len(connection.parked), REQUESTS_MAX),
            ("bytes for all", memory.held_bytes, memory._bytes_max + UNREAD_BYTES_MAX + KEPT_BYTES_MAX),
        ):
            if is_kept > most:
                judge.violated("I-27", f"a broker keeps {is_kept} {what} for {self.name}, {most} at most")

    async def _fetch(self, wire: ClusterWire) -> None:
        """Everything there is, once more. Without an answer where the connection is lost."""
        topics: dict[str, list[FetchPartition]] = {}
        for name, index in self._world.partitions:
            start = self._world.deleted_before((name, index))
            asked = FetchPartition(partition=index, fetch_offset=start, partition_max_bytes=FETCH_BYTES)
            topics.setdefault(name, []).append(asked)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            # Some are in a session, which has to end with its connection.
            session_epoch=self._rng.choice([-1, 0]),
            topics=[FetchTopic(topic=name, partitions=partitions) for name, partitions in topics.items()],
        )
        try:
            response = await wire.call(request, FETCH_VERSION, within_ms=ANSWER_MS)
        except OSError:
            return
        if response.error_code:
            self._world.judge_error(ErrorCode(response.error_code), f"{self.name}: fetch")
        self._answer_bytes = 0
        for topic in response.responses:
            for data in topic.partitions:
                self._took((topic.topic, data.partition_index), data)

    def _took(self, partition: Partition, data: Any) -> None:
        error = ErrorCode(data.error_code)
        if error not in EXPECTED:
            self._world.judge_error(error, f"{self.name}: fetch from {partition}")
        records = bytes(data.records or b"")
        self._answer_bytes += len(records)
        if records and records != self._last.get(partition):
            self._last[partition] = records
            self._record(partition, [(each.offset, bytes(each.value or b"").decode()) for each in records_of(records)])

    def _record(self, partition: Partition, read: list[tuple[int, str]]) -> None:
        """From the first record on that is new to it, or other than it was. Each answer is a stretch of its own."""
        new = [number for number, (at, value) in enumerate(read) if self._seen.get((partition, at)) != value]
        self._session += 1
        for offset, value in read[new[0] :] if new else []:
            self._seen[partition, offset] = value
            now_us, session = self._world.now_us, self._session
            self._world.record(Read(now_us, self.name, session, *partition, offset, value))
        self._world.judge.counts["records read slowly"] += len(read)


def _answered_bytes(wire: ClusterWire) -> int:
    """How much its broker has answered, while this end reads nothing: on its way here, or held for it."""
    return wire.transport._unread_bytes + wire.transport.peer.get_write_buffer_size()


def _closed_by(connection: Any) -> dict[CloseReason, int]:
    """How many connections its broker has closed for being idle or slow."""
    closed = connection._owner.closed
    return {reason: closed[connection.listener_name, reason] for reason in OF_THE_BROKER}
