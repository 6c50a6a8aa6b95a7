"""Several brokers in virtual time, each a process on a host of its own, with one metadata store that is far away."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from ottla.broker.metadata.topic_plans import NewTopic, Outcome
from ottla.cluster.image import BrokerState, PartitionInfo, TopicInfo
from ottla.cluster.topics import TopicSpec
from tests.broker.wire import RecordingLog
from tests.fakes.disk import FakeDisk
from tests.simulation.cluster.store import STORE_HOST, StoreMachine
from tests.simulation.links import Cut
from tests.simulation.loop import Process, SimulationLoop, VirtualClock
from tests.simulation.network import SimulatedNetwork
from tests.simulation.trace import Trace

T = TypeVar("T")

SESSION_MS = 6_000
WITHIN_MS = 60_000
LOOK_EVERY_MS = 5
QUICK = {
    "internal.segment.bytes.min": "1",
    "broker.session.timeout.ms": str(SESSION_MS),
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "3",
}


class Node:
    """One life of a broker, on a disk that may have seen others."""

    def __init__(
        self, cluster: "Cluster", node_id: int, host: str, disk: FakeDisk, settings: dict[str, str], boot: str
    ) -> None:
        self.node_id = node_id
        self.host = host
        self.disk = disk
        self.process = Process(self.host)
        self.context = self.process.context()
        self.log = RecordingLog()
        self.store = cluster.machine.session(self.host, self.context)
        self.broker = Broker(
            ServerConfig({**QUICK, **settings}),
            data_dir=Path("/data"),
            host=None if "listeners" in settings else self.host,
            port=None if "listeners" in settings else 9092,
            node_id=node_id,
            store=self.store,
            clock=cluster.clock,
            rng=random.Random(f"{cluster.loop.now_us}/{node_id}"),
            files=disk,
            network=cluster.network,
            log=self.log,
            boot_id=boot,
        )
        self.started = cluster.loop.create_task(self.broker.start(), context=self.context)

    @property
    def state(self) -> BrokerState | None:
        """As this broker's own image has it."""
        own = self.broker.image.brokers.get(self.node_id)
        return None if own is None else own.state

    @property
    def log_directories(self) -> set[str]:
        """On its disk, but for those that are deleted."""
        names = self.disk.list_directory(Path("/data"))
        return {name for name in names if self.disk.is_directory(Path("/data") / name) and not name.endswith("-delete")}

    def partition(self, name: str, index: int) -> PartitionInfo:
        """As this broker's image has it; raises KeyError where it has not."""
        state = self.broker.image.partition(name, index)
        if state is None:
            raise KeyError(name, index)
        return state

    def events(self) -> list[str]:
        return [event for event, _ in self.log.events]


class Cluster:
    def __init__(self) -> None:
        self.loop = SimulationLoop(executor_delay_us=lambda: 100)
        self.clock = VirtualClock(self.loop)
        self.trace = Trace(lambda: self.loop.now_us)
        self.network = SimulatedNetwork(self.loop, random.Random(1), self.trace)
        self.links = self.network.links
        self.machine = StoreMachine(self.loop, self.links, random.Random(2), self.trace)

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(story)
        assert not self.loop.failures, self.loop.failures

    def boot(
        self, node_id: int, disk: FakeDisk | None = None, boot: str = "boot", host: str = "", **settings: object
    ) -> Node:
        """Starts the broker; `started` has the result. Settings are Kafka's names with underscores for dots."""
        named = {name.replace("_", "."): str(value) for name, value in settings.items()}
        return Node(self, node_id, host or f"broker-{node_id}", disk or FakeDisk(), named, boot)

    async def started(self, *node_ids: int, **settings: object) -> list[Node]:
        """Each knows that all of them are active."""
        nodes = [self.boot(node_id, **settings) for node_id in node_ids]
        for node in nodes:
            await node.started
        await self.until(lambda: all(node.broker.image.active_brokers >= {*node_ids} for node in nodes))
        return nodes

    def kill(self, node: Node) -> None:
        self.loop.kill(node.process)
        self.network.kill(node.process)
        node.store.close()
        node.disk.locked.clear()

    async def stop(self, node: Node) -> bool:
        """No timer may be left (I-19)."""
        stopped_cleanly = await self.loop.create_task(node.broker.stop(), context=node.context)
        assert len(node.broker.runtime.wheel) == 0, (
            f"{len(node.broker.runtime.wheel)} timers in a broker that has stopped"
        )
        return stopped_cleanly

    async def stop_all(self, *nodes: Node) -> None:
        for node in nodes:
            await self.stop(node)

    def cut_off(self, node: Node) -> tuple[Cut, Cut]:
        """From the store; give what this gives to `links.heal`."""
        cuts = Cut.both_ways([node.host], [STORE_HOST])
        self.links.cut(*cuts)
        return cuts

    def call(self, node: Node, action: Callable[[Callable[[Any], None]], None]) -> "asyncio.Future[Any]":
        """Runs an action of the broker in its process; the future gets what it hands to its callback."""
        future: asyncio.Future[Any] = self.loop.create_future()

        def done(result: Any) -> None:
            if not future.done():
                future.set_result(result)

        self.loop.call_soon(node.broker.runtime._run, lambda: action(done), context=node.context)
        return future

    def spawn(self, node: Node, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Future[T]":
        """Runs a coroutine of the broker in its process; the future gets what it returns or raises."""
        future: asyncio.Future[T] = self.loop.create_future()
        node.context.run(node.broker.runtime.spawn, _into(future, coroutine), "test")
        return future

    async def create(self, node: Node, name: str, partitions: int = 1, factor: int = 3, **configs: str) -> TopicInfo:
        outcome = await self.try_to_create(node, name, partitions, factor, **configs)
        assert isinstance(outcome, TopicInfo), outcome
        return outcome

    async def try_to_create(self, node: Node, name: str, partitions: int, factor: int, **configs: str) -> Outcome:
        named: dict[str, str | None] = {key.replace("_", "."): value for key, value in configs.items()}
        topic = NewTopic(TopicSpec(name, partitions, factor), named)
        (outcome,) = await self.spawn(node, node.broker.topics.create([topic]))
        return outcome

    async def delete(self, node: Node, name: str) -> Outcome:
        topic = node.broker.image.topic(name)
        (outcome,) = await self.spawn(node, node.broker.topics.delete([topic]))
        return outcome

    async def until(self, condition: Callable[[], object], within_ms: int = WITHIN_MS) -> int:
        """Gives how long it took, in milliseconds."""
        began_ms = self.clock.now_ms()
        while not condition():
            assert self.clock.now_ms() - began_ms < within_ms, f"not within {within_ms} ms"
            await asyncio.sleep(LOOK_EVERY_MS / 1000)
        return self.clock.now_ms() - began_ms

    def stored(self, prefix: str = "") -> dict[str, bytes]:
        found: list[Any] = []
        self.machine.store.read(prefix, found.append)
        return {entry.key: entry.value for entry in found[0].entries}


async def _into(future: "asyncio.Future[T]", coroutine: Coroutine[Any, Any, T]) -> None:
    try:
        result = await coroutine
    except Exception as error:
        future.set_exception(error)
    else:
        future.set_result(result)
