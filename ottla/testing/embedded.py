"""A broker inside another program: on the caller's loop, or on a loop and thread of its own.

    async with Broker() as broker:                    with BrokerThread() as broker:
        producer = AIOKafkaProducer(                      producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap)               bootstrap_servers=broker.bootstrap)

And a cluster of several, of which one can be killed:

    async with Cluster(brokers=3) as cluster:         with ClusterThread(brokers=3) as cluster:
        await cluster.kill(cluster.node_ids[0])           cluster.kill(cluster.node_ids[0])

Without arguments: free ports of 127.0.0.1, and a temporary directory that is removed at the end.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from ottla.broker import broker as core
from ottla.broker.config.options import ConfigError
from ottla.broker.local_cluster import LocalCluster
from ottla.broker.runtime import StartError
from ottla.broker.server.dispatch import Guarded, PartOf
from ottla.testing.faulty_dispatcher import FaultyDispatcher, NotedBy
from ottla.testing.options import BrokerOptions, ParsedOptions, checked_count, shows_options
from ottla.testing.waits import USUAL_END, WaitEnd
from ottla.testing.worker import BrokerLoop, NotRunningError

if TYPE_CHECKING:
    from ottla.testing.faults.faults import Faults
    from ottla.testing.faults.state import HitObserver

__all__ = [
    "BrokerThread",
    "ClusterThread",
    "ConfigError",
    "EmbeddedBroker",
    "EmbeddedCluster",
    "NotRunningError",
    "StartError",
]

FREE_PORT = ("127.0.0.1", 0)
Result = TypeVar("Result")


class FaultHost:
    """The rules of one broker, or of all brokers of a cluster, and the dispatchers that they are in force at."""

    def __init__(self, seed: int, noted_by: NotedBy | None = None, wait_end: WaitEnd = USUAL_END) -> None:
        """`seed` and `wait_end`: see `Faults`. `noted_by`: of all routes, also those without rules."""
        self.seed = seed
        self._noted_by = noted_by
        self._wait_end = wait_end
        self._faults: Faults | None = None
        self.hit_observers: list[HitObserver] = []
        """Called, on the brokers' loop, with the id of a rule that has acted, and what it acted on."""
        # By node id, of the brokers that have been started last.
        self._dispatchers: dict[int, FaultyDispatcher] = {}

    @property
    def faults(self) -> "Faults":
        """They stay when a broker starts again."""
        if self._faults is None:
            # Imported here: most programs inject no faults.
            from ottla.testing.faults.faults import Faults

            self._faults = Faults(self.seed, self._dispatchers, self._wait_end, self.hit_observers)
        return self._faults

    @property
    def faults_if_used(self) -> "Faults | None":
        """None where the rules were never asked for."""
        return self._faults

    def new_dispatcher(self, part: PartOf, guarded: Guarded | None) -> FaultyDispatcher:
        """For a broker of this host that starts."""
        dispatcher = FaultyDispatcher(part, guarded, self._noted_by)
        self._dispatchers[dispatcher.node_id] = dispatcher
        if self._faults is not None:
            self._faults.apply()
        return dispatcher


class _Embedded(ABC):
    """What one broker and several have in common: their options, their directory, and being a context."""

    def __init__(self, options: ParsedOptions) -> None:
        self._options = options
        self._clean_up: Callable[[], object] | None = None
        """Of a data directory that goes with the broker."""
        self._fault_host = FaultHost(options.fault_seed)

    @property
    def faults(self) -> "Faults":
        """Rules by which requests fail, wait or get lost; they stay when a broker starts again."""
        return self._fault_host.faults

    async def start(self) -> None:
        """As entering the context. Raises StartError."""
        if self._is_open():
            raise StartError("it is open already")
        data_dir = self._options.data_dir
        if data_dir is None:
            # Imported here: fixtures have directories of their own.
            from tempfile import TemporaryDirectory

            temporary = TemporaryDirectory(prefix="ottla-")
            self._clean_up = temporary.cleanup
            data_dir = Path(temporary.name)
        try:
            await self._open(data_dir)
        except BaseException:
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
    def _is_open(self) -> bool: ...

    @abstractmethod
    async def _open(self, data_dir: Path) -> None: ...

    @abstractmethod
    async def _close(self) -> None: ...

    def _observe(self, broker: core.Broker) -> None:
        for observer in self._options.observers:
            broker.groups.observers.append(observer)

    def _remove_temporary(self) -> None:
        if self._clean_up is not None:
            self._clean_up()
            self._clean_up = None


