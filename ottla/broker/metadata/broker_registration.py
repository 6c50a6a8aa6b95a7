"""This broker's registration in the metadata store, and the session under which it holds.

A broker registers at its start, and again when its session was lost: in a task, for as long as it takes. The session is
a lease of the store, kept alive several times within its length.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from ottla.broker.metadata.cluster_metadata import NOT_REGISTERED, ClusterMetadata
from ottla.broker.metadata.store_bootstrap import RetryDeadline, ask
from ottla.broker.runtime import Runtime, StartError, next_step
from ottla.cluster.encoding import BROKERS, PRODUCER_IDS, topics_in_slices
from ottla.cluster.image import Listener
from ottla.cluster.registration import (
    AlreadyRegistered,
    Registration,
    may_register_alone,
    register,
    register_alone,
)
from ottla.cluster.store import (
    NO_LEASE,
    CommitResult,
    Committed,
    Conflict,
    Granted,
    KeepAliveResult,
    LeaseLost,
    MetadataStore,
    Put,
    Snapshot,
    Transaction,
    Unavailable,
)
from ottla.cluster.topic_changes import new_terms
from ottla.protocol.errors import ErrorCode, KafkaError, error_for
from ottla.storage.log_directory import LogDirectory

# A session that should have ended may take the store's own clock a while longer.
SESSION_MARGIN_MS = 3000
# How long a broker that stops waits for the store to end its session; it ends by itself otherwise.
SESSION_CLOSE_TIMEOUT_S = 2.0
DECOY_SECRET_BYTES = 32


class BootRecord(Protocol):
    """Whether the machine has been restarted since the last life of this broker."""

    @property
    def is_the_same(self) -> bool: ...

    def confirm(self) -> None: ...

    def check_logs(self, directory: LogDirectory) -> None: ...


class SeenProducerIds(Protocol):
    """What this broker has seen of the cluster's producer ids."""

    @property
    def next_id(self) -> int:
        """Above all that were given."""
        ...


