"""One broker: its start and its end. `ottla.broker.assembly` says of which parts it consists.

Everything enters from the loop: bytes of a connection, a timer, the end of work in a thread. Each of these ends with
`end_event`, which writes what was appended in it and notifies all who wait for that. Nothing else runs in between, so
the parts call each other plainly.

Clock, randomness, files, network and executor are handed in. In production they are the machine's; in a simulation
they are not.
"""

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from ottla.broker.admin.health import BrokerLife, LifePhase
from ottla.broker.admin_place import AdminPlace
from ottla.broker.assembly import Parts
from ottla.broker.broker_data import BrokerData
from ottla.broker.config.refused import options_for
from ottla.broker.config.server import ServerConfig
from ottla.broker.config.server_network import PLAINTEXT
from ottla.broker.logging import LazyLog
from ottla.broker.loop_wheel import SystemClock
from ottla.broker.runtime import LoopRuntime, NewBrokerTime, StartError
from ottla.broker.server.connection import Connection
from ottla.broker.server.dispatch import Dispatcher, NewDispatcher
from ottla.broker.server.listeners import DEFAULT_HOST, DEFAULT_PORT, Listeners
from ottla.broker.server.network import Network, TcpNetwork
from ottla.broker.server.socket_server import NewConnection
from ottla.cluster.image import MetadataImage
from ottla.cluster.store import MetadataStore, StoreError
from ottla.storage.files import FileSystem, OsFileSystem
from ottla.storage.meta_properties import DataDirectoryError
from ottla.timer.clock import Clock

if TYPE_CHECKING:
    from ottla.broker.admin.site import AdminSite
    from ottla.broker.coordinators.group_coordinator import GroupCoordinator

__all__ = ["Broker", "StartError"]

# How long the stop waits for clients to take their last answers.
DRAIN_TIMEOUT_MS = 2000


