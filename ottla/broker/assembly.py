"""The parts of a broker, put together: which there are, and what each of them needs.

This is the one place that knows all parts. Each takes the runtime and the parts that it calls; none gets the whole.
What a part does when the metadata changes it does as a publisher, in the order of the list at the end.
"""

from collections.abc import Callable
from functools import cached_property, partial
from ssl import SSLContext
from typing import TYPE_CHECKING, Any

from ottla.broker.broker_data import BrokerData
from ottla.broker.config.server import ServerConfig
from ottla.broker.coordinators.coordinator_loaders import GroupCoordinatorLoader, TransactionCoordinatorLoader
from ottla.broker.metadata.auto_topic_creation import AutoTopicCreationManager
from ottla.broker.metadata.broker_lifecycle import BrokerLifecycle
from ottla.broker.metadata.client_quotas import ClientQuotaAdminManager, ClientQuotaPublisher
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.metadata.config_admin import ConfigAdminManager
from ottla.broker.metadata.controller_role import ControllerRole
from ottla.broker.metadata.deleted_topics import DeletedTopics
from ottla.broker.metadata.dynamic_configs import ConfigPublisher
from ottla.broker.metadata.producer_ids import ProducerIds
from ottla.broker.metadata.scram_users import ScramUserManager
from ottla.broker.metadata.topic_admin import TopicAdminManager
from ottla.broker.replicas.log_end_reports import LogEndReports
from ottla.broker.replicas.offsets_verification import OffsetsVerification
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.replicas.topic_logs import TopicLogs
from ottla.broker.replicas.transaction_markers import TransactionMarkers
from ottla.broker.replicas.transaction_verification import TransactionVerification
from ottla.broker.runtime import LoopRuntime
from ottla.broker.server.connection import Connection
from ottla.broker.server.dispatch import Dispatcher, Guarded, NewDispatcher, PreparedFrames
from ottla.broker.server.listeners import Listeners
from ottla.broker.server.network import Network
from ottla.broker.server.request_times import RequestSample
from ottla.broker.server.socket_server import NewConnection, Server
from ottla.broker.upkeep.checkpoint_writer import RecoveryCheckpoints
from ottla.broker.upkeep.log_levels import BrokerLoggers
from ottla.broker.upkeep.log_manager import LogManager
from ottla.broker.upkeep.producer_id_file import ProducerIdFile
from ottla.cluster.image import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.replication.fetch_session_cache import FetchSessionCache
from ottla.replication.follower_session import FollowerSession
from ottla.security.authentication import parse_super_users
from ottla.storage.files import FileSystem

if TYPE_CHECKING:
    from ottla.broker.admin.metrics.group_labels import GroupLabels
    from ottla.broker.admin.metrics.group_source import GroupSource
    from ottla.broker.admin.metrics.source import MetricSource
    from ottla.broker.admin.metrics.transaction_source import TransactionSource
    from ottla.broker.admin.node_view import NodeView
    from ottla.broker.admin.probe import HealthProbe
    from ottla.broker.authorization.access import Authorization
    from ottla.broker.coordinators.add_partitions_to_txn import AddPartitionsToTxnManager
    from ottla.broker.coordinators.group_coordinator import GroupCoordinator
    from ottla.broker.coordinators.transaction_coordinator import TransactionCoordinator
    from ottla.broker.events.publisher import Publisher
    from ottla.broker.metadata.acls import AclManager
    from ottla.broker.quotas.client_quotas import ClientQuotaEnforcer
    from ottla.broker.replicas.partition_ends import EndsOfPartitions
    from ottla.coordinator.facts import Fact


