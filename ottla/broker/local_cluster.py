"""A cluster of several brokers in this process, with one metadata store in a file.

    data directory/
        ottla-metadata.sqlite
        broker-0/  broker-1/  broker-2/

Each broker is a whole one, with its own listener, its own session with the store and its own data; they copy from each
other over the network. A broker that is killed here goes as a process goes that is killed: its connections break, its
session ends when `broker.session.timeout.ms` are over, and its next start recovers what is on its disk.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.broker.broker import Broker
from ottla.broker.broker_data import METADATA_FILE
from ottla.broker.config.options import ConfigError
from ottla.broker.config.server import ServerConfig
from ottla.broker.config.server_network import PLAINTEXT
from ottla.broker.logging import LazyLog
from ottla.broker.loop_wheel import LoopWheel, SystemClock
from ottla.broker.runtime import NewBrokerTime, StartError
from ottla.broker.server.connection import Connection
from ottla.broker.server.dispatch import Dispatcher, NewDispatcher
from ottla.broker.server.network import Network, TcpNetwork, held_address
from ottla.broker.server.socket_server import NewConnection
from ottla.cluster.embedded import EmbeddedStore
from ottla.cluster.image import NO_LEADER
from ottla.cluster.store import MetadataStore, StoreError
from ottla.storage.files import DIRECTORY_MODE, FileSystem, OsFileSystem, reason_of
from ottla.storage.meta_properties import DataDirectoryError, refuse_directory_of_tests
from ottla.timer.clock import Clock

if TYPE_CHECKING:
    from ottla.broker.admin.site import ProcessAdmin

IDENTITY_FILE = "meta.properties"
DIRECTORY_PREFIX = "broker-"
# All brokers renew their sessions on the loop that ends them: one that was held up lets them do so first.
RENEWAL_GRACE_MS = 50


@dataclass(frozen=True)
class Surroundings:
    """What one broker of the process has around it. None: the machine's."""

    store: MetadataStore
    network: Network | None = None
    files: FileSystem | None = None
    boot_id: str | None = None


NewSurroundings = Callable[[int, Path, MetadataStore], Surroundings]
"""For a broker that starts: its node id, its data directory, and its session of the store."""


def _plain_surroundings(node_id: int, directory: Path, store: MetadataStore) -> Surroundings:  # noqa: ARG001
    return Surroundings(store)