@shows_options
class EmbeddedBroker(_Embedded):
    """`ottla.Broker`, an asynchronous context manager; `bootstrap` is HOST:PORT while it is open.

    Raises ConfigError for a wrong option, StartError, on entering, where a broker cannot start, and NotRunningError for
    what needs a broker that runs.
    """

    def __init__(self, **options: Unpack[BrokerOptions]) -> None:
        super().__init__(ParsedOptions(options))
        self._core: core.Broker | None = None

    @property
    def bootstrap(self) -> str:
        """What to give clients as `bootstrap.servers`."""
        return self._opened().bootstrap

    @property
    def cluster_id(self) -> str:
        return self._opened().cluster_id

    async def _open(self, data_dir: Path) -> None:
        options = self._options
        named = (None, None) if options.config.listeners else FREE_PORT
        host, port = options.listen or named
        broker = core.Broker(
            options.config,
            data_dir=data_dir,
            host=host,
            port=port,
            advertise=options.advertise,
            node_id=options.node_id,
            log=options.log,
            new_dispatcher=self._fault_host.new_dispatcher,
        )
        await broker.start()
        self._observe(broker)
        self._core = broker

    async def _close(self) -> None:
        broker, self._core = self._core, None
        if broker is not None:
            await broker.stop()

    def _is_open(self) -> bool:
        return self._core is not None

    def _opened(self) -> core.Broker:
        if self._core is None:
            raise NotRunningError("the broker is not open: enter its context or call start()")
        return self._core


@shows_options
class EmbeddedCluster(_Embedded):
    """`ottla.Cluster`: several brokers on one loop, which replicate partitions and fail over as processes do.

    Kafka's defaults hold: a topic has as many replicas as it is created with, and a broker that was killed counts as
    dead after `broker.session.timeout.ms` (9 seconds), which a test may want shorter.
    """

    def __init__(self, brokers: int = 3, **options: Unpack[BrokerOptions]) -> None:
        parsed = ParsedOptions(options, ("brokers",))
        super().__init__(parsed)
        self._count = checked_count(brokers, parsed.listen)
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

    async def kill(self, node_id: int | None) -> None:
        """Ends a broker as `kill -9` does. Raises NotRunningError."""
        await kill_broker(self._opened(), node_id)

    async def shut_down(self, node_id: int | None) -> None:
        """Stops a broker; it hands over what it leads first. Raises NotRunningError."""
        await shut_down_broker(self._opened(), node_id)

    async def restart(self, node_id: int | None) -> None:
        """Starts a broker again on its port and with its data, after it was killed or shut down; one that runs is shut
        down before. Returns when it is active; it may still be catching up. Raises StartError, and NotRunningError for
        a broker that is none of the cluster's."""
        await restart_broker(self._opened(), node_id)

    async def _open(self, data_dir: Path) -> None:
        options = self._options
        host, port = options.listen or FREE_PORT
        cluster = LocalCluster(
            options.config,
            data_dir=data_dir,
            brokers=self._count,
            host=host,
            port=port,
            advertise=options.advertise,
            first_node_id=options.node_id,
            log=options.log,
            opened=self._observe,
            new_dispatcher=self._fault_host.new_dispatcher,
        )
        await cluster.start()
        self._core = cluster

    async def _close(self) -> None:
        cluster, self._core = self._core, None
        if cluster is not None:
            await cluster.stop()

    def _is_open(self) -> bool:
        return self._core is not None

    def _opened(self) -> LocalCluster:
        if self._core is None:
            raise NotRunningError("the cluster is not open: enter its context or call start()")
        return self._core


