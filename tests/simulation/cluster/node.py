"""A machine of the cluster: its disk, its clocks, its place in the network, and one broker process after the other."""

import contextlib
import gc
import random
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.broker.broker import Broker, StartError
from ottla.broker.config.server import ServerConfig
from ottla.broker.server.connection import Connection
from ottla.cluster.image import BrokerState
from tests.simulation.broker_process import DATA_DIR, BrokerProcess, JudgedLog
from tests.simulation.cluster.durable import STEPS_BETWEEN, judge_durable
from tests.simulation.cluster.inspector import BrokerInspector
from tests.simulation.cluster.risked import RISKED
from tests.simulation.cluster.rot import Place, draw_bit, places_of
from tests.simulation.cluster.stray_files import judge_log_files
from tests.simulation.disk import SimulatedDisk
from tests.simulation.loop import Crash, Process, VirtualClock
from tests.simulation.network import Listener, Transport

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

PORT = 9092


class HostNetwork:
    """The network as one machine sees it."""

    def __init__(self, world: "ClusterWorld", host: str) -> None:
        self._network = world.network
        self._host = host

    async def listen(self, protocol_factory: Any, host: str, port: int, *, backlog: int = 0) -> Listener:
        return await self._network.listen(protocol_factory, host, port, backlog=backlog)

    async def connect(self, protocol_factory: Any, host: str, port: int) -> Transport:
        return await self._network.connect(protocol_factory, host, port, from_host=self._host)


