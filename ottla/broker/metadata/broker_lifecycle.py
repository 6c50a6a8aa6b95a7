"""This broker's life in its cluster: it registers, holds its session, becomes active, hands over, and leaves.

A task registers the broker, again when its session was lost. All else happens in answer to what the store says: an
image in which nothing of an earlier life is left to be done makes it active, one that shows its session ended makes it
register again. A broker that was cut off is fenced by others, who then take over what it led; by itself it stops
nothing, for it cannot complete what the others would not see (§19.4.5).
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ottla.broker.metadata.cluster_metadata import NOT_REGISTERED, ClusterMetadata
from ottla.broker.metadata.store_calls import RETRY_MS_MAX, RETRY_MS_MIN, RetryDeadline, ask
from ottla.broker.runtime import Runtime, StartError
from ottla.cluster.controller import first_unsettled, is_unsettled, may_hand_over, may_stop
from ottla.cluster.encoding import BROKERS, topics_of
from ottla.cluster.image import BrokerInfo, BrokerState, Listener, MetadataImage
from ottla.cluster.registration import (
    AlreadyRegistered,
    Registration,
    activate,
    begin_shutdown,
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
    KeptAlive,
    LeaseLost,
    MetadataStore,
    Snapshot,
    Transaction,
    Unavailable,
)
from ottla.cluster.topic_changes import new_terms
from ottla.cluster.updates import ImageUpdate
from ottla.protocol.errors import ErrorCode, KafkaError, error_for
from ottla.storage.log_directory import LogDirectory

if TYPE_CHECKING:
    from ottla.timer.wheel import TimerEntry

# A session that should have ended may take the store's own clock a while longer.
SESSION_MARGIN_MS = 3000
# How long a broker that stops waits for a store that does not answer, before it hands over nothing.
STORE_TIMEOUT_MS = 2000
# How long a broker that stops waits for the store to let go of its session; it ends by itself otherwise.
SESSION_CLOSE_TIMEOUT_S = 2.0


class BootRecord(Protocol):
    """Whether the machine has been restarted since the last life of this broker."""

    @property
    def is_the_same(self) -> bool: ...

    def confirm(self) -> None: ...

    def check_logs(self, directory: LogDirectory) -> None: ...


class BrokerLifecycle:
    def __init__(
        self,
        runtime: Runtime,
        metadata: ClusterMetadata,
        store: MetadataStore,
        directory: LogDirectory,
        boot: BootRecord,
    ) -> None:
        # Keys under it are there as long as this broker's session.
        self.lease_id = NO_LEASE
        self._runtime = runtime
        self._metadata = metadata
        self._directory = directory
        self._boot = boot
        self._store = store
        self._incarnation = f"{runtime.rng.getrandbits(128):032x}"
        self._lease_ms = 0
        self._keep_alive_timer: TimerEntry | None = None
        self._retry_timer: TimerEntry | None = None
        self._registered_at = 0
        # The first registration takes another lease by itself when one is lost; later ones run in a task.
        self._joining = True
        self._registering: asyncio.Task[None] | None = None
        self._activating = False
        # A partition that keeps this broker from being active.
        self._unsettled: tuple[str, int] | None = None
        self._store_answers = True
        self._complaint = ""
        self._active: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Whether all was handed over, once that is known; None while the broker does not stop.
        self._handed_over: asyncio.Future[bool] | None = None
        self._leaving = False

    @property
    def broker_epoch(self) -> int:
        return self._metadata.broker_epoch

    # Coming.

    async def join(self, endpoints: tuple[Listener, ...], *, patience_ms: int) -> None:
        """Returns when this broker is registered, follows the metadata, and is active. Raises StartError."""
        self._endpoints = endpoints
        await self._register(patience_ms)
        self._joining = False
        self._boot.confirm()
        self._metadata.start()
        await self._active

    def failed(self, why: str) -> None:
        """The metadata cannot be understood."""
        if self._active.done():
            self._runtime.log.error("a change of the metadata cannot be understood", why=why)
        else:
            self._active.set_exception(StartError(why))

    async def _register(self, patience_ms: int | None) -> None:
        """None: without end, for a broker that is serving."""
        for_answers = RetryDeadline(self._runtime.clock, patience_ms)
        session_ms = self._runtime.config.broker_session_timeout_ms + SESSION_MARGIN_MS
        end_ms = None if patience_ms is None else session_ms
        for_its_end = RetryDeadline(self._runtime.clock, end_ms)
        said = False
        while True:
            try:
                outcome = await self._try_to_register()
            except KafkaError as error:
                is_duplicate = error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
                if patience_ms is not None and not is_duplicate:
                    raise StartError(str(error)) from None
                self._complain(str(error))
                # The session of a process that was killed ends by itself.
                if not said:
                    self._runtime.log.warning("this broker waits for the end of another session", why=str(error))
                    said = True
                await for_its_end.wait(str(error))
                continue
            if outcome is None:
                self._complaint = ""
                self.store_answers()
                return
            if isinstance(outcome, Unavailable):
                self.store_answers(outcome)
                await for_answers.wait(f"the metadata store cannot be used: {outcome.reason}")
                # No session ends in a store that is away, and one that comes back gives each its whole time again.
                for_its_end = RetryDeadline(self._runtime.clock, end_ms)

    async def _try_to_register(self) -> Conflict | LeaseLost | Unavailable | None:
        """None once this broker is registered. Raises what `register` does."""
        found = await ask(self._store.read, "")
        if isinstance(found, Unavailable):
            return found
        seen = self._metadata.image.revision
        if found.revision < seen:
            # What it had of this cluster since then would be taken for deleted.
            why = f"the metadata store has lost data: it was at revision {seen} and is at {found.revision}"
            raise error_for(ErrorCode.INCONSISTENT_CLUSTER_ID, why)
        if self.lease_id == NO_LEASE:
            granted = await ask(self._store.grant, self._runtime.config.broker_session_timeout_ms)
            if isinstance(granted, Unavailable):
                return granted
            self._hold(granted)
        wanted = self._registration()
        alone = self.broker_epoch == NOT_REGISTERED and may_register_alone(wanted, found.entries)
        decide = register_alone if alone else register
        transaction = decide(wanted, found.entries, self.lease_id)
        if isinstance(transaction, AlreadyRegistered):
            self._registered(transaction.epoch, found.revision)
            return None
        directory = self._directory
        if alone and (directory.has_lost_records or not directory.was_closed_cleanly):
            refused = await self._begin_new_terms(found)
            if refused is not None:
                return refused
        return self._took(transaction, found, await self._commit(transaction))

    async def _commit(self, transaction: Transaction) -> CommitResult:
        result: CommitResult = await ask(self._store.commit, transaction.expected, transaction.changes)
        return result

    async def _begin_new_terms(self, found: Snapshot) -> Conflict | LeaseLost | Unavailable | None:
        """Records may have gone with the crash, and others will get their offsets. By the leader epoch, a client that
        has seen them notices (KIP-320). Where others are in the cluster, the controller sees to that."""
        for transaction in new_terms(topics_of(found.entries), self._runtime.node_id):
            result = await self._commit(transaction)
            if not isinstance(result, Committed):
                return result
        return None

    def _took(
        self, transaction: Transaction, found: Snapshot, result: CommitResult
    ) -> Conflict | LeaseLost | Unavailable | None:
        if isinstance(result, LeaseLost):
            self._let_go()
        if not isinstance(result, Committed):
            return result
        key = f"{BROKERS}{self._runtime.node_id}"
        known = next((entry.revision for entry in found.entries if entry.key == key), NOT_REGISTERED)
        is_new = any(change.key == key for change in transaction.changes)
        self._registered(result.revision if is_new else known, result.revision)
        return None

    def _registered(self, epoch: int, revision: int) -> None:
        self._metadata.broker_epoch = epoch
        self._registered_at = revision

    def _registration(self) -> Registration:
        return Registration(
            self._runtime.node_id,
            self._incarnation,
            self._metadata.image.cluster_id,
            self._endpoints[0].host,
            self._endpoints[0].port,
            clean_shutdown=self._has_lost_nothing(),
            rack=self._runtime.config.broker_rack,
            listeners=self._endpoints,
        )

    def _has_lost_nothing(self) -> bool:
        """Since the earlier life of this broker; or in this one, when it registers again after it was unregistered."""
        directory = self._directory
        if self.broker_epoch != NOT_REGISTERED:
            return all(log.failure is None for log in directory.logs.values())
        return not directory.has_lost_records and (directory.was_closed_cleanly or self._boot.is_the_same)

    # The session.

    def _hold(self, granted: Granted) -> None:
        self.lease_id = granted.lease_id
        self._lease_ms = granted.ttl_ms
        self._schedule_keep_alive()

    def _let_go(self) -> None:
        self.lease_id = NO_LEASE
        if self._keep_alive_timer is not None:
            self._keep_alive_timer.cancel()
            self._keep_alive_timer = None

    def _schedule_keep_alive(self) -> None:
        interval_ms = min(self._runtime.config.broker_heartbeat_interval_ms, self._lease_ms // 3)
        self._keep_alive_timer = self._runtime.wheel.schedule(self._now_ms() + interval_ms, self._keep_alive)

    def _keep_alive(self) -> None:
        self._schedule_keep_alive()
        lease_id = self.lease_id

        def answered(result: KeepAliveResult) -> None:
            if lease_id != self.lease_id:
                return
            if isinstance(result, LeaseLost):
                self._session_lost()
            elif isinstance(result, Unavailable):
                self.store_answers(result)
            else:
                assert isinstance(result, KeptAlive), "there is no other answer"
                self.store_answers()

        self._store.keep_alive(lease_id, self._metadata.entering(answered))
        self._boot.check_logs(self._directory)

    def _session_lost(self) -> None:
        self._let_go()
        if self._registering is None and not self._joining and not self._leaving:
            self._runtime.log.warning("the session of this broker has ended, it registers again")
            self._registering = self._runtime.start_task(self._register_again(), name="registration")

    async def _register_again(self) -> None:
        try:
            await self._register(patience_ms=None)
        except StartError as error:
            self._runtime.log.error("this broker cannot come back into its cluster", why=str(error))
            return
        finally:
            self._registering = None
        self.follow()
        self._runtime.end_event()

    def _complain(self, why: str) -> None:
        """Once, until it is something else."""
        if why != self._complaint:
            self._complaint = why
            self._runtime.log.warning("this broker cannot register yet", why=why)

    def store_answers(self, failure: Unavailable | None = None) -> None:
        """What came of asking the store; said once when it changes. What is known goes on being served meanwhile."""
        if (failure is None) == self._store_answers:
            return
        self._store_answers = failure is None
        if failure is None:
            self._runtime.log.info("the metadata store answers again")
        else:
            self._runtime.log.warning("the metadata store does not answer", why=failure.reason)

    # What the image says of this broker.

    def on_metadata_update(self, before: MetadataImage, update: ImageUpdate) -> None:  # noqa: ARG002
        self.follow()

    def follow(self) -> None:
        """The image is another one: is this broker's place in it what it should be?"""
        image = self._metadata.image
        if image.revision < self._registered_at or self._registering is not None:
            return
        broker = self._own()
        if broker is None or broker.state is BrokerState.FENCED:
            self._session_lost()
        elif broker.state is BrokerState.STARTING:
            self._maybe_activate(broker)
        elif not self._active.done():
            self._active.set_result(None)
        if broker is not None and broker.state is BrokerState.STOPPING and not may_hand_over(image, broker.node_id):
            self._stop_waiting(all_done=may_stop(image, broker.node_id))

    def session(self) -> tuple[BrokerInfo, int] | None:
        """This broker as the image has it, and the lease of its session; None while it has none there."""
        own = self._own()
        if own is None or own.session_revision == 0 or self.lease_id == NO_LEASE:
            return None
        return own, self.lease_id

    def _own(self) -> BrokerInfo | None:
        broker = self._metadata.image.brokers.get(self._runtime.node_id)
        return broker if broker is not None and broker.incarnation == self._incarnation else None

    def _maybe_activate(self, broker: BrokerInfo) -> None:
        metadata = self._metadata
        if self._activating or self._is_held_up():
            return
        self._unsettled = first_unsettled(metadata.image, broker.node_id, metadata.rules_of)
        if self._unsettled is not None:
            return
        self._activating = True
        seen = metadata.image.revision

        def answered(result: CommitResult) -> None:
            self._activating = False
            if isinstance(result, Conflict):
                metadata.when_applied(seen + 1, self.follow)
            elif isinstance(result, LeaseLost):
                self._session_lost()
            elif isinstance(result, Unavailable):
                self.store_answers(result)
                self._later(RETRY_MS_MAX, self.follow)

        metadata.commit(activate(broker, self.lease_id), answered)

    def _is_held_up(self) -> bool:
        """By the partition that did so before: not all are looked at with every change."""
        metadata = self._metadata
        return self._unsettled is not None and is_unsettled(
            metadata.image, self._runtime.node_id, self._unsettled, metadata.rules_of
        )

    # Leaving.

    async def hand_over(self) -> bool:
        """Lets the others take over what this broker leads, as far as they can; whether they are to get the control of
        the cluster too."""
        others = self._metadata.image.active_brokers - {self._runtime.node_id}
        config = self._runtime.config
        if not others or not config.controlled_shutdown_enable or self._own() is None:
            return False
        wait_ms = config.controlled_shutdown_max_retries * config.controlled_shutdown_retry_backoff_ms
        self._handed_over = waiting = asyncio.get_running_loop().create_future()
        began_ms = self._now_ms()
        timeout = self._runtime.wheel.schedule(began_ms + wait_ms, lambda: self._stop_waiting(all_done=False))
        self._watch_store()
        self._begin_shutdown()
        if not await waiting:
            waited_ms = self._now_ms() - began_ms
            self._runtime.log.warning("not all partitions have found another leader", waited_ms=waited_ms)
        timeout.cancel()
        self._store_timer.cancel()
        return self._store_answers

    def _watch_store(self) -> None:
        """Gives up handing over when the store has not taken it, or has not answered, for some time."""

        def check() -> None:
            own = self._own()
            if not self._store_answers or own is None or own.state is not BrokerState.STOPPING:
                self._stop_waiting(all_done=False)
            else:
                self._watch_store()

        self._store_timer = self._runtime.wheel.schedule(self._now_ms() + STORE_TIMEOUT_MS, check)

    def _stop_waiting(self, *, all_done: bool) -> None:
        if self._handed_over is not None and not self._handed_over.done():
            self._handed_over.set_result(all_done)

    def _begin_shutdown(self) -> None:
        broker = self._own()
        if broker is None or self._handed_over is None or self._handed_over.done():
            return
        if broker.state is BrokerState.FENCED or self.lease_id == NO_LEASE:
            # Its session has ended: others take over without being asked. A new one is not begun for that.
            self._stop_waiting(all_done=True)
            return
        metadata = self._metadata
        seen = metadata.image.revision

        def answered(result: CommitResult) -> None:
            if self._leaving:
                return
            if isinstance(result, Conflict):
                metadata.when_applied(seen + 1, self._begin_shutdown)
            elif isinstance(result, LeaseLost):
                self._stop_waiting(all_done=True)
            elif isinstance(result, Unavailable):
                self.store_answers(result)
                self._later(RETRY_MS_MIN, self._begin_shutdown)

        metadata.commit(begin_shutdown(broker, self.lease_id), answered)

    def stop(self) -> None:
        """No session is sought any more; the present one goes on until `end` or until it expires."""
        self._leaving = True
        if self._registering is not None:
            self._registering.cancel()
        for timer in (self._keep_alive_timer, self._retry_timer):
            if timer is not None:
                timer.cancel()

    async def end(self) -> None:
        """The session goes at once, after all that is under it was given up and the logs were closed."""
        if self.lease_id == NO_LEASE:
            return
        lease_id = self.lease_id
        self._let_go()
        try:
            # Not `wait_for`, which takes other steps of the loop on other versions of Python.
            async with asyncio.timeout(SESSION_CLOSE_TIMEOUT_S):
                await ask(self._store.revoke, lease_id)
        except TimeoutError:
            self._runtime.log.warning("the metadata store does not answer, the session ends by itself")

    def _later(self, wait_ms: int, action: Callable[[], None]) -> None:
        self._retry_timer = self._runtime.wheel.schedule(self._now_ms() + wait_ms, action)

    def _now_ms(self) -> int:
        return self._runtime.clock.now_ms()