async def kill_broker(cluster: LocalCluster, node_id: int | None) -> None:
    """As `kill -9` does. Raises NotRunningError."""
    await cluster.kill_broker(_checked(node_id, cluster.brokers, "runs"))


async def shut_down_broker(cluster: LocalCluster, node_id: int | None) -> None:
    """It hands over what it leads first. Raises NotRunningError."""
    await cluster.stop_broker(_checked(node_id, cluster.brokers, "runs"))


async def restart_broker(cluster: LocalCluster, node_id: int | None) -> None:
    """On its port, with its data; one that runs is shut down before. Raises NotRunningError, StartError."""
    checked = _checked(node_id, cluster.node_ids, "is part of the cluster")
    if checked in cluster.brokers:
        await cluster.stop_broker(checked)
    await cluster.start_broker(checked)


def _checked(node_id: int | None, known: Collection[int], what: str) -> int:
    if node_id is not None and node_id in known:
        return node_id
    hint = "; leader_of() gives None for a partition without a leader" if node_id is None else ""
    raise NotRunningError(f"no broker {node_id!r} {what}, only {', '.join(map(str, known)) or 'none'}{hint}")


class _Thread:
    """Runs one of the above on uvloop in a thread of its own, for programs without a loop."""

    def __init__(self, embedded: _Embedded) -> None:
        self.__embedded = embedded
        self._loop: BrokerLoop | None = None

    def start(self) -> None:
        """As entering the context. Raises StartError."""
        if self._loop is not None:
            raise StartError("it is open already")
        self._loop = BrokerLoop()
        try:
            self._run(self.__embedded.start())
        except BaseException:
            self._end_loop()
            raise

    def stop(self) -> None:
        """As leaving the context. In a forked child it does nothing: the brokers are its parent's."""
        if self._loop is not None and not self._loop.is_forked:
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
        if self._loop is None:
            work.close()
            raise NotRunningError("it is not open: enter its context or call start()")
        return self._loop.run(work)

    def _end_loop(self) -> None:
        assert self._loop is not None, "there is no loop to end"
        self._loop.stop()
        self._loop = None


@shows_options
class BrokerThread(_Thread):
    """`Broker` for programs without a loop: it runs on uvloop in a thread of its own."""

    def __init__(self, **options: Unpack[BrokerOptions]) -> None:
        self._broker = EmbeddedBroker(**options)
        super().__init__(self._broker)

    @property
    def faults(self) -> "Faults":
        """Rules by which requests fail, wait or get lost; they stay when a broker starts again."""
        return self._broker.faults

    @property
    def bootstrap(self) -> str:
        """What to give clients as `bootstrap.servers`."""
        return self._broker.bootstrap

    @property
    def cluster_id(self) -> str:
        return self._broker.cluster_id


@shows_options
class ClusterThread(_Thread):
    """`Cluster` for programs without a loop: it runs on uvloop in a thread of its own."""

    def __init__(self, brokers: int = 3, **options: Unpack[BrokerOptions]) -> None:
        self._cluster = EmbeddedCluster(brokers, **options)
        super().__init__(self._cluster)

    @property
    def faults(self) -> "Faults":
        """Rules by which requests fail, wait or get lost; they stay when a broker starts again."""
        return self._cluster.faults

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

    def kill(self, node_id: int | None) -> None:
        """Ends a broker as `kill -9` does. Raises NotRunningError."""
        self._run(self._cluster.kill(node_id))

    def shut_down(self, node_id: int | None) -> None:
        """Stops a broker; it hands over what it leads first. Raises NotRunningError."""
        self._run(self._cluster.shut_down(node_id))

    def restart(self, node_id: int | None) -> None:
        """Starts a broker again after it was killed or shut down; one that runs is shut down before. Raises
        StartError, and NotRunningError for a broker that is none of the cluster's."""
        self._run(self._cluster.restart(node_id))