class Node:
    def __init__(self, world: "ClusterWorld", node_id: int, settings: dict[str, str]) -> None:
        self.node_id = node_id
        self.host = f"broker-{node_id}"
        self.address = (self.host, PORT)
        self.disk = SimulatedDisk(world.trace)
        self.clock = VirtualClock(world.loop)
        self.running: BrokerProcess | None = None
        self.inspector: BrokerInspector | None = None
        # Is being stopped, killed or started, or paused: nothing else of this kind is to happen to it then.
        self.is_busy = False
        self.is_slow = False
        # Until it is repaired. Where a log has failed, which it stays, until the broker is started again.
        self.has_failing_disk = False
        # Records that all had have rotted on it. That ends with another disk.
        self.has_rotten_disk = False
        self.next_crash_takes_power = False
        self._world = world
        self._rng = world.make_rng(f"node {node_id}")
        self._config = ServerConfig({**settings, "internal.segment.bytes.min": "1"})
        self.lost_power_in_life = 0
        # Ever: by a power failure in the middle of its life, or with its disk.
        self.has_lost_records = False
        # Files, when the broker had stopped in an orderly way.
        self.left_open = 0
        self._lives = 0
        self._boots = 0

    @property
    def is_up(self) -> bool:
        return self.running is not None and self.running.process.alive

    @property
    def is_serving(self) -> bool:
        """And goes on at this moment."""
        if not self.is_up or self.broker_process.is_paused:
            return False
        serving: bool = hasattr(self.broker, "runtime") and self.broker.is_serving
        return serving

    @property
    def is_unwell(self) -> bool:
        """It has lost power, and has not come back to where the others know that; or it cannot copy what it has."""
        if self.has_rotten_disk:
            return True
        if not self.lost_power_in_life:
            return False
        known = self._world.truth.image.brokers.get(self.node_id)
        came_back = self.is_up and self._lives > self.lost_power_in_life and hasattr(self.broker, "lifecycle")
        epoch = self.broker.lifecycle.broker_epoch if came_back else None
        if known is not None and known.state is BrokerState.ACTIVE and known.epoch == epoch:
            self.lost_power_in_life = 0
        return self.lost_power_in_life > 0

    @property
    def has_failed_log(self) -> bool:
        """One that is not written to again before a restart."""
        return any(replica.log.failure is not None for replica in self.broker.replicas)

    @property
    def has_failed_replica(self) -> bool:
        """One with such a log, or that is about to leave the ISR because of its disk."""
        return self.has_failed_log or bool(self.broker.replicas.failed._failed)

    @property
    def broker(self) -> Any:
        assert self.running is not None, "no broker was started"
        return self.running.broker

    async def start(self) -> bool:
        """Whether it has started; a crash may come first."""
        world = self._world
        self._lives += 1
        self.has_failing_disk = False
        world.trace.note("start", self.host, self._lives)
        process = Process(f"{self.host} life {self._lives}")
        store = world.store_machine.session(self.host, process.context())
        broker = Broker(
            self._config,
            data_dir=DATA_DIR,
            host=self.host,
            port=PORT,
            node_id=self.node_id,
            store=store,
            clock=self.clock,
            rng=random.Random(self._rng.getrandbits(64)),
            files=self.disk,
            network=HostNetwork(world, self.host),
            log=JudgedLog(world.judge, self._is_expected),  # type: ignore[arg-type]
            boot_id=f"boot {self._boots}",
            new_connection=Connection if world.principals is None else world.principals.connection,
        )
        self.inspector = world.inspector.began(self.node_id, broker, lambda: self.has_rotten_disk)
        if world.principals is not None:
            self.inspector.when_image_changes = partial(world.principals.note, self)
        self.running = BrokerProcess(process, broker, world.loop, store)
        world.nodes_of_processes[process] = self
        try:
            await self.running.started()
        except Crash:
            return False
        except StartError as error:
            world.start_failed(self, error)
            self.kill()
            return False
        return process.alive

    def look(self) -> None:
        """After each step of the broker."""
        if self.inspector is not None:
            if self.has_failing_disk:
                with self.disk.nothing_fails():
                    self.inspector.look()
            else:
                self.inspector.look()
            if self._world.loop.steps % STEPS_BETWEEN == 0 and self.is_serving:
                judge_durable(self._world.judge, self)

    def _is_expected(self, error: Mapping[str, Any]) -> bool:
        """The broker handles errors of the disk, and says which records an unclean election has lost."""
        # Who copies from a rotten disk meets its damage.
        return self._world.has_rotten_disk or self.has_failing_disk or error.get("topic") == RISKED

    @property
    def has_unsynced_records(self) -> bool:
        return self.is_serving and any(
            partition.log.flushed_offset < partition.log.log_end_offset for partition in self.broker.replicas
        )

    async def stop(self) -> None:
        """In an orderly way, if nothing comes in between."""
        assert self.running is not None, "no broker was started"
        self.disk.repair()
        with contextlib.suppress(Crash):
            await self.running.stop()
        if self.is_up:
            for generation in range(3):
                # Errors, with their tracebacks, may hold files in cycles, mostly young ones.
                if self.disk.open_files:
                    gc.collect(generation)
            self.left_open = len(self.disk.open_files)
            judge_log_files(self._world.judge, self)
            self._gone()
            self._end()

    def kill(self) -> None:
        """As `kill -9` does, or as a power failure where one is due."""
        if not self.is_up:
            return
        power = self.next_crash_takes_power and self._world.may_lose_power(self)
        self.next_crash_takes_power = False
        self._world.trace.note("dead", self.host, power)
        if self.inspector is not None:
            self.inspector.note_last_step()
        self._gone()
        self._end()
        if power:
            self._lose_power_in_life()

    def fail_power(self) -> None:
        """Whatever the others have."""
        self._world.trace.note("blackout", self.host)
        self._gone()
        self._end()
        self._lose_power_in_life()

    def _lose_power_in_life(self) -> None:
        self.lose_power()
        self.lost_power_in_life = self._lives
        self.has_lost_records = True
        self._world.judge.counts["power failure"] += 1

    def lose_power(self) -> None:
        """The machine is restarted. Of a broker that had been stopped in an orderly way nothing may be lost."""
        self.disk.lose_power(self._rng, orders_names=self._world.plan.orders_names)
        self._boots += 1

    def rot(self, partitions: list[tuple[str, int]]) -> bool:
        """Damage some record that all replicas of one of these partitions have. Whether there is one."""
        found: list[Place] = []
        for topic, index in partitions:
            replica = self.broker.replicas.find(topic, index)
            if replica is not None:
                found += places_of(replica.log, replica.high_watermark)
        if not found:
            return False
        place = self._rng.choice(found)
        byte, bit = draw_bit(self._rng, place)
        self.has_rotten_disk = self.has_lost_records = True
        self._world.inspector.decisions.lose_sight()
        self.disk.rot(place.path, place.position + byte, bit)
        return True

    def replace_disk(self) -> None:
        """With an empty one."""
        self.disk = SimulatedDisk(self._world.trace)
        self.has_rotten_disk = False
        self.lost_power_in_life = self._lives
        self._boots += 1

    def pause(self) -> None:
        if self.is_up:
            self._world.loop.pause(self.broker_process)

    def resume(self) -> None:
        if self.is_up:
            self._world.loop.resume(self.broker_process)

    @property
    def broker_process(self) -> Process:
        assert self.running is not None, "no broker was started"
        return self.running.process

    def _gone(self) -> None:
        self._world.inspector.ended(self.node_id)
        self.inspector = None

    def _end(self) -> None:
        world, process = self._world, self.broker_process
        assert self.running is not None, "there is a process, so it runs"
        self.running.store.close()
        world.loop.kill(process)
        world.network.kill(process)
        self.disk.holder_has_died()
        world.nodes_of_processes.pop(process, None)