class Broker:
    """`await start()` before anything else, `await stop()` at the end; both on the loop that is to serve."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        data_dir: Path,
        host: str | None = None,
        port: int | None = None,
        advertise: tuple[str, int] | None = None,
        listener_name: str = PLAINTEXT,
        node_id: int = 0,
        store: MetadataStore | None = None,
        clock: Clock | None = None,
        rng: Random | None = None,
        files: FileSystem | None = None,
        network: Network | None = None,
        executor: Executor | None = None,
        log: LazyLog | None = None,
        boot_id: str | None = None,
        admin_site: "AdminSite | None" = None,
        new_dispatcher: NewDispatcher = Dispatcher,
        new_connection: NewConnection = Connection,
        new_broker_time: NewBrokerTime | None = None,
    ) -> None:
        """`host`, `port`, `advertise` and `listener_name` are the one listener of a broker whose properties name none.
        Without a `store`, metadata is kept in the data directory, and this broker is a cluster by itself. Without an
        `executor`, the loop's own is used. `boot_id` is another one whenever the machine has been restarted; the kernel
        knows it. Brokers that share an `admin_site` open no admin listener of their own. `new_dispatcher`,
        `new_connection` and `new_broker_time` are a test's.

        Raises ConfigError where the address and the properties contradict each other."""
        self.node_id = node_id
        address = host or DEFAULT_HOST, DEFAULT_PORT if port is None else port
        listen = None if host is None and port is None else address
        self.listeners = Listeners(config, listen, advertise, name=listener_name)
        self.config, self._data_dir, self._executor = config, data_dir, executor
        self._clock, self._rng = clock or SystemClock(), rng or Random()
        self._random_bytes = secrets.token_bytes if rng is None else _repeatable(rng)
        self.log = log or LazyLog()
        self._files, self.network = files or OsFileSystem(), network or TcpNetwork()
        self._store, self._boot_id = store, boot_id
        self._admin, self._new_broker_time = AdminPlace(admin_site), new_broker_time
        self._new_dispatcher, self._new_connection = new_dispatcher, new_connection
        self.life = BrokerLife()

    async def start(self) -> None:
        """Raises StartError; nothing is left open then, or when it is cancelled."""
        self.runtime = LoopRuntime(
            asyncio.get_running_loop(),
            self.config,
            node_id=self.node_id,
            clock=self._clock,
            rng=self._rng,
            log=self.log,
            executor=self._executor,
            random_bytes=self._random_bytes,
            new_broker_time=self._new_broker_time,
        )
        self.life.recovery = self.runtime.recovery
        if self.config.without_effect:
            names = list(self.config.without_effect)
            self.log.warning("properties without effect", names=names, **options_for(names))
        with ExitStack() as undo:
            undo.callback(self.runtime.stop)
            undo.callback(self._end_admin)
            try:
                # First of all, so that the recovery of the data can be watched.
                await self._admin.open(self.runtime, self.life, self.network, self.listeners)
                data = await BrokerData.open(self.runtime, self._files, self._data_dir, self._store, self._boot_id)
                undo.callback(data.abandon)
                self._assemble(data)
                undo.callback(self.parts.stop_following)
                undo.callback(self.server.abort_connections)
                undo.callback(self.server.close_listeners)
                await self._join()
                self.parts.check_rights()
                self.parts.serve()
                self.life.enter(LifePhase.SERVING)
            except (DataDirectoryError, StoreError) as error:
                raise StartError(str(error)) from None
            undo.pop_all()

    def _assemble(self, data: BrokerData) -> None:
        self._data = data
        made_by = self._new_dispatcher, self._new_connection
        parts = self.parts = Parts(self.runtime, data, self._files, self.network, self.listeners, *made_by)
        self.log_directory, self.cluster_id = data.directory, data.cluster_id
        self.metadata, self.lifecycle, self.controller = parts.metadata, parts.lifecycle, parts.controller
        self.replicas, self.topic_logs, self.log_manager = parts.replicas, parts.topic_logs, parts.log_manager
        self.topics, self.auto_topic_creation = parts.topics, parts.auto_topic_creation
        self.config_admin, self.producer_ids = parts.config_admin, parts.producer_ids
        self.server, self.fetch_sessions, self.events = parts.server, parts.fetch_sessions, parts.events
        self._admin.assembled(parts)

    def _end_admin(self) -> None:
        """The last that ends: probes are answered until then."""
        self.life.enter(LifePhase.ENDED)
        self._admin.end()

    async def _join(self) -> None:
        # Clients that connect before `serve` wait for it. A broker that is alone never gives way to another broker:
        # its first client meets one that is ready.
        await self.listeners.open(self.server, self.network)
        # For a store that does not answer. A file that cannot be written stays so.
        store_timeout_ms = 0 if self._data.is_alone else self.config.initial_broker_registration_timeout_ms
        await self.lifecycle.join(
            self.listeners.endpoints, admin_url=self.listeners.admin_url, store_timeout_ms=store_timeout_ms
        )
        await self.topic_logs.all_made()

    async def stop(self, *, with_cluster: bool = False) -> bool:
        """Answers what is under way, lets clients take their answers, and closes the data.

        Gives whether that was done cleanly. If the disk failed, the log says why, and the next start
        recovers what is there. `with_cluster`: all others stop too, and the store in this process, so that no broker
        is left to hand over to."""
        self.life.enter(LifePhase.STOPPING)
        if self.events is not None:
            # Later there may be no partition left to write them to.
            self.events.write_out()
        if not with_cluster and await self.lifecycle.hand_over():
            await self.controller.resign()
        self.server.close_listeners()
        self.runtime.is_serving = False
        self.parts.group_loader.stop()
        self.parts.transaction_loader.stop()
        if self.events is not None:
            self.events.stop()
        self.runtime.end_event()
        await self.runtime.work_done()
        self.replicas.step_down()
        self.runtime.end_event()
        self.server.close_connections()
        await self.server.wait_closed(DRAIN_TIMEOUT_MS)
        self.log_manager.stop()
        await self.runtime.work_done()
        self.parts.stop_following()
        await self.runtime.cancel_spawned()
        self.runtime.stop()
        was_clean = await self._close_data()
        if was_clean and not self._data.is_alone and not with_cluster:
            await self.lifecycle.end()
        self._data.store.close()
        self._end_admin()
        return was_clean

    async def kill(self) -> None:
        """Ends at once, as a killed process does: requests get no answer, nothing is closed cleanly, the session
        expires.

        What threads are doing is waited for, for it cannot be taken from them."""
        self._end_admin()
        self.server.close_listeners()
        self.runtime.is_serving = False
        self.server.abort_connections()
        self.replicas.stop_fetching()
        self.parts.group_loader.stop_loading()
        self.parts.transaction_loader.stop_loading()
        if self.events is not None:
            self.events.abandon()
        self.log_manager.stop()
        self.parts.stop_following()
        await self.runtime.cancel_spawned()
        self.runtime.stop()
        await self.runtime.work_done()
        self._data.abandon()

    async def _close_data(self) -> bool:
        return await self._data.close(self.parts.checkpoints.high_watermark_checkpoint())

    @property
    def listener_urls(self) -> list[str]:
        """NAME://HOST:PORT of every listener, as clients reach it."""
        return [str(endpoint) for endpoint in self.listeners.endpoints]

    @property
    def bootstrap(self) -> str:
        """What to give clients as `bootstrap.servers`, once the broker has started."""
        return self.listeners.bootstrap

    @property
    def admin_url(self) -> str:
        """Of the broker's own admin listener; empty where it has none."""
        return self._admin.own_url

    @property
    def is_serving(self) -> bool:
        """Between start and stop."""
        return self.runtime.is_serving

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    @property
    def groups(self) -> "GroupCoordinator":
        """The group coordinator, imported here, which takes its time, unless that has been done."""
        return self.parts.groups


def _repeatable(rng: Random) -> Callable[[int], bytes]:
    """Secrets of a broker under test, which follow from its seed and leave what `rng` gives as it is."""
    own = Random()
    own.setstate(rng.getstate())
    return own.randbytes
