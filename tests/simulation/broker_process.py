"""The machine that a simulated broker runs on, and the broker as a process on it."""

import asyncio
import errno
import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from ottla.broker.logging import LazyLog
from ottla.cluster.embedded import EmbeddedSession, EmbeddedStore
from ottla.cluster.store import MetadataStore
from ottla.protocol.errors import CorruptMessage, KafkaStorageError
from tests.simulation.disk import SimulatedDisk
from tests.simulation.judge import Judge
from tests.simulation.loop import Process, SimulationLoop, VirtualClock
from tests.simulation.network import SimulatedNetwork

DATA_DIR = Path("/data")
DISK_FAULT = "no space is left on the device"
COUNTED = ("compaction", "retention")
"""What the log says of upkeep that has changed something."""


class JudgedLog(LazyLog):
    """The broker's log: what it says belongs to the trace, and an error is one too many."""

    def __init__(self, judge: Judge, is_expected: Callable[[Mapping[str, Any]], bool] = lambda _: False) -> None:
        """`is_expected` says by its fields whether an error may be logged; unhandled ones never may."""
        super().__init__()
        self._judge = judge
        self._is_expected = is_expected

    def with_fields(self, **_: Any) -> "JudgedLog":
        return self

    def debug(self, event: str, **fields: Any) -> None:
        self._judge.trace.note("log", event)

    def info(self, event: str, **_: Any) -> None:
        self._judge.trace.note("log", event)
        if event in COUNTED:
            self._judge.counts[event] += 1

    warning = debug

    def error(self, event: str, **fields: Any) -> None:
        self._judge.trace.note("log", event)
        if DISK_FAULT not in str(fields) and not self._is_expected(fields):
            self._judge.violated("log", f"{event}: {fields}")

    def exception(self, event: str, **fields: Any) -> None:
        self._judge.trace.note("log", event)
        is_of_disk = isinstance(sys.exc_info()[1], CorruptMessage | KafkaStorageError) and self._is_expected(fields)
        if DISK_FAULT not in str(fields) and not is_of_disk:
            self._judge.violated("log", f"{event}: {fields}")

    def prepare(self) -> None:
        pass


class OwnStore(EmbeddedStore):
    """Stands for the file in the data directory: no session outlives the process that has opened it."""

    def reopened(self) -> EmbeddedSession:
        for lease_id in list(self._leases):
            self.revoke(lease_id, lambda result: None)
        return self.session()


class BrokerProcess:
    """One life of the broker."""

    def __init__(self, process: Process, broker: Broker, loop: SimulationLoop, store: MetadataStore) -> None:
        self.broker = broker
        self.store = store
        self.process = process
        self._loop = loop
        self.context = process.context()
        self._starting = loop.create_task(broker.start(), context=self.context)

    async def started(self) -> None:
        """Returns when the broker has started, or its process has died. Raises what the start raises."""
        await self._lives_until(self._starting)

    async def stop(self) -> None:
        """Returns when the broker has stopped, or its process has died."""
        await self._lives_until(self._loop.create_task(self.broker.stop(), context=self.context))

    async def _lives_until(self, task: "asyncio.Task[Any]") -> None:
        """Returns early when the process dies: a task of it would never end then."""
        died = self._loop.create_future()
        self.process.when_killed.append(lambda: died.done() or died.set_result(None))
        await asyncio.wait([task, died], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()


class Machine:
    """Its disk and its metadata outlive any broker."""

    def __init__(
        self,
        loop: SimulationLoop,
        clock: VirtualClock,
        network: SimulatedNetwork,
        judge: Judge,
        rng: random.Random,
        settings: dict[str, str],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._network = network
        self._judge = judge
        self._rng = rng
        self._config = ServerConfig({**settings, "internal.segment.bytes.min": "1"})
        self._disk = SimulatedDisk(judge.trace)
        # Kept apart from the disk: its own file is SQLite's, which syncs every transaction.
        self._store = OwnStore()
        self._lives = 0
        self._power_cuts = 0

    def boot(self, address: tuple[str, int]) -> BrokerProcess:
        self._lives += 1
        process = Process(f"broker {self._lives}")
        host, port = address
        store = self._store.reopened()
        broker = Broker(
            self._config,
            data_dir=DATA_DIR,
            host=host,
            port=port,
            store=store,
            clock=self._clock,
            rng=random.Random(self._rng.getrandbits(64)),
            files=self._disk,
            network=self._network,
            log=JudgedLog(self._judge),  # type: ignore[arg-type]
            boot_id=f"boot {self._power_cuts}",
        )
        return BrokerProcess(process, broker, self._loop, store)

    def fail_a_write(self, rng: random.Random) -> None:
        """One of the next writes fails, and leaves a part of its bytes behind (G16)."""
        self._disk.torn_bytes = rng.choice([0, 30])
        self._disk.fail("writev", OSError(errno.ENOSPC, DISK_FAULT), after=rng.randint(0, 5))

    def repair_disk(self) -> None:
        """No write fails any more."""
        self._disk.repair()

    def light_fuse(self, rng: random.Random) -> None:
        """Let the broker crash in the middle of one of its next few file operations."""
        self._disk.light_fuse(rng, rng.randint(1, 60))

    def put_out_fuse(self) -> None:
        self._disk.put_out_fuse()

    def kill(self, running: BrokerProcess, *, power: bool) -> None:
        self._loop.kill(running.process)
        running.store.close()
        self._network.kill(running.process)
        self._disk.holder_has_died()
        if power:
            self._power_cuts += 1
            self._disk.lose_power(self._rng)
