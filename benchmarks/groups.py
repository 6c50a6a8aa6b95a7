"""A thousand members that join one group at once: what they cost the broker, and how long it holds anyone up.

`python -m benchmarks.groups FILE` serves with every step timed, and writes the longest to FILE when it is terminated. A
step is all that happens without a pause: the requests of one read event, or the timers that are due.
"""

import asyncio
import selectors
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.figure import NO_BASELINE, Figure
from benchmarks.raw_client import (
    CLIENT_ID,
    VERSIONS,
    RawClient,
    find_coordinator,
    heartbeat_frame,
    join_request,
    leave,
    sync_request,
)
from ottla.cli.operations.broker_process import tune_garbage_collector
from ottla.protocol.client import RequestFramer, parse_response
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.heartbeat import HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupResponse
from ottla.protocol.schema import Message

MEMBERS = 1_000
GROUP = "thousand"
SUBSCRIPTION = struct.pack(">hih", 0, 1, 6) + b"orders" + struct.pack(">i", -1)


def figures() -> list[Figure]:
    processes.pin_client()
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        longest = Path(directory) / "longest"
        with processes.running([sys.executable, "-m", "benchmarks.groups", str(longest)]) as server:
            find_coordinator(RawClient(server.port), GROUP)
            before = server.cpu_seconds()
            Fleet(server.port).join_all()
            seconds = server.cpu_seconds() - before
        longest_ms = float(longest.read_text())
    joined = f"{MEMBERS:,} members join one group"
    return [
        Figure(f"{joined}: processor per member", NO_BASELINE, "µs", [(seconds / MEMBERS * 1e6, 1.0)]),
        Figure(f"{joined}: longest step", NO_BASELINE, "ms", [(longest_ms, 1.0)], at_most=50),
    ]


class Fleet:
    """Members over a connection each; every answer is met with what a consumer would send next."""

    def __init__(self, port: int, group_id: str = GROUP) -> None:
        self._group_id = group_id
        self._port = port
        self._selector = selectors.DefaultSelector()
        self._members = [Member(port, group_id) for _ in range(MEMBERS)]
        for member in self._members:
            self._selector.register(member.client.socket, selectors.EVENT_READ, member)

    def join_all(self) -> None:
        """Until all are in sync in the same generation, in as many requests as that takes."""
        for member in self._members:
            member.join()
        while not self._all_in_sync():
            for key, _ in self._selector.select(timeout=0.2) or self._beat():
                key.data.answered()
        for member in self._members:
            member.client.close()

    def leave(self) -> None:
        """All at once: what is measured next has no sessions of theirs to end."""
        client = RawClient(self._port)
        leave(client, self._group_id, *(member.id for member in self._members))
        client.close()

    def _all_in_sync(self) -> bool:
        return all(m.synced for m in self._members) and len({m.generation for m in self._members}) == 1

    def _beat(self) -> list[Any]:
        """No member got a response for a while: members that are in sync, as far as they know, send a heartbeat."""
        for member in self._members:
            if member.synced:
                member.beat()
        return self._selector.select(timeout=0.2)


class Member:
    def __init__(self, port: int, group_id: str) -> None:
        self.client = RawClient(port)
        self.client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.synced = False
        self.generation = -1
        self._group_id = group_id
        self.id = ""
        self._understand: Callable[[memoryview], None] = self._joined

    def answered(self) -> None:
        self._understand(self.client.receive())

    def join(self) -> None:
        self.synced = False
        self._send(join_request(self._group_id, self.id, SUBSCRIPTION), "JoinGroup", self._joined)

    def beat(self) -> None:
        self.synced = False
        self._understand = self._beaten
        self.client.socket.sendall(heartbeat_frame(self._group_id, self.generation, self.id))

    def _joined(self, payload: memoryview) -> None:
        response = parse_response(JoinGroupResponse, VERSIONS["JoinGroup"], payload)
        self.id = response.member_id
        if response.error_code != ErrorCode.NONE:
            self.join()
            return
        self.generation = response.generation_id
        members = [member.member_id for member in response.members]
        self._send(sync_request(self._group_id, self.generation, self.id, members), "SyncGroup", self._received)

    def _received(self, payload: memoryview) -> None:
        response = parse_response(SyncGroupResponse, VERSIONS["SyncGroup"], payload)
        self._go_on(response.error_code)

    def _beaten(self, payload: memoryview) -> None:
        response = parse_response(HeartbeatResponse, VERSIONS["Heartbeat"], payload)
        self._go_on(response.error_code)

    def _go_on(self, error_code: int) -> None:
        if error_code == ErrorCode.NONE:
            self.synced = True
        else:
            self.join()

    def _send(self, request: Message, api: str, understand: Callable[[memoryview], None]) -> None:
        self._understand = understand
        self.client.socket.sendall(RequestFramer(type(request), VERSIONS[api], CLIENT_ID).build(request, 1))


class Stopwatch:
    """Keeps the longest of the steps that went through it."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    def around(self, step: Callable[..., None]) -> Callable[..., None]:
        def timed(*arguments: object) -> None:
            started = time.perf_counter()
            step(*arguments)
            self.longest_s = max(self.longest_s, time.perf_counter() - started)

        return timed


async def _serve_timed(stopwatch: Stopwatch) -> None:
    from ottla import Broker
    from ottla.broker.server.connection import Connection
    from ottla.timer.wheel import TimingWheel

    Connection.buffer_updated = stopwatch.around(Connection.buffer_updated)  # type: ignore[method-assign]
    TimingWheel.advance = stopwatch.around(TimingWheel.advance)  # type: ignore[method-assign]
    terminated = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
    async with Broker(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        tune_garbage_collector()
        print(f"ready bootstrap={broker.bootstrap}", flush=True)
        client = asyncio.get_running_loop().run_in_executor
        await client(None, find_coordinator, RawClient(int(broker.bootstrap.rsplit(":", 1)[1])), GROUP)
        stopwatch.longest_s = 0.0
        await terminated.wait()


if __name__ == "__main__":
    import uvloop

    watch = Stopwatch()
    uvloop.run(_serve_timed(watch))
    Path(sys.argv[1]).write_text(str(watch.longest_s * 1e3))
