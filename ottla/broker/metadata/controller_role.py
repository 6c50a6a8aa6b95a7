"""The controller of the cluster, for as long as this broker is it.

Any broker claims the place when it is empty. The one that has it decides what becomes of partitions when brokers come,
go or ask to stop, and commits that; a decision on an image that was no longer true is refused by the store, and made
again on the next one. While transactions are under way, what happens is collected.

The partitions of a broker may be thousands: what becomes of them is decided and committed a transaction at a time, so
that others are served in between.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ottla.broker.config.topic import replication_rules
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.runtime import Runtime
from ottla.cluster.controller import (
    BrokerChanged,
    ControllerEvent,
    PartitionChange,
    Tick,
    TopicChanged,
    TopicRules,
    decisions,
    transactions,
)
from ottla.cluster.image import NO_LEADER, MetadataImage
from ottla.cluster.registration import claim_controller, resign_controller
from ottla.cluster.store import NO_LEASE, CommitResult, Committed, Conflict, Unavailable
from ottla.cluster.updates import ImageUpdate

if TYPE_CHECKING:
    from ottla.timer.wheel import TimerEntry

RETRY_MS = 1000
# How long a broker that stops waits for the store to take note; the place becomes empty with its session otherwise.
RESIGN_TIMEOUT_S = 2.0


class ControllerRole:
    def __init__(self, runtime: Runtime, metadata: ClusterMetadata, lease_id: Callable[[], int]) -> None:
        """`lease_id` gives the lease of this broker's session, or NO_LEASE."""
        self._runtime = runtime
        self._metadata = metadata
        self._lease_id = lease_id
        # In the order in which they happened.
        self._events: dict[ControllerEvent, None] = {}
        self._under_way = 0
        self._decided_at = 0
        self._committed_at = 0
        self._claiming = False
        self._resigned = False
        # Of topics without configs of their own, as of the last image.
        self._default_rules = self._rules_now()
        self._balance_timer: TimerEntry | None = None
        self._retry_timer: TimerEntry | None = None

    @property
    def is_controller(self) -> bool:
        return self._metadata.image.controller_id == self._runtime.node_id and not self._resigned

    def on_metadata_update(self, before: MetadataImage, update: ImageUpdate) -> None:
        if update.image.controller_id == NO_LEADER:
            self._maybe_claim()
        if not self.is_controller:
            self._stop_timers()
            return
        if update.controller_changed:
            self._begin()
        if self._default_rules != (rules := self._rules_now()):
            self._default_rules = rules
            self._events[Tick()] = None
        for node_id in update.brokers:
            self._events[BrokerChanged(node_id)] = None
        for name in update.topics:
            if _must_reevaluate(before, update.image, name):
                self._events[TopicChanged(name)] = None
        self._decide()

    def stop(self) -> None:
        """Decides nothing any more, and leaves the place to whoever finds it empty."""
        self._resigned = True
        self._stop_timers()

    async def resign(self) -> None:
        """Gives the place up now, if this broker has it, and not only with its session."""
        if not self.is_controller:
            self.stop()
            return
        answered: asyncio.Future[CommitResult] = asyncio.get_running_loop().create_future()
        transaction = resign_controller(self._metadata.image)
        self.stop()
        self._metadata.commit(transaction, lambda result: None if answered.done() else answered.set_result(result))
        with contextlib.suppress(TimeoutError):
            # Not `wait_for`, which takes other steps of the loop on other versions of Python.
            async with asyncio.timeout(RESIGN_TIMEOUT_S):
                await answered

    def _maybe_claim(self) -> None:
        node_id = self._runtime.node_id
        lease_id = self._lease_id()
        broker = self._metadata.image.brokers.get(node_id)
        has_session = broker is not None and broker.session_revision > 0 and lease_id != NO_LEASE
        if not has_session or self._claiming or self._resigned:
            return
        self._claiming = True
        seen = self._metadata.image.revision

        def answered(result: CommitResult) -> None:
            self._claiming = False
            if isinstance(result, Unavailable):
                self._retry_later()
            elif isinstance(result, Conflict):
                self._metadata.when_applied(seen + 1, self._look_again)

        self._metadata.commit(claim_controller(self._metadata.image, node_id, lease_id), answered)

    def _begin(self) -> None:
        # Of a broker by itself that is no news, and the import of a log would take half the time of its start.
        if len(self._metadata.image.brokers) > 1:
            self._runtime.log.info("this broker is the controller", epoch=self._metadata.image.controller_epoch)
        self._events = {Tick(): None}
        self._schedule_balance()

    def _rules_now(self) -> TopicRules:
        return TopicRules(*replication_rules({}, self._runtime.config))

    def _stop_timers(self) -> None:
        self._events.clear()
        for timer in (self._balance_timer, self._retry_timer):
            if timer is not None:
                timer.cancel()

    # Deciding.

    def _decide(self) -> None:
        if self._under_way or not self._events or not self.is_controller:
            return
        image = self._metadata.image
        events, self._events = self._events, {}
        self._decided_at = image.revision
        # One for the decisions that are still to come.
        self._under_way = 1
        self._commit_next(decisions(image, events, self._metadata.rules_of), image)

    def _commit_next(self, decided: Iterator[list[PartitionChange]], image: MetadataImage) -> None:
        self._under_way -= 1
        changes = next(decided, None) if self.is_controller else None
        if changes is None:
            self._metadata.when_applied(self._committed_at, self._decide)
            return
        (transaction,) = transactions(changes, image)
        self._under_way += 2
        self._metadata.commit(transaction, lambda result: self._answered(result, changes))
        self._runtime.soon(lambda: self._commit_next(decided, image))

    def _answered(self, result: CommitResult, changes: list[PartitionChange]) -> None:
        self._under_way -= 1
        if isinstance(result, Committed):
            self._log(changes)
            self._committed_at = result.revision
            self._metadata.when_applied(result.revision, self._decide)
            return
        # Everything is looked at again: by now it may be another image.
        self._events[Tick()] = None
        if isinstance(result, Conflict):
            self._metadata.when_applied(self._decided_at + 1, self._decide)
        else:
            self._retry_later()

    def _log(self, changes: list[PartitionChange]) -> None:
        for change in changes:
            is_lossy = change.loses_records or change.by_longest_log
            log = self._runtime.log.warning if is_lossy else self._runtime.log.info
            log("partition changed", topic=change.topic, partition=change.index, reason=change.reason)

    # Later.

    def _retry_later(self) -> None:
        if self._resigned or (self._retry_timer is not None and self._retry_timer.pending):
            return
        self._retry_timer = self._runtime.wheel.schedule(self._runtime.clock.now_ms() + RETRY_MS, self._look_again)

    def _look_again(self) -> None:
        if self._metadata.image.controller_id == NO_LEADER:
            self._maybe_claim()
        self._decide()

    def _schedule_balance(self) -> None:
        if self._runtime.config.auto_leader_rebalance_enable:
            interval_ms = self._runtime.config.leader_imbalance_check_interval_seconds * 1000
            self._balance_timer = self._runtime.wheel.schedule(
                self._runtime.clock.now_ms() + interval_ms, self._balance
            )

    def _balance(self) -> None:
        self._schedule_balance()
        # A broker by itself leads whatever can be led.
        if len(self._metadata.image.brokers) > 1:
            self._events[Tick(balance=True)] = None
            self._decide()


def _must_reevaluate(before: MetadataImage, after: MetadataImage, name: str) -> bool:
    """A topic whose configs or replicas are others. What its leaders did to the ISR was decided by them."""
    old, new = before.topic(name), after.topic(name)
    if old is None or new is None:
        return new is not None
    return old.configs != new.configs or any(
        was is not now and was.replicas != now.replicas
        for was, now in zip(old.partitions, new.partitions, strict=False)
    )