class BrokerRegistration:
    def __init__(
        self,
        runtime: Runtime,
        metadata: ClusterMetadata,
        store: MetadataStore,
        directory: LogDirectory,
        boot: BootRecord,
        producer_ids: SeenProducerIds,
        registered_again: Callable[[], None],
    ) -> None:
        """`registered_again` is called when a session that was lost has got a successor."""
        # Keys under it are there as long as this broker's session.
        self.lease_id = NO_LEASE
        self.incarnation = f"{runtime.rng.getrandbits(128):032x}"
        self.revision = 0
        """Of the metadata that shows the registration."""
        self.store_answers = True
        self.store_errors = 0
        """Calls to which the store did not answer, since the start."""
        self._runtime = runtime
        self._metadata = metadata
        self._store = store
        self._directory = directory
        self._boot = boot
        self._producer_ids = producer_ids
        self._registered_again = registered_again
        self._endpoints: tuple[Listener, ...] = ()
        self._admin_url = ""
        self._keeping_alive: asyncio.Task[None] | None = None
        # When the session would end if it were not renewed.
        self._session_ends_ms = 0
        # The first registration takes another lease by itself when one is lost; later ones run in a task.
        self._is_first = True
        # While a lost session is to be replaced.
        self.registering: asyncio.Task[None] | None = None
        self._complaint = ""
        self._is_leaving = False

    @property
    def session_remaining_ms(self) -> int:
        """Until the session ends if it is not renewed; 0 without a session."""
        return 0 if self.lease_id == NO_LEASE else max(self._session_ends_ms - self._runtime.clock.now_ms(), 0)

    @property
    def is_current(self) -> bool:
        """Whether the session goes on, by the clock of this broker, and the metadata has it: what this broker led
        before a new one began may be led by others, and older metadata does not say so."""
        if self.registering is not None or self._metadata.image.revision < self.revision:
            return False
        return self.lease_id != NO_LEASE and self._session_ends_ms > self._runtime.clock.now_ms()

    @property
    def may_have_ended(self) -> bool:
        """Whether the session may have ended unnoticed, as while the process was stopped. While the store does not
        answer either, no broker can know, and what is known goes on being served."""
        return self.store_answers and not self.is_current

    async def begin(self, endpoints: tuple[Listener, ...], *, admin_url: str, store_timeout_ms: int) -> None:
        """Returns when this broker is registered. Raises StartError."""
        self._endpoints, self._admin_url = endpoints, admin_url
        await self._register(store_timeout_ms)
        self._is_first = False
        self._boot.confirm()

    def session_lost(self) -> None:
        self._let_go()
        if self.registering is None and not self._is_first and not self._is_leaving:
            self._runtime.log.metadata.warning("the session of this broker has ended, it registers again")
            self.registering = self._runtime.spawn(self._register_again(), "registration")

    def store_answered(self, failure: Unavailable | None = None) -> None:
        """The store has answered, or failed to: logged when it changes. What is known goes on being served."""
        self.store_errors += failure is not None
        if (failure is None) == self.store_answers:
            return
        self.store_answers = failure is None
        if failure is None:
            self._runtime.log.metadata.info("the metadata store answers again")
        else:
            self._runtime.log.metadata.warning("the metadata store does not answer", why=failure.reason)

    def stop(self) -> None:
        """No session is sought any more; the present one goes on until `end` or until it expires."""
        self._is_leaving = True
        for task in (self.registering, self._keeping_alive):
            if task is not None:
                task.cancel()

    async def end(self) -> None:
        """The session goes at once, after all that is under it was given up and the logs were closed."""
        if self.lease_id == NO_LEASE:
            return
        lease_id = self.lease_id
        self._let_go()
        try:
            # The wheel has stopped; and not `wait_for`, which takes other steps of the loop on other Python versions.
            async with asyncio.timeout(SESSION_CLOSE_TIMEOUT_S):
                await ask(self._store.revoke, lease_id)
        except TimeoutError:
            self._runtime.log.metadata.warning("the metadata store does not answer, the session ends by itself")

    # Registration.

    async def _register(self, store_timeout_ms: int | None) -> None:
        """None: without end, for a broker that is serving."""
        for_answers = RetryDeadline(self._runtime.clock, store_timeout_ms)
        # A store that changes its own leader gives each session its whole time again, more than once perhaps.
        session_ms = self._runtime.config.broker_session_timeout_ms + SESSION_MARGIN_MS
        end_ms = None if store_timeout_ms is None else max(session_ms, store_timeout_ms)
        for_its_end = RetryDeadline(self._runtime.clock, end_ms)
        is_logged = False
        while True:
            try:
                outcome = await self._try_to_register()
            except KafkaError as error:
                is_duplicate = error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
                if store_timeout_ms is not None and not is_duplicate:
                    raise StartError(str(error)) from None
                self._complain(str(error))
                # The session of a process that was killed ends by itself.
                if not is_logged:
                    self._runtime.log.metadata.warning(
                        "this broker waits for the end of another session", why=str(error)
                    )
                    is_logged = True
                await for_its_end.wait(str(error))
                continue
            if outcome is None:
                self._complaint = ""
                self.store_answered()
                return
            if isinstance(outcome, Unavailable):
                self.store_answered(outcome)
                await for_answers.wait_for_store(outcome)
                # No session ends in a store that is away, and one that comes back gives each its whole time again.
                for_its_end = RetryDeadline(self._runtime.clock, end_ms)

    async def _register_again(self) -> None:
        try:
            await self._register(store_timeout_ms=None)
        except StartError as error:
            self._runtime.log.metadata.error("this broker cannot come back into its cluster", why=str(error))
            return
        finally:
            self.registering = None
        self._registered_again()

    async def _try_to_register(self) -> Conflict | LeaseLost | Unavailable | None:
        """None once this broker is registered. Raises what `register` does."""
        found = await self._metadata.read("")
        if isinstance(found, Unavailable):
            return found
        seen = self._metadata.image.revision
        if found.revision < seen:
            # What it had of this cluster since then would be taken for deleted.
            why = f"the metadata store has lost data: it was at revision {seen} and is at {found.revision}"
            raise error_for(ErrorCode.INCONSISTENT_CLUSTER_ID, why)
        if self.lease_id == NO_LEASE:
            granted = await self._metadata.ask(self._store.grant, self._runtime.config.broker_session_timeout_ms)
            if isinstance(granted, Unavailable):
                return granted
            self._hold(granted)
        wanted = self._registration()
        alone = self._metadata.broker_epoch == NOT_REGISTERED and may_register_alone(wanted, found.entries)
        decide = register_alone if alone else register
        transaction = decide(wanted, found.entries, self.lease_id)
        if isinstance(transaction, AlreadyRegistered):
            self._registered(transaction.epoch, found.last_changed)
            return None
        directory = self._directory
        if alone and (directory.has_lost_records or not directory.was_closed_cleanly):
            refused = await self._begin_new_terms(found)
            if refused is not None:
                return refused
        return self._took(transaction, found, await self._metadata.commit(transaction))

    async def _begin_new_terms(self, found: Snapshot) -> Conflict | LeaseLost | Unavailable | None:
        """Records may have gone with the crash, and others will get their offsets. By the leader epoch, a client that
        has seen them notices (KIP-320). Where others are in the cluster, the controller sees to that."""
        for topics in topics_in_slices(found.entries):
            for transaction in new_terms(topics, self._runtime.node_id):
                result = await self._metadata.commit(transaction)
                if not isinstance(result, Committed):
                    return result
            await next_step()
        return None

    def _took(
        self, transaction: Transaction, found: Snapshot, result: CommitResult
    ) -> Conflict | LeaseLost | Unavailable | None:
        if isinstance(result, LeaseLost):
            self._let_go()
        if not isinstance(result, Committed):
            return result
        raised = next((change for change in transaction.changes if change.key == PRODUCER_IDS), None)
        if isinstance(raised, Put):
            self._runtime.log.metadata.warning(
                "the metadata store did not know producer ids that may have been given, and has been raised",
                next_id=int(raised.value),
            )
        key = f"{BROKERS}{self._runtime.node_id}"
        known = next((entry.revision for entry in found.entries if entry.key == key), NOT_REGISTERED)
        is_new = any(change.key == key for change in transaction.changes)
        self._registered(result.revision if is_new else known, result.revision)
        return None

    def _registered(self, epoch: int, revision: int) -> None:
        self._metadata.broker_epoch = epoch
        self.revision = revision

    def _registration(self) -> Registration:
        return Registration(
            self._runtime.node_id,
            self.incarnation,
            self._metadata.image.cluster_id,
            self._endpoints[0].host,
            self._endpoints[0].port,
            clean_shutdown=self._has_lost_nothing(),
            rack=self._runtime.config.broker_rack,
            listeners=self._endpoints,
            admin_url=self._admin_url,
            min_insync_replicas=self._runtime.config.min_insync_replicas,
            decoy_secret=self._runtime.random_bytes(DECOY_SECRET_BYTES),
            next_producer_id=self._producer_ids.next_id,
        )

    def _has_lost_nothing(self) -> bool:
        """Since the earlier life of this broker; or in this one, when it registers again after it was unregistered."""
        directory = self._directory
        if self._metadata.broker_epoch != NOT_REGISTERED:
            return all(log.failure is None for log in directory.logs.values())
        return not directory.has_lost_records and (directory.was_closed_cleanly or self._boot.is_the_same)

    def _complain(self, why: str) -> None:
        """Once, until it is something else."""
        if why != self._complaint:
            self._complaint = why
            self._runtime.log.metadata.warning("this broker cannot register yet", why=why)

    # The session.

    def _hold(self, granted: Granted) -> None:
        self.lease_id = granted.lease_id
        self._session_ends_ms = self._runtime.clock.now_ms() + granted.ttl_ms
        self._keeping_alive = self._runtime.spawn(self._keep_alive(granted), "session")

    def _let_go(self) -> None:
        self.lease_id = NO_LEASE
        if self._keeping_alive is not None:
            self._keeping_alive.cancel()
            self._keeping_alive = None

    async def _keep_alive(self, lease: Granted) -> None:
        """At every interval, also while an earlier call has no answer yet."""
        while True:
            interval_ms = min(self._runtime.config.broker_heartbeat_interval_ms, lease.ttl_ms // 3)
            await self._runtime.sleep(interval_ms)
            self._runtime.spawn(self._keep_alive_once(lease), "keep alive")
            self._boot.check_logs(self._directory)

    async def _keep_alive_once(self, lease: Granted) -> None:
        asked_ms = self._runtime.clock.now_ms()
        result: KeepAliveResult = await self._metadata.ask(self._store.keep_alive, lease.lease_id)
        if lease.lease_id != self.lease_id:
            return
        if isinstance(result, LeaseLost):
            self.session_lost()
        elif isinstance(result, Unavailable):
            self.store_answered(result)
        else:
            self._session_ends_ms = asked_ms + lease.ttl_ms
            self.store_answered()