class Parts:
    """All parts of a broker. Handlers name those that they need as their first parameters."""

    def __init__(
        self,
        runtime: LoopRuntime,
        data: BrokerData,
        files: FileSystem,
        network: Network,
        listeners: Listeners,
        new_dispatcher: NewDispatcher = Dispatcher,
        new_connection: NewConnection = Connection,
    ) -> None:
        directory = data.directory
        self.runtime, self.data, self.listeners = runtime, data, listeners
        self.network = self._network_of_peers(network)
        self.login, self.log_directory = listeners.inter_broker_login, directory
        self.checkpoints = RecoveryCheckpoints(runtime, directory, lambda: self.replicas.high_watermarks())
        self.metadata = ClusterMetadata(runtime, data.store, data.cluster_id)
        self.producer_ids = ProducerIds(runtime, self.metadata, ProducerIdFile(runtime, files, directory))
        self.lifecycle = BrokerLifecycle(runtime, self.metadata, data.store, directory, data.boot, self.producer_ids)
        self.metadata.listener = self.lifecycle
        self.controller = ControllerRole(runtime, self.metadata, lambda: self.lifecycle.lease_id)
        self.log_ends = LogEndReports(runtime, self.metadata, self.lifecycle.session)
        self.replicas = self._make_replicas()
        runtime.at_end_of_event(self.replicas.flush_and_notify)
        self.topic_logs = TopicLogs(runtime, self.metadata, self.replicas)
        self.deleted_topics = DeletedTopics(runtime, self.metadata, directory, files, self.checkpoints.log_deleted)
        self.topics = TopicAdminManager(runtime, self.metadata, directory, self.topic_logs.made)
        self.auto_topic_creation = AutoTopicCreationManager(runtime, self.metadata, self.topics, is_alone=data.is_alone)
        self.config_admin = ConfigAdminManager(runtime, self.metadata, self._check_configuration)
        self.client_quotas = ClientQuotaAdminManager(self.metadata)
        self.scram_users = ScramUserManager(self.metadata)
        self.loggers = BrokerLoggers(runtime)
        self.transaction_verification = TransactionVerification(runtime, self.replicas, self._make_verifier)
        self.group_loader = self._make_group_loader()
        self.transaction_loader = TransactionCoordinatorLoader(runtime, self.metadata, self._make_transactions)
        self.replicas.on_leadership(self.transaction_loader.topic_name, self.transaction_loader)
        self.topic_logs.deletion_listeners.append(self.group_loader.topics_deleted)
        self.transaction_markers = TransactionMarkers(runtime, self.replicas, self.group_loader.on_marker, self._report)
        self.events = self._make_events() if runtime.config.ottla_events_enable else None
        self.metadata_answers, self.fetch_sessions = PreparedFrames(), self._make_fetch_sessions()
        self.server = self._make_server(new_dispatcher, new_connection)
        self.read_turns = self.server.read_turns
        self.quotas = ClientQuotaPublisher(self._make_quotas)
        release_idle = self.server.receive_buffers.release_idle
        self.log_manager = LogManager(runtime, directory, self.replicas, self.checkpoints, release_idle)
        self._register_publishers()

    @property
    def groups(self) -> "GroupCoordinator":
        return self.group_loader.coordinator

    @property
    def transactions(self) -> "TransactionCoordinator":
        return self.transaction_loader.coordinator

    def health_probe(self) -> "HealthProbe":
        """Imported here: a broker without an admin listener starts without it."""
        from ottla.broker.admin.probe import HealthProbe

        probe = HealthProbe(
            self.runtime,
            self.lifecycle,
            self.metadata,
            self.log_directory,
            self.log_manager,
            self.group_loader,
            self.events,
        )
        probe.start()
        return probe

    def count_for_metrics(self) -> None:
        """From now on, what coordinators do is counted for sources that are made later. Raises StartError."""
        if self.runtime.config.ottla_metrics_group_labels is not None:
            # Read now: a file with a mistake ends the start.
            _ = self._group_labels

        def listen_to(made: "GroupCoordinator") -> None:
            made.noted_facts = self._group_source.facts
            made.topic.when_loaded.append(self._group_source.loaded)

        self.group_loader.modules.append("ottla.broker.admin.metrics.group_source")
        self.group_loader.when_made.append(listen_to)
        self.transaction_loader.when_made.append(
            lambda made: made.topic.when_loaded.append(self._transaction_source.loaded)
        )

    @cached_property
    def _group_labels(self) -> "GroupLabels":
        from ottla.broker.admin.metrics.group_labels import read_group_labels

        return read_group_labels(self.runtime.config.ottla_metrics_group_labels)

    @cached_property
    def _group_source(self) -> "GroupSource":
        from ottla.broker.admin.metrics.group_source import GroupSource

        return GroupSource(self.runtime, self.ends, self.group_loader, self._group_labels)

    @cached_property
    def _transaction_source(self) -> "TransactionSource":
        from ottla.broker.admin.metrics.transaction_source import TransactionSource

        return TransactionSource(self.runtime, self.replicas, self.transaction_loader, self.transaction_verification)

    def metric_sources(self, probe: "HealthProbe") -> "list[MetricSource]":
        from ottla.broker.admin.metrics.kafka_source import KafkaSource
        from ottla.broker.admin.metrics.lag_source import LagSource
        from ottla.broker.admin.metrics.quota_source import QuotaSource
        from ottla.broker.admin.metrics.replica_source import ReplicaSource
        from ottla.broker.admin.metrics.request_source import RequestSource, SecuritySource

        cluster_id = self.data.cluster_id
        requests = RequestSource(self.runtime, self.server, self.replicas, self.events, cluster_id=cluster_id)
        replicas = ReplicaSource(self.runtime, self.replicas, self.controller, self.fetch_sessions, probe)
        groups, transactions = self._group_source, self._transaction_source
        kafka = KafkaSource(requests, replicas, groups, transactions, self.runtime.config.ottla_metrics_lag_max)
        lag = LagSource(self.runtime, self.replicas, self.ends, groups, self._group_labels)
        quotas = QuotaSource(self.runtime.broker_clock, self.server, self.quotas)
        refusals = None if self.authorization is None else self.authorization.decisions.refusals
        return [requests, SecuritySource(self.server, refusals), replicas, groups, transactions, lag, quotas, kafka]

    def node_view(self) -> "NodeView":
        from ottla.broker.admin.node_view import NodeView

        return NodeView(self.runtime, self.server, self.replicas, self.group_loader, self.transaction_loader)

    def check_rights(self) -> None:
        """Raises StartError where an authorizer would refuse everything for good."""
        if self.runtime.config.authorizer_class_name:
            from ottla.broker.authorization.access import check_first_rights

            check_first_rights(self.runtime.config, self.metadata.image)

    def serve(self) -> None:
        """From now on requests are answered, and what is due from time to time is done."""
        self.runtime.is_serving = True
        if self.events is not None:
            self.events.start()
        self.group_loader.start()
        self.transaction_loader.start()
        self.log_manager.start()
        self.runtime.end_event()
        self.server.begin_to_serve()

    def stop_following(self) -> None:
        """What the store says from now on changes nothing here any more."""
        self.lifecycle.stop()
        self.controller.stop()
        self.log_ends.stop()
        self.metadata.stop()
        self.topic_logs.stop()
        self.loggers.stop()
        self.quotas.stop()

    def _part(self, name: str) -> Any:
        return getattr(self, name)

    def _report(self, fact: "Fact") -> None:
        from ottla.broker.coordinators.observers import log_fact

        clock = self.runtime.broker_clock
        log_fact(self.runtime.log, fact, clock.now_ms(), clock.wall_ms())
        if self.events is not None:
            self.events.observe(fact, clock.now_ms())

    def _ensured(self, coordinator_topic: str) -> Callable[[], None]:
        return partial(self.auto_topic_creation.ensure_coordinator_topic, coordinator_topic)

    def _make_group_loader(self) -> GroupCoordinatorLoader:
        loader = GroupCoordinatorLoader(
            self.runtime,
            self.replicas,
            self.metadata,
            ensure_topic=self._ensured(CONSUMER_OFFSETS),
            participation=OffsetsVerification(
                self.runtime, self.replicas, self.transaction_verification, CONSUMER_OFFSETS
            ),
            may_be_deposed=lambda: self.lifecycle.session_may_have_ended,
        )
        self.replicas.on_leadership(loader.topic_name, loader)
        return loader

    def _make_transactions(self) -> "TransactionCoordinator":
        """Imported here: a broker without transactional ids starts without it."""
        from ottla.broker.coordinators.marker_sender import MarkerSender
        from ottla.broker.coordinators.transaction_coordinator import TransactionCoordinator
        from ottla.broker.handlers.write_txn_markers import write_markers

        self.producer_ids.claim_ahead()
        markers = MarkerSender(
            self.runtime,
            self.replicas,
            self.metadata,
            self.network,
            partial(write_markers, self.transaction_markers),
            inter_broker_listener=self.listeners.inter_broker,
            login=self.login,
        )
        made = TransactionCoordinator(
            self.runtime,
            self.replicas,
            self.metadata,
            markers,
            producer_ids=self.producer_ids,
            ensure_topic=self._ensured(TRANSACTION_STATE),
            may_be_deposed=lambda: self.lifecycle.session_may_have_ended,
        )
        if self.events is not None:
            made.timed_observers.append(self.events.observe)
        return made

    def _make_replicas(self) -> ReplicaManager:
        return ReplicaManager(
            self.runtime,
            self.metadata,
            self.log_directory,
            self.network,
            inter_broker_listener=self.listeners.inter_broker,
            login=self.login,
            log_ends=self.log_ends,
            checkpoints=self.checkpoints,
            log_failure=lambda topic, index: self.topic_logs.failed.error_of(topic, index),
            session_is_over=lambda: not self.lifecycle.has_current_session,
        )

    def _make_fetch_sessions(self) -> FetchSessionCache:
        slots, rng = self.runtime.config.max_incremental_fetch_session_cache_slots, self.runtime.rng
        return FetchSessionCache(slots, lambda: rng.randrange(1, 2**31), FollowerSession)

    def _make_server(self, new_dispatcher: NewDispatcher, new_connection: NewConnection) -> Server:
        listeners = self.listeners
        return Server(
            self.runtime,
            self.fetch_sessions,
            inter_broker_listener=listeners.inter_broker,
            part=self._part,
            sasl=listeners.sasl,
            tls=listeners.tls,
            guarded=self._make_guard(),
            new_dispatcher=new_dispatcher,
            new_connection=new_connection,
        )

    def _network_of_peers(self, network: Network) -> Network:
        if self.listeners.inter_broker not in self.listeners.tls:
            return network
        # Imported here: a broker without TLS starts without it.
        from ottla.broker.server.tls_network import TlsNetwork

        def context() -> SSLContext:
            assert self.server.tls is not None, "the listener of the brokers has TLS"
            return self.server.tls[self.listeners.inter_broker].tls.as_client

        return TlsNetwork(network, self.runtime, context)

    def _check_configuration(self, config: ServerConfig) -> None:
        """Raises ConfigError for what a listener could not serve with."""
        if self.server.tls is not None:
            self.server.tls.check(config)

    def _broker_configured(self) -> None:
        self.log_manager.configured()
        if self.server.tls is not None:
            self.server.tls.reload()

    def _make_guard(self) -> Guarded | None:
        """What stands before the handlers: the authorizer, and the sample of the log before that."""
        guarded: Guarded | None = None
        if self.authorization is not None:
            from ottla.broker.authorization.guard import AuthorizationGuard

            guarded = AuthorizationGuard(self.authorization).guarded
        if self.runtime.config.ottla_request_log_sample:
            guarded = _before(RequestSample(self.runtime).guarded, guarded)
        return guarded

    @cached_property
    def authorization(self) -> "Authorization | None":
        """Imported here: a broker without an authorizer starts without it."""
        if not self.runtime.config.authorizer_class_name:
            return None
        from ottla.broker.authorization.access import Authorization

        return Authorization(self.runtime, self.metadata, parse_super_users(self.runtime.config.super_users))

    def _make_quotas(self) -> "ClientQuotaEnforcer":
        """Imported here: a broker without quotas starts without it."""
        from ottla.broker.quotas.client_quotas import ClientQuotaEnforcer
        from ottla.broker.quotas.managers import ClientQuotaManagers

        managers = ClientQuotaManagers(self.runtime, self.server.muted.mute)
        self.server.limits.addresses = managers.addresses
        return ClientQuotaEnforcer(self.runtime, self.server.dispatcher, managers)

    def _make_verifier(self) -> "AddPartitionsToTxnManager":
        """Imported here: a broker without transactions starts without it."""
        from ottla.broker.coordinators.add_partitions_to_txn import AddPartitionsToTxnManager
        from ottla.broker.handlers.add_partitions_to_txn import ask_here

        return AddPartitionsToTxnManager(
            self.runtime,
            self.metadata,
            self.network,
            partial(ask_here, self.runtime, self.transactions, self.metadata),
            inter_broker_listener=self.listeners.inter_broker,
            login=self.login,
        )

    @cached_property
    def acls(self) -> "AclManager":
        """Imported here: a broker without ACLs starts without it."""
        from ottla.broker.metadata.acls import AclManager

        return AclManager(self.metadata)

    @cached_property
    def ends(self) -> "EndsOfPartitions":
        """Imported here: a broker without events and an admin listener starts without it."""
        from ottla.broker.replicas.partition_ends import EndsOfPartitions

        return EndsOfPartitions(
            self.runtime,
            self.replicas,
            self.metadata,
            self.network,
            inter_broker_listener=self.listeners.inter_broker,
            login=self.login,
        )

    def _make_events(self) -> "Publisher":
        """Imported here: a broker that publishes no events starts without it."""
        from ottla.broker.events.events_topic import EventsTopic
        from ottla.broker.events.forwarding import Forwarding
        from ottla.broker.events.publisher import Publisher

        topic = EventsTopic(self.runtime, self.metadata, self.replicas, self.topics, is_alone=self.data.is_alone)
        forwarding = Forwarding(
            self.runtime,
            self.metadata,
            self.network,
            inter_broker_listener=self.listeners.inter_broker,
            login=self.login,
        )
        events = Publisher(
            self.runtime,
            self.replicas,
            self.ends,
            topic,
            forwarding,
            self.group_loader.committed_offsets,
            admin_url=self.listeners.admin_url,
        )

        def listen_to(groups: "GroupCoordinator") -> None:
            groups.timed_observers.append(events.observe)
            groups.topic.when_loaded.append(
                lambda hosted: events.coordinator_loaded(hosted, len(hosted.coordinator.shard.groups))
            )

        self.group_loader.when_made.append(listen_to)
        self.metadata.watchers.append(events.on_metadata_update)
        return events

    def _register_publishers(self) -> None:
        configs = ConfigPublisher(self.runtime, self.metadata.configs, self.replicas.configure, self._broker_configured)
        self.metadata.publishers += (
            self.deleted_topics,
            self.topic_logs,
            self.replicas,
            configs,
            self.quotas,
            self.replicas.throttles,
            self.lifecycle,
            self.controller,
            self.producer_ids,
        )


def _before(first: Guarded, then: Guarded | None) -> Guarded:
    """Both of them, one before the other."""
    return first if then is None else lambda api, handle: first(api, then(api, handle))
