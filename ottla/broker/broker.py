"""One broker: its parts, put together; its start and its end.

Everything enters from the loop: bytes of a connection, a timer, the end of work in a thread. Each of these ends with
`end_event`, which writes what was appended in it and notifies all who wait for that. Nothing else runs in between, so
the parts call each other plainly.

Clock, randomness, files, network and executor are handed in. In production they are the machine's; in a simulation
they are not.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from ottla.broker.config.server import ServerConfig
from ottla.broker.logging import LazyLog
from ottla.broker.loop_wheel import LoopWheel, SystemClock
from ottla.broker.metadata.auto_topic_creation import AutoTopicCreationManager
from ottla.broker.metadata.broker_lifecycle import BrokerLifecycle
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.metadata.config_admin import ConfigAdminManager
from ottla.broker.metadata.controller_role import ControllerRole
from ottla.broker.metadata.deleted_topics import DeletedTopics
from ottla.broker.metadata.dynamic_configs import ConfigPublisher
from ottla.broker.metadata.producer_ids import ProducerIds
from ottla.broker.metadata.store_bootstrap import agreed_cluster_id, random_id, read_all, stored_topic_configs
from ottla.broker.metadata.topic_admin import TopicAdminManager
from ottla.broker.replicas.log_end_reports import LogEndReports
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.replicas.topic_logs import TopicLogs
from ottla.broker.runtime import LoopRuntime, StartError
from ottla.broker.server.listeners import DEFAULT_HOST, DEFAULT_PORT, Address, Listeners
from ottla.broker.server.network import Network, TcpNetwork
from ottla.broker.server.prepared_frames import PreparedFrames
from ottla.broker.server.socket_server import Server
from ottla.broker.upkeep.boot import Boot
from ottla.broker.upkeep.checkpoint_writer import RecoveryCheckpoints
from ottla.broker.upkeep.data_directory import closed_cleanly, opened
from ottla.broker.upkeep.log_upkeep import LogManager
from ottla.cluster.embedded import EmbeddedStore
from ottla.cluster.image import CONSUMER_OFFSETS, MetadataImage
from ottla.cluster.store import Entry, MetadataStore, StoreError
from ottla.replication.fetch_session_cache import FetchSessionCache
from ottla.replication.follower_session import FollowerSession
from ottla.storage.errors import DataDirectoryError, reason_of
from ottla.storage.files import FileSystem, OsFileSystem
from ottla.storage.log_directory import LogDirectory
from ottla.storage.meta_properties import known_cluster_id, refuse_directory_of_kafka
from ottla.timer.clock import Clock

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from ottla.broker.coordinators.group_coordinator import GroupCoordinator
    from ottla.broker.events.publisher import Publisher

__all__ = ["Broker", "StartError"]

METADATA_FILE = "ottla-metadata.sqlite"
# How long the stop waits for clients to take their last answers.
DRAIN_TIMEOUT_MS = 2000


class Broker:
    """`await start()` before anything else, `await stop()` at the end; both on the loop that is to serve."""

    loop: asyncio.AbstractEventLoop
    runtime: LoopRuntime
    wheel: LoopWheel
    guard: Callable[..., None]
    end_event: Callable[[], None]
    log_directory: LogDirectory
    cluster_id: str
    boot: Boot
    metadata: ClusterMetadata
    lifecycle: BrokerLifecycle
    controller: ControllerRole
    log_ends: LogEndReports
    replicas: ReplicaManager
    topic_logs: TopicLogs
    deleted_topics: DeletedTopics
    topics: TopicAdminManager
    auto_topic_creation: AutoTopicCreationManager
    config_admin: ConfigAdminManager
    producer_ids: ProducerIds
    fetch_sessions: FetchSessionCache
    server: Server
    log_manager: LogManager

    def __init__(
        self,
        config: ServerConfig,
        *,
        data_dir: Path,
        host: str | None = None,
        port: int | None = None,
        advertise: tuple[str, int] | None = None,
        node_id: int = 0,
        store: MetadataStore | None = None,
        clock: Clock | None = None,
        rng: Random | None = None,
        files: FileSystem | None = None,
        network: Network | None = None,
        executor: "Executor | None" = None,
        log: LazyLog | None = None,
        boot_id: str | None = None,
    ) -> None:
        """`host`, `port` and `advertise` are the one listener of a broker whose properties name none. Without a
        `store`, metadata is kept in the data directory, and this broker is a cluster by itself. Without an `executor`,
        the loop's own is used. `boot_id` is another one whenever the machine has been restarted; the kernel knows it.

        Raises ConfigError where the address and the properties contradict each other."""
        self.config = config
        self.node_id = node_id
        self.clock: Clock = clock or SystemClock()
        self.rng = rng or Random()
        self.files: FileSystem = files or OsFileSystem()
        self.log = log or LazyLog()
        self._data_dir = data_dir
        self.listeners = Listeners(config, _address(host, port), advertise)
        self._store = store
        self._owns_store = store is None
        self._boot_id = boot_id
        self.network: Network = network or TcpNetwork()
        self._executor = executor
        self.metadata_answers = PreparedFrames()
        self._groups: GroupCoordinator | None = None
        self._events: Publisher | None = None
        self._groups_are_coming = False

    # Life.

    async def start(self) -> None:
        """Raises StartError; nothing is left open then, or when it is cancelled."""
        self.loop = asyncio.get_running_loop()
        self.runtime = LoopRuntime(
            self.loop,
            self.config,
            node_id=self.node_id,
            clock=self.clock,
            rng=self.rng,
            log=self.log,
            executor=self._executor,
        )
        self.wheel = self.runtime.wheel
        # Called directly: they are part of every request.
        self.guard = self.runtime.guard
        with ExitStack() as undo:
            undo.callback(self._close_store)
            undo.callback(self.runtime.stop)
            try:
                await self._open_data()
                undo.callback(self.log_directory.close, clean=False)
                self._assemble(self._opened_store())
                undo.callback(self._stop_following)
                undo.callback(self.server.abort_connections)
                undo.callback(self.server.close_listeners)
                await self._start_listening()
            except (DataDirectoryError, StoreError) as error:
                raise StartError(str(error)) from None
            undo.pop_all()

    async def stop(self, *, with_cluster: bool = False) -> bool:
        """Answers what is under way, lets clients take their answers, and closes the data.

        Gives whether that was done cleanly. If the disk failed, the log says why, and the next start
        recovers what is there. `with_cluster`: all others stop too, and the store in this process, so that there is
        nobody to hand over to or to take leave of."""
        if self._events is not None:
            # Later there may be no partition left to write them to.
            self._events.write_out()
        if not with_cluster and await self.lifecycle.hand_over():
            await self.controller.resign()
        self.server.close_listeners()
        self.runtime.is_serving = False
        if self._groups is not None:
            self._groups.stop()
        if self._events is not None:
            self._events.stop()
        self.end_event()
        await self.runtime.work_done()
        self.replicas.step_down()
        self.end_event()
        self.server.close_connections()
        await self.server.wait_closed(DRAIN_TIMEOUT_MS)
        self.log_manager.stop()
        await self.runtime.work_done()
        self._stop_following()
        await self.runtime.cancel_spawned()
        self.wheel.stop()
        was_clean = await self._close_data()
        if was_clean and not self._owns_store and not with_cluster:
            await self.lifecycle.end()
        self._close_store()
        return was_clean

    async def kill(self) -> None:
        """Ends at once, as a killed process does: nobody is answered, nothing is closed cleanly, the session expires.

        What threads are doing is waited for, for it cannot be taken from them."""
        self.server.close_listeners()
        self.runtime.is_serving = False
        self.server.abort_connections()
        self.replicas.stop_fetching()
        if self._groups is not None:
            self._groups.topic.stop_loading()
        if self._events is not None:
            self._events.abandon()
        self.log_manager.stop()
        self._stop_following()
        await self.runtime.cancel_spawned()
        self.wheel.stop()
        await self.runtime.work_done()
        self.log_directory.close(clean=False)
        self._close_store()

    def _stop_following(self) -> None:
        self.lifecycle.stop()
        self.controller.stop()
        self.log_ends.stop()
        self.metadata.stop()
        self.topic_logs.stop()

    # Leadership of `__consumer_offsets`, until there is a group coordinator to watch it.

    def elected(self, index: int) -> None:  # noqa: ARG002
        if self.is_serving:
            self.prepare_groups()

    def resigned(self, index: int) -> None:
        """Nothing is coordinated yet."""

    @property
    def groups(self) -> "GroupCoordinator":
        """The group coordinator, imported here, which takes its time, unless `prepare_groups` has seen to that."""
        if self._groups is None:
            from ottla.broker.coordinators.group_coordinator import GroupCoordinator

            self._groups = GroupCoordinator(
                self.runtime, self.replicas, self.metadata, ensure_topic=self.auto_topic_creation.ensure_offsets_topic
            )
            self.replicas.on_leadership(self._groups.topic.name, self._groups.topic)
            if self._events is not None:
                self._events.listen_to(self._groups)
            if self.runtime.is_serving:
                self._groups.start()
        return self._groups

    def prepare_groups(self) -> "GroupCoordinator | None":
        """The group coordinator, or None while a thread imports it: no client should wait for that."""
        if self._groups is None and not self._groups_are_coming:
            self._groups_are_coming = True
            self.offload(_import_groups, self._groups_imported)
        return self._groups

    def _groups_imported(self) -> None:
        if self.runtime.is_serving:
            assert self.groups is not None, "asking for it makes and starts it"

    @property
    def bootstrap(self) -> str:
        """What to give clients as `bootstrap.servers`, once the broker has started."""
        return self.listeners.bootstrap

    @property
    def is_serving(self) -> bool:
        """Between start and stop."""
        return self.runtime.is_serving

    @property
    def is_alone(self) -> bool:
        """It keeps its metadata itself, and is a cluster of one: its loop serves no other broker."""
        return self._owns_store

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    async def _open_data(self) -> None:
        try:
            refuse_directory_of_kafka(self.files, self._data_dir)
        except OSError as error:
            raise StartError(f"cannot use data directory {self._data_dir}: {reason_of(error)}") from error
        cluster_id, entries = await self._find_cluster()
        open_directory = partial(
            LogDirectory.open,
            self._data_dir,
            node_id=self.node_id,
            cluster_id=cluster_id,
            new_id=partial(random_id, self.rng),
            config_of=stored_topic_configs(
                self.config, lambda: entries if entries is not None else read_all(self._opened_store())
            ),
            now_wall_ms=self.clock.wall_ms(),
            files=self.files,
            when_clean=lambda: self._present_boot().confirm(),
            # Whoever is killed from here on finds no trace of the loss in the logs any more.
            when_lost=lambda: self._present_boot().forget(),
        )
        self.log_directory = await opened(self.runtime, open_directory)
        self.cluster_id = self.log_directory.meta_properties.cluster_id
        self.boot = self._present_boot()

    def _assemble(self, store: MetadataStore) -> None:
        """Makes all parts, each with what it needs."""
        runtime, directory = self.runtime, self.log_directory
        checkpoints = self.checkpoints = RecoveryCheckpoints(runtime, directory)
        self.metadata = ClusterMetadata(runtime, store, self.cluster_id)
        self.lifecycle = BrokerLifecycle(runtime, self.metadata, store, directory, self.boot)
        self.metadata.listener = self.lifecycle
        self.controller = ControllerRole(runtime, self.metadata, lambda: self.lifecycle.lease_id)
        self.log_ends = LogEndReports(runtime, self.metadata, self.lifecycle.session)
        self.replicas = ReplicaManager(
            runtime,
            self.metadata,
            directory,
            self.network,
            inter_broker_listener=self.listeners.inter_broker,
            log_ends=self.log_ends,
            checkpoints=checkpoints,
            log_failure=lambda topic, index: self.topic_logs.failed.error_of(topic, index),
        )
        runtime.at_end_of_event(self.replicas.flush_and_notify)
        self.end_event = runtime.end_event
        self.replicas.on_leadership(CONSUMER_OFFSETS, self)
        self.topic_logs = TopicLogs(
            runtime, self.metadata, self.replicas, lambda names: self.groups.topics_deleted(names)
        )
        self.deleted_topics = DeletedTopics(
            runtime, self.metadata, directory, self.files, checkpoints.recovery_points_fell
        )
        self._assemble_server()

    def _assemble_server(self) -> None:
        """What serves requests, and what the metadata and the clock set in motion."""
        runtime, directory, checkpoints = self.runtime, self.log_directory, self.checkpoints
        self.producer_ids = ProducerIds(runtime, self.metadata)
        self.topics = TopicAdminManager(runtime, self.metadata, directory, self.topic_logs.made)
        self.auto_topic_creation = AutoTopicCreationManager(runtime, self.metadata, self.topics, is_alone=self.is_alone)
        self.config_admin = ConfigAdminManager(runtime, self.metadata)
        self.fetch_sessions = FetchSessionCache(
            self.config.max_incremental_fetch_session_cache_slots,
            lambda: self.rng.randrange(1, 2**31),
            FollowerSession,
        )
        self.server = Server(
            runtime,
            self.fetch_sessions,
            inter_broker_listener=self.listeners.inter_broker,
            part=lambda name: getattr(self, name),
        )
        self.log_manager = LogManager(
            runtime, directory, self.replicas, checkpoints, self.server.receive_buffers.release_idle
        )
        configs = ConfigPublisher(runtime, self.metadata.configs, self.replicas.configure, self.log_manager.configured)
        self.metadata.publishers += (
            self.deleted_topics,
            self.topic_logs,
            self.replicas,
            configs,
            self.lifecycle,
            self.controller,
        )

    def _present_boot(self) -> Boot:
        return Boot(self.log, self.files, self._data_dir, self._boot_id)

    async def _find_cluster(self) -> tuple[str | None, Sequence[Entry] | None]:
        """The cluster's id and all that is in its store. None: the store is a file in the data directory."""
        if self._store is None:
            return None, None
        return await agreed_cluster_id(
            self.runtime, self._store, known_cluster_id(self.files, self._data_dir), new_id=partial(random_id, self.rng)
        )

    async def _start_listening(self) -> None:
        await self.listeners.open(self.server, self.network)
        # Who connects before the end of this function waits. A broker with a store of its own does not give way to
        # others any more: its first client meets a broker that is ready.
        if self.config.ottla_events_enable:
            self._prepare_events()
        await self.lifecycle.join(self.listeners.endpoints, patience_ms=self._patience_ms())
        await self.topic_logs.all_made()
        self.runtime.is_serving = True
        if self._events is not None:
            self._events.start()
        if self._groups is not None:
            self._groups.start()
        elif CONSUMER_OFFSETS in self.image.topics:
            self.prepare_groups()
        self.log_manager.start()
        self.end_event()
        self.server.begin_to_serve()

    def _prepare_events(self) -> None:
        """Imported here: brokers that tell nothing start without it."""
        from ottla.broker.events.publisher import Publisher

        self._events = Publisher(self, is_alone=self.is_alone)
        self.metadata.watchers.append(self._events.follow)
        if self._groups is not None:
            self._events.listen_to(self._groups)

    def _patience_ms(self) -> int:
        """With a store that is not there. A file that cannot be written stays so."""
        return 0 if self._owns_store else self.config.initial_broker_registration_timeout_ms

    async def _close_data(self) -> bool:
        return await closed_cleanly(
            self.runtime, self.log_directory, self.log_manager.high_watermark_checkpoint(), self.boot
        )

    def _close_store(self) -> None:
        if self._store is not None:
            self._store.close()

    def _opened_store(self) -> MetadataStore:
        """Opened after the data directory was found to be ours, for it is a file in it."""
        if self._store is None:
            path = self._data_dir / METADATA_FILE
            self._store = EmbeddedStore(path, post=self._post, offload=self.offload)
        return self._store

    def _post(self, action: Callable[[], None]) -> None:
        self.loop.call_soon(action)

    # What the runtime gives.

    def soon(self, action: Callable[[], None]) -> None:
        self.runtime.soon(action)

    def offload(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        self.runtime.offload(work, done)


def _address(host: str | None, port: int | None) -> Address | None:
    if host is None and port is None:
        return None
    return host or DEFAULT_HOST, DEFAULT_PORT if port is None else port


def _import_groups() -> None:
    import_module("ottla.broker.coordinators.group_coordinator")