class LocalCluster:
    """`await start()` before anything else, `await stop()` at the end; both on the loop that is to serve."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        data_dir: Path,
        brokers: int,
        host: str = "127.0.0.1",
        port: int = 9092,
        advertise: tuple[str, int] | None = None,
        listener_name: str = PLAINTEXT,
        first_node_id: int = 0,
        log: LazyLog | None = None,
        opened: Callable[[Broker], None] | None = None,
        new_dispatcher: NewDispatcher = Dispatcher,
        new_connection: NewConnection = Connection,
        new_surroundings: NewSurroundings = _plain_surroundings,
        clock: Clock | None = None,
        new_broker_time: NewBrokerTime | None = None,
    ) -> None:
        """Ports follow each other from `port` on, and so do those of `advertise`; a port of 0 is a free one for each.
        Each has one listener, called `listener_name`. `opened` is called with every broker that has started. `clock`
        and all that is called new are a test's.

        Raises ConfigError where the properties name the listeners of one broker."""
        if config.listeners or config.advertised_listeners:
            raise ConfigError("listeners are those of one broker: several in a process listen at --listen and onwards")
        self._config, self._data_dir = config, data_dir
        ids = range(first_node_id, first_node_id + brokers)
        self._listen_on = {each: (host, port + each - first_node_id if port else 0) for each in ids}
        # Of brokers that have been started once: nothing else gets their ports while they are down.
        self._held: dict[int, socket.socket | None] = {}
        self._advertise = {each: advertise and (advertise[0], advertise[1] + each - first_node_id) for each in ids}
        self._listener_name = listener_name
        self._log, self._opened = log or LazyLog(), opened
        self._new_dispatcher, self._new_connection = new_dispatcher, new_connection
        self._new_surroundings, self._new_broker_time = new_surroundings, new_broker_time
        self._clock = clock or SystemClock()
        self._running: dict[int, Broker] = {}
        self._bootstraps: dict[int, str] = {}
        self.cluster_id = ""
        self._store: EmbeddedStore | None = None
        # One for the store, so that no write of it waits for the logs of a broker that are synced.
        self._store_thread = ThreadPoolExecutor(1, thread_name_prefix="metadata")
        self._wheel: LoopWheel | None = None
        self._admin: ProcessAdmin | None = None

    @property
    def bootstrap(self) -> str:
        """Where clients find the cluster: all its brokers, also those that do not run at the moment."""
        return ",".join(self._bootstraps[node_id] for node_id in sorted(self._bootstraps))

    @property
    def listener_urls(self) -> list[str]:
        """Of the brokers that run, in order of their ids."""
        return [url for broker in self.brokers.values() for url in broker.listener_urls]

    @property
    def node_ids(self) -> list[int]:
        """Of all brokers, also those that do not run at the moment."""
        return list(self._listen_on)

    @property
    def brokers(self) -> dict[int, Broker]:
        """Those that run, by node id."""
        return dict(sorted(self._running.items()))

    def leader_of(self, topic: str, partition: int) -> int | None:
        """As the broker knows that has seen most; None if the partition has no leader, or does not exist."""
        images = [broker.image for broker in self._running.values()]
        newest = max(images, key=lambda image: image.revision, default=None)
        state = None if newest is None else newest.partition(topic, partition)
        return None if state is None or state.leader == NO_LEADER else state.leader

    async def start(self) -> None:
        """Returns when all are active. Raises StartError; nothing is left open then."""
        self._check_directories()
        self._open_store()
        first, *others = self._listen_on
        try:
            await self._open_admin()
            # The first broker of a new cluster gives it its id.
            await self.start_broker(first)
            await _all_of(self.start_broker(node_id) for node_id in others)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> bool:
        """Stops all brokers and closes the store; gives whether all data was closed cleanly."""
        running, self._running = self._running, {}
        stopped_cleanly = await asyncio.gather(*(broker.stop(with_cluster=True) for broker in running.values()))
        if self._store is not None:
            self._store.close()
            self._store = None
        self._store_thread.shutdown()
        if self._wheel is not None:
            self._wheel.stop()
        for held in self._held.values():
            if held is not None:
                held.close()
        self._held.clear()
        if self._admin is not None:
            self._admin.close()
        return all(stopped_cleanly)

    async def start_broker(self, node_id: int) -> None:
        """Starts a broker that does not run, on the port it had before. Raises StartError."""
        assert node_id not in self._running, f"broker {node_id} runs already"
        assert self._store is not None, "the cluster is not open"
        host, port = await self._address_of(node_id)
        directory = self._directory(node_id)
        around = self._new_surroundings(node_id, directory, self._store.session())
        broker = Broker(
            self._config.of_another_broker(),
            data_dir=directory,
            host=host,
            port=port,
            advertise=self._advertise[node_id],
            listener_name=self._listener_name,
            node_id=node_id,
            store=around.store,
            files=around.files,
            network=around.network,
            log=self._log.with_fields(broker=node_id),
            boot_id=around.boot_id,
            admin_site=None if self._admin is None else self._admin.site,
            clock=self._clock,
            new_dispatcher=self._new_dispatcher,
            new_connection=self._new_connection,
            new_broker_time=self._new_broker_time,
        )
        await broker.start()
        self._running[node_id] = broker
        self.cluster_id = broker.cluster_id
        self._listen_on[node_id] = host, broker.listeners.opened[0].port
        self._bootstraps[node_id] = broker.bootstrap
        if self._opened is not None:
            self._opened(broker)

    async def _address_of(self, node_id: int) -> tuple[str, int]:
        """Where a broker is to listen, held from now on. Port 0: wherever there is room."""
        if node_id not in self._held:
            host, port = self._listen_on[node_id]
            held = self._held[node_id] = await held_address(host, port)
            if held is not None:
                self._listen_on[node_id] = host, held.getsockname()[1]
        return self._listen_on[node_id]

    async def stop_broker(self, node_id: int) -> bool:
        """A controlled shutdown of one: the others take over. Gives whether its data was closed cleanly."""
        return await self._running.pop(node_id).stop()

    async def kill_broker(self, node_id: int) -> None:
        """As `kill -9` does."""
        await self._running.pop(node_id).kill()

    @property
    def admin_url(self) -> str:
        """Of the one admin listener that all brokers share; empty where there is none."""
        return "" if self._admin is None else self._admin.site.url

    async def _open_admin(self) -> None:
        address = self._config.ottla_admin_listener
        if address is not None:
            from ottla.broker.admin.site import ProcessAdmin

            self._admin = ProcessAdmin(self._config, self._clock, self._log)
            await self._admin.site.open(TcpNetwork(), address)

    def _open_store(self) -> None:
        loop = asyncio.get_running_loop()
        self._wheel = LoopWheel(loop, self._clock, lambda: None, self._report)
        try:
            self._data_dir.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
            self._store = EmbeddedStore(
                self._data_dir / METADATA_FILE,
                clock=self._clock,
                wheel=self._wheel,
                post=self._post,
                offload=self._offload,
                renewal_grace_ms=RENEWAL_GRACE_MS,
            )
        except OSError as error:
            raise StartError(f"cannot use {self._data_dir}: {reason_of(error)}") from None
        except StoreError as error:
            raise StartError(str(error)) from None

    def _post(self, action: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(action)

    def _offload(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        asyncio.get_running_loop().run_in_executor(self._store_thread, work).add_done_callback(lambda _: done())

    def _report(self, error: Exception) -> None:
        self._log.error("the metadata store failed to end a session", exc_info=error)

    # Directories.

    def _directory(self, node_id: int) -> Path:
        return self._data_dir / f"{DIRECTORY_PREFIX}{node_id}"

    def _check_directories(self) -> None:
        if not self._config.is_testing:
            try:
                refuse_directory_of_tests(OsFileSystem(), self._data_dir)
            except DataDirectoryError as error:
                raise StartError(str(error)) from None
        if (self._data_dir / IDENTITY_FILE).exists():
            raise StartError(f"{self._data_dir} holds the data of one broker; several need another directory")
        kept = node_ids_in(self._data_dir)
        missing = [str(node_id) for node_id in kept if node_id not in self._listen_on]
        if missing:
            raise StartError(
                f"{self._data_dir} holds the data of broker {missing[0]} too, which would not be started; "
                f"it has brokers {', '.join(map(str, kept))}"
            )


def node_ids_in(data_dir: Path) -> list[int]:
    """The brokers of a local cluster that have data in a directory."""
    endings = (path.name.removeprefix(DIRECTORY_PREFIX) for path in data_dir.glob(f"{DIRECTORY_PREFIX}*"))
    return sorted(int(ending) for ending in endings if ending.isascii() and ending.isdecimal())


async def _all_of(starts: Iterable[Coroutine[object, object, None]]) -> None:
    """Lets all of them come to their end before it raises what one of them did."""
    for result in await asyncio.gather(*starts, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
