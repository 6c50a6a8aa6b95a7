"""This broker's life in its cluster: it registers, becomes active, hands over, and leaves.

What it does next is said by the image: one in which nothing of an earlier life is left to be done makes it active, one
that shows its session ended makes it register again. A broker that was cut off is fenced by others, who then take over
what it led; by itself it stops nothing, for it cannot complete what the others would not see (§19.4.5).
"""

import asyncio

from ottla.broker.metadata.broker_registration import BootRecord, BrokerRegistration, SeenProducerIds
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.metadata.store_bootstrap import RETRY_MS_MAX, RETRY_MS_MIN
from ottla.broker.runtime import Runtime, StartError, TimeLimit, complete, next_step
from ottla.cluster.controller import is_unfinished, may_hand_over, may_stop, unfinished
from ottla.cluster.image import BrokerInfo, BrokerState, Listener, MetadataImage
from ottla.cluster.registration import activate, begin_shutdown
from ottla.cluster.store import NO_LEASE, Conflict, LeaseLost, MetadataStore, Unavailable
from ottla.cluster.updates import ImageUpdate
from ottla.storage.log_directory import LogDirectory

# How long a broker that stops waits for a store that does not answer, before it hands over nothing.
STORE_TIMEOUT_MS = 2000


class BrokerLifecycle:
    def __init__(
        self,
        runtime: Runtime,
        metadata: ClusterMetadata,
        store: MetadataStore,
        directory: LogDirectory,
        boot: BootRecord,
        producer_ids: SeenProducerIds,
    ) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._registration = BrokerRegistration(runtime, metadata, store, directory, boot, producer_ids, self.follow)
        self._is_activating = False
        # A partition that keeps this broker from being active.
        self._unfinished: tuple[str, int] | None = None
        self._active: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Whether all was handed over, once that is known; None while the broker does not stop.
        self._handed_over: asyncio.Future[bool] | None = None

    @property
    def broker_epoch(self) -> int:
        return self._metadata.broker_epoch

    @property
    def lease_id(self) -> int:
        """Of this broker's session, or NO_LEASE."""
        return self._registration.lease_id

    @property
    def store_errors(self) -> int:
        return self._registration.store_errors

    @property
    def store_answers(self) -> bool:
        """Whether the metadata store has answered when it was asked last."""
        return self._registration.store_answers

    @property
    def session_remaining_ms(self) -> int:
        """Until the session ends if it is not renewed."""
        return self._registration.session_remaining_ms

    @property
    def has_current_session(self) -> bool:
        """Whether no other broker can have taken over what this one leads, as long as its clock is right."""
        return self._registration.is_current

    @property
    def session_may_have_ended(self) -> bool:
        """Whether other brokers may have taken over what this one leads, unnoticed."""
        return self._registration.may_have_ended

    @property
    def state(self) -> BrokerState | None:
        """Of this broker in the metadata; None where that has another incarnation of it, or none."""
        own = self._own()
        return None if own is None else own.state

    async def join(self, endpoints: tuple[Listener, ...], *, admin_url: str, store_timeout_ms: int) -> None:
        """Returns when this broker is registered, follows the metadata, and is active. Raises StartError."""
        await self._registration.begin(endpoints, admin_url=admin_url, store_timeout_ms=store_timeout_ms)
        self._metadata.start()
        await self._active

    # The metadata store.

    def failed(self, why: str) -> None:
        """The metadata cannot be understood."""
        if self._active.done():
            self._runtime.log.metadata.error("a change of the metadata cannot be understood", why=why)
        else:
            self._active.set_exception(StartError(why))

    def store_answered(self, failure: Unavailable | None = None) -> None:
        self._registration.store_answered(failure)

    # What the image says of this broker.

    def on_metadata_update(self, before: MetadataImage, update: ImageUpdate) -> None:  # noqa: ARG002
        self.follow()

    def follow(self) -> None:
        """The image is another one: is this broker's place in it what it should be?"""
        image = self._metadata.image
        if image.revision < self._registration.revision or self._registration.registering is not None:
            return
        broker = self._own()
        if broker is None or broker.state is BrokerState.FENCED:
            self._registration.session_lost()
        elif broker.state is BrokerState.STARTING:
            self._maybe_activate(broker)
        elif not self._active.done():
            self._active.set_result(None)
        if broker is not None and broker.state is BrokerState.STOPPING and not may_hand_over(image, broker.node_id):
            self._stop_waiting(all_done=may_stop(image, broker.node_id))

    def session(self) -> tuple[BrokerInfo, int] | None:
        """This broker as the image has it, and the lease of its session; None while it has none there."""
        own, lease_id = self._own(), self._registration.lease_id
        if own is None or own.session_revision == 0 or lease_id == NO_LEASE:
            return None
        return own, lease_id

    def _own(self) -> BrokerInfo | None:
        broker = self._metadata.image.brokers.get(self._runtime.node_id)
        return broker if broker is not None and broker.incarnation == self._registration.incarnation else None

    def _maybe_activate(self, broker: BrokerInfo) -> None:
        if not self._is_activating and not self._is_held_up():
            self._is_activating = True
            self._runtime.spawn(self._activate(broker), "activation")

    async def _activate(self, broker: BrokerInfo) -> None:
        image, result = self._metadata.image, None
        try:
            self._unfinished = await self._first_unfinished(image)
            if self.lease_id == NO_LEASE:
                # The session has ended since this was decided. The next one is activated when the image has it.
                return
            if self._unfinished is None:
                result = await self._metadata.commit(activate(broker, self.lease_id))
        finally:
            self._is_activating = False
        if result is None:
            # It may be finished by now.
            self.follow()
        elif isinstance(result, Conflict):
            await self._metadata.applied(image.revision + 1)
            self.follow()
        elif isinstance(result, LeaseLost):
            self._registration.session_lost()
        elif isinstance(result, Unavailable):
            self.store_answered(result)
            await self._runtime.sleep(RETRY_MS_MAX)
            self.follow()

    async def _first_unfinished(self, image: MetadataImage) -> tuple[str, int] | None:
        """What is left of this broker's earlier life becomes less: a later image has no more of it."""
        for key in unfinished(image, self._runtime.node_id, self._metadata.rules_of):
            if key is not None:
                return key
            await next_step()
        return None

    def _is_held_up(self) -> bool:
        """By the partition that did so before: not all are looked at with every change."""
        metadata = self._metadata
        return self._unfinished is not None and is_unfinished(
            metadata.image, self._runtime.node_id, self._unfinished, metadata.rules_of
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
        began_ms = self._runtime.clock.now_ms()
        self._handed_over = waiting = asyncio.get_running_loop().create_future()
        tasks = [
            self._runtime.spawn(self._begin_shutdown(), "controlled shutdown"),
            self._runtime.spawn(self._watch_store(), "metadata store of a broker that stops"),
        ]
        try:
            with TimeLimit(self._runtime, wait_ms):
                all_done = await waiting
        except TimeoutError:
            all_done = False
        for task in tasks:
            task.cancel()
        if not all_done:
            waited_ms = self._runtime.clock.now_ms() - began_ms
            self._runtime.log.metadata.warning("not all partitions have found another leader", waited_ms=waited_ms)
        return self._registration.store_answers

    async def _watch_store(self) -> None:
        """Gives up handing over when the store has not taken it, or has not answered, for some time."""
        while True:
            await self._runtime.sleep(STORE_TIMEOUT_MS)
            own = self._own()
            if not self._registration.store_answers or own is None or own.state is not BrokerState.STOPPING:
                self._stop_waiting(all_done=False)

    def _stop_waiting(self, *, all_done: bool) -> None:
        if self._handed_over is not None:
            complete(self._handed_over, all_done)

    async def _begin_shutdown(self) -> None:
        metadata = self._metadata
        while (broker := self._own()) is not None:
            if broker.state is BrokerState.FENCED or self.lease_id == NO_LEASE:
                # Its session has ended: others take over without being asked. A new one is not begun for that.
                self._stop_waiting(all_done=True)
                return
            seen = metadata.image.revision
            result = await metadata.commit(begin_shutdown(broker, self.lease_id))
            if isinstance(result, Conflict):
                await metadata.applied(seen + 1)
            elif isinstance(result, Unavailable):
                self.store_answered(result)
                await self._runtime.sleep(RETRY_MS_MIN)
            else:
                if isinstance(result, LeaseLost):
                    self._stop_waiting(all_done=True)
                return

    def stop(self) -> None:
        """No session is sought any more; the present one goes on until `end` or until it expires."""
        self._registration.stop()

    async def end(self) -> None:
        """The session goes at once, after all that is under it was given up and the logs were closed."""
        await self._registration.end()
