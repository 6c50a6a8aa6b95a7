"""The controller of the cluster, for as long as this broker is it.

Any broker claims the role when no broker has it. The controller decides who leads partitions, and which replicas they
have, when brokers come, go or ask to stop, and commits that; a decision on an image that was no longer true is refused
by the store, and made again on the next one. While transactions are under way, what happens is collected.

The partitions of a broker may be thousands: they are decided on and committed a transaction at a time, so that other
clients are served in between.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable

from ottla.broker.config.topic import replication_rules
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.runtime import Runtime, TimeLimit, next_step
from ottla.cluster.controller import (
    BrokerChanged,
    ControllerEvent,
    PartitionChange,
    Tick,
    TopicChanged,
    TopicRules,
    by_topic,
    decisions,
    leader_change,
    transactions,
)
from ottla.cluster.image import NO_LEADER, MetadataImage
from ottla.cluster.registration import claim_controller, resign_controller
from ottla.cluster.store import NO_LEASE, CommitResult, Committed, Conflict, Unavailable
from ottla.cluster.updates import ImageUpdate
from ottla.timer.clock import TimerKind
from ottla.timer.wheel import TimerEntry

RETRY_MS = 1000
# How long a broker that stops waits for the store; otherwise the role is free when its session has ended.
RESIGN_TIMEOUT_MS = 2000


class ControllerRole:
    def __init__(self, runtime: Runtime, metadata: ClusterMetadata, lease_id: Callable[[], int]) -> None:
        """`lease_id` gives the lease of this broker's session, or NO_LEASE."""
        self._runtime = runtime
        self._metadata = metadata
        self._lease_id = lease_id
        # In the order in which they happened.
        self._events: dict[ControllerEvent, None] = {}
        self._claiming: asyncio.Task[None] | None = None
        self._deciding: asyncio.Task[None] | None = None
        self._resigned = False
        self.leader_changes: Counter[str] = Counter()
        """That this broker has made as controller, by reason."""
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
        self._maybe_decide()

    def stop(self) -> None:
        """Decides nothing any more; another broker may claim the role."""
        self._resigned = True
        self._stop_timers()

    async def resign(self) -> None:
        """Gives the role up now, if this broker has it, and not only with its session."""
        if not self.is_controller:
            self.stop()
            return
        transaction = resign_controller(self._metadata.image)
        self.stop()
        with contextlib.suppress(TimeoutError), TimeLimit(self._runtime, RESIGN_TIMEOUT_MS):
            await self._metadata.commit(transaction)

    def _maybe_claim(self) -> None:
        if self._claiming is None and self._may_claim():
            self._claiming = self._runtime.spawn(self._claim(), "claim of the controller role")

    def _may_claim(self) -> bool:
        image = self._metadata.image
        broker = image.brokers.get(self._runtime.node_id)
        has_session = broker is not None and broker.session_revision > 0 and self._lease_id() != NO_LEASE
        return image.controller_id == NO_LEADER and has_session and not self._resigned

    async def _claim(self) -> None:
        metadata = self._metadata
        try:
            while self._may_claim():
                image = metadata.image
                result = await metadata.commit(claim_controller(image, self._runtime.node_id, self._lease_id()))
                if isinstance(result, Unavailable):
                    self._retry_later()
                if not isinstance(result, Conflict):
                    return
                await metadata.applied(image.revision + 1)
        finally:
            self._claiming = None

    def _begin(self) -> None:
        # For a broker by itself it is not worth a line, and the import of a log would take half the time of its start.
        if len(self._metadata.image.brokers) > 1:
            self._runtime.log.metadata.info(
                "this broker is the controller", epoch=self._metadata.image.controller_epoch
            )
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

    def _maybe_decide(self) -> None:
        if self._deciding is None and self._events and self.is_controller:
            self._deciding = self._runtime.spawn(self._decide(), "controller")

    async def _decide(self) -> None:
        try:
            while self._events and self.is_controller:
                image = self._metadata.image
                events, self._events = self._events, {}
                results = await self._commit_decisions(image, events)
                refused = [result for result in results if not isinstance(result, Committed)]
                if refused:
                    # Everything is looked at again: by now it may be another image.
                    self._events[Tick()] = None
                if not all(isinstance(result, Conflict) for result in refused):
                    self._retry_later()
                    return
                shown = [result.revision for result in results if isinstance(result, Committed)]
                await self._metadata.applied(max(shown, default=image.revision + 1 if refused else 0))
        finally:
            self._deciding = None

    async def _commit_decisions(self, image: MetadataImage, events: dict[ControllerEvent, None]) -> list[CommitResult]:
        """The next decisions are made while the store takes those before them."""
        commits: list[asyncio.Task[CommitResult]] = []
        for changes in decisions(image, events, self._metadata.rules_of):
            if changes:
                commits.append(self._runtime.spawn(self._commit(changes, image), "partition changes"))
            await next_step()
            if not self.is_controller:
                break
        return [await commit for commit in commits]

    async def _commit(self, changes: list[PartitionChange], image: MetadataImage) -> CommitResult:
        (transaction,) = transactions(changes, image)
        result = await self._metadata.commit(transaction)
        if isinstance(result, Committed):
            self._log(changes)
            self._count(changes, image)
        return result

    def _retry_later(self) -> None:
        if not self._resigned and (self._retry_timer is None or not self._retry_timer.pending):
            self._retry_timer = self._runtime.schedule(RETRY_MS, self._retry)

    def _retry(self) -> None:
        self._maybe_claim()
        self._maybe_decide()

    def _log(self, changes: list[PartitionChange]) -> None:
        for is_lossy in (True, False):
            log = self._runtime.log.metadata.warning if is_lossy else self._runtime.log.metadata.info
            alike = (each for each in changes if (each.loses_records or each.by_longest_log) is is_lossy)
            for (topic, reason), partitions in by_topic(alike, _reason).items():
                log("partitions changed", topic=topic, partitions=partitions, reason=reason)

    def _count(self, changes: list[PartitionChange], image: MetadataImage) -> None:
        for change in changes:
            reason = leader_change(change, image)
            if reason is not None:
                self.leader_changes[reason] += 1

    def _schedule_balance(self) -> None:
        if self._runtime.config.auto_leader_rebalance_enable:
            interval_ms = self._runtime.config.leader_imbalance_check_interval_seconds * 1000
            self._balance_timer = self._runtime.schedule(interval_ms, self._balance, TimerKind.LEADER_BALANCE)

    def _balance(self) -> None:
        self._schedule_balance()
        # A broker by itself leads whatever can be led.
        if len(self._metadata.image.brokers) > 1:
            self._events[Tick(balance=True)] = None
            self._maybe_decide()


def _reason(change: PartitionChange) -> str:
    return change.reason


def _must_reevaluate(before: MetadataImage, after: MetadataImage, name: str) -> bool:
    """A topic whose configs or replicas are others. What its leaders did to the ISR was decided by them."""
    old, new = before.topic(name), after.topic(name)
    if old is None or new is None:
        return new is not None
    return old.configs != new.configs or any(
        was is not now and was.replicas != now.replicas
        for was, now in zip(old.partitions, new.partitions, strict=False)
    )
