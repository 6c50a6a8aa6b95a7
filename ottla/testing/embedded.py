"""A broker inside another program: on the caller's loop, or on a loop and thread of its own.

    async with Broker() as broker:                    with BrokerThread() as broker:
        producer = AIOKafkaProducer(                      producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap)               bootstrap_servers=broker.bootstrap)

And a cluster of several, of which one can be killed:

    async with Cluster(brokers=3) as cluster:         with ClusterThread(brokers=3) as cluster:
        await cluster.kill(cluster.leader_of("t", 0))     cluster.kill(cluster.leader_of("t", 0))

Without arguments: free ports of 127.0.0.1, and a temporary directory that is removed at the end.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack

from ottla.broker import broker as core
from ottla.broker.config.server import ServerConfig
from ottla.broker.local_cluster import LocalCluster
from ottla.broker.logging import LazyLog
from ottla.broker.runtime import StartError
from ottla.protocol.address import parse_address

if TYPE_CHECKING:
    from ottla.coordinator.facts import Fact

FREE_PORT = ("127.0.0.1", 0)
Result = TypeVar("Result")


class BrokerOptions(TypedDict, total=False):
    """The options of a broker, or of the brokers of a cluster."""

    listen: str
    """HOST:PORT; by default a free port of 127.0.0.1, unless `settings` name the listeners of a broker. Brokers of a
    cluster take this one and those after it."""
    data_dir: str | Path
    settings: Mapping[str, object]
    """Kafka's server properties: `{"group.initial.rebalance.delay.ms": 0, "num.partitions": 3}`."""
    advertise: str
    """HOST:PORT that clients connect to, where it differs from the address listened on."""
    node_id: int
    """Of a cluster, that of its first broker."""
    log_level: str
    log_format: str
    observers: "Iterable[Callable[[Fact], None]]"
    """Called on the broker's loop with every fact about its groups (`ottla.coordinator.facts`); must not block. The
    broker logs an observer's exception, once for each kind of fact, and continues."""


class _Embedded(ABC):
    """What one broker and several have in common: their options, their directory, and being a context."""

    def __init__(self, options: BrokerOptions) -> None:
        settings = options.get("settings", {})
        self._config = ServerConfig({name: _text(value) for name, value in settings.items()})
        self._listen = parse_address(options["listen"], port_min=0) if "listen" in options else None
        self._advertise = parse_address(options["advertise"]) if "advertise" in options else None
        self._data_dir = Path(options["data_dir"]) if "data_dir" in options else None
        self._node_id = options.get("node_id", 0)
        self._log = LazyLog(options.get("log_format", "console"), options.get("log_level", "warning"))
        self._observers = tuple(options.get("observers", ()))
        self._temporary: TemporaryDirectory[str] | None = None

    async def start(self) -> None:
        """As entering the context. Raises StartError."""
        data_dir = self._data_dir
        if data_dir is None:
            self._temporary = TemporaryDirectory(prefix="ottla-")
            data_dir = Path(self._temporary.name)
        try:
            await self._open(data_dir)
        except StartError:
            self._remove_temporary()
            raise

    async def stop(self) -> None:
        """As leaving the context: requests under way are answered, the data is closed."""
        await self._close()
        self._remove_temporary()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    @abstractmethod
    async def _open(self, data_dir: Path) -> None: ...

    @abstractmethod
    async def _close(self) -> None: ...

    def _observe(self, broker: core.Broker) -> None:
        for observer in self._observers:
            broker.groups.observers.append(observer)

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None


class EmbeddedBroker(_Embedded):
    """`ottla.Broker`, an asynchronous context manager; `bootstrap` is HOST:PORT while it is open.

    Raises ConfigError for settings that do not exist, and StartError, on entering, where a broker cannot start.
    """

    def __init__(self, **options: Unpack[BrokerOptions]) -> None:
        super().__init__(options)
        self._core: core.Broker | None = None

    @property
    def bootstrap(self) -> str:
        """What to give clients as `bootstrap.servers`."""
        assert self._core is not None, "the broker is not open"
        return self._core.bootstrap

    @property
    def cluster_id(self) -> str:
        assert self._core is not None, "the broker is not open"
        return self._core.cluster_id

    async def _open(self, data_dir: Path) -> None:
        assert self._core is None, "the broker is open already"
        named = (None, None) if self._config.listeners else FREE_PORT
        host, port = self._listen or named
        broker = core.Broker(
            self._config,
            data_dir=data_dir,
            host=host,
            port=port,
            advertise=self._advertise,
            node_id=self._node_id,
            log=self._log,
        )
        await broker.start()
        self._observe(broker)
        self._core = broker

    async def _close(self) -> None:
        broker, self._core = self._core, None
        if broker is not None:
            await broker.stop()


class EmbeddedCluster(_Embedded):
    """`ottla.Cluster`: several brokers on one loop, which replicate partitions and fail over as processes do.

    Kafka's defaults hold: a topic has as many replicas as it is created with, and a broker that was killed counts as
    dead after `broker.session.timeout.ms` (9 seconds), which a test may want shorter.
    """

    def __init__(self, brokers: int = 3, **options: Unpack[BrokerOptions]) -> None:
        super().__init__(options)
        self._count = brokers
        self._core: LocalCluster | None = None

    @property
    def bootstrap(self) -> str:
        """What to give clients as `bootstrap.servers`: all brokers, also those that are down."""
        return self._opened().bootstrap

    @property
    def cluster_id(self) -> str:
        return self._opened().cluster_id

    @property
    def node_ids(self) -> list[int]:
        """The brokers that run."""
        return list(self._opened().brokers)

    def leader_of(self, topic: str, partition: int) -> int | None:
        """The leader of a partition at the moment, as the other brokers know it; None if it has no leader or does not
        exist."""
        return self._opened().leader_of(topic, partition)

    async def kill(self, node_id: int) -> None:
        """Ends a broker as `kill -9` does."""
        await self._opened().kill_broker(node_id)

    async def shut_down(self, node_id: int) -> None:
        """Stops a broker; it hands over what it leads first."""
        await self._opened().stop_broker(node_id)

    async def restart(self, node_id: int) -> None:
        """Starts a broker again on its port and with its data, after it was killed or shut down; one that runs is shut
        down before. Returns when it is active; it may still be catching up. Raises StartError."""
        cluster = self._opened()
        if node_id in cluster.brokers:
            await cluster.stop_broker(node_id)
        await cluster.start_broker(node_id)

    async def _open(self, data_dir: Path) -> None:
        assert self._core is None, "the cluster is open already"
        host, port = self._listen or FREE_PORT
        cluster = LocalCluster(
            self._config,
            data_dir=data_dir,
            brokers=self._count,
            host=host,
            port=port,
            advertise=self._advertise,
            first_node_id=self._node_id,
            log=self._log,
            opened=self._observe,
        )
        await cluster.start()
        self._core = cluster

    async def _close(self) -> None:
        cluster, self._core = self._core, None
        if cluster is not None:
            await cluster.stop()

    def _opened(self) -> LocalCluster:
        assert self._core is not None, "the cluster is not open"
        return self._core


class _Thread:
    """Runs one of the above on uvloop in a thread of its own, for programs without a loop."""

    def __init__(self, embedded: _Embedded) -> None:
        self.__embedded = embedded
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """As entering the context. Raises StartError."""
        import uvloop

        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ottla", daemon=True)
        self._thread.start()
        try:
            self._run(self.__embedded.start())
        except BaseException:
            self._end_loop()
            raise

    def stop(self) -> None:
        """As leaving the context."""
        if self._loop is not None:
            try:
                self._run(self.__embedded.stop())
            finally:
                self._end_loop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        assert self._loop is not None, "it is not open"
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end_loop(self) -> None:
        assert self._loop is not None, "there is no loop to end"
        assert self._thread is not None, "a loop runs in its thread"
        asyncio.run_coroutine_threadsafe(self._loop.shutdown_default_executor(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None


class BrokerThread(_Thread):
    """`Broker` for programs without a loop: it runs on uvloop in a thread of its own."""

    def __init__(self, **options: Unpack[BrokerOptions]) -> None:
        self._broker = EmbeddedBroker(**options)
        super().__init__(self._broker)

    @property
    def bootstrap(self) -> str:
        """What to give clients as `bootstrap.servers`."""
        return self._broker.bootstrap

    @property
    def cluster_id(self) -> str:
        return self._broker.cluster_id


class ClusterThread(_Thread):
    """`Cluster` for programs without a loop: it runs on uvloop in a thread of its own."""

    def __init__(self, brokers: int = 3, **options: Unpack[BrokerOptions]) -> None:
        self._cluster = EmbeddedCluster(brokers, **options)
        super().__init__(self._cluster)

    @property
    def bootstrap(self) -> str:
        """What to give clients as `bootstrap.servers`: all brokers, also those that are down."""
        return self._cluster.bootstrap

    @property
    def cluster_id(self) -> str:
        return self._cluster.cluster_id

    @property
    def node_ids(self) -> list[int]:
        """The brokers that run."""
        return self._cluster.node_ids

    def leader_of(self, topic: str, partition: int) -> int | None:
        """The leader of a partition at the moment; None if it has no leader or does not exist."""
        return self._cluster.leader_of(topic, partition)

    def kill(self, node_id: int) -> None:
        """Ends a broker as `kill -9` does."""
        self._run(self._cluster.kill(node_id))

    def shut_down(self, node_id: int) -> None:
        """Stops a broker; it hands over what it leads first."""
        self._run(self._cluster.shut_down(node_id))

    def restart(self, node_id: int) -> None:
        """Starts a broker again after it was killed or shut down; one that runs is shut down before. Raises
        StartError."""
        self._run(self._cluster.restart(node_id))


def _text(value: object) -> str:
    """Settings are text; Python's booleans are written as Kafka writes them."""
    return str(value).lower() if isinstance(value, bool) else str(value)
