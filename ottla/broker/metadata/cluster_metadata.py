"""The cluster's metadata as this broker knows it: read from the store, followed, changed only by what comes from there.

An update runs through the broker in one order: the image is replaced, then the publishers get it one after the other,
in the order in which they were registered, and at last those that wait for a revision. A commit is therefore no change
yet: the caller that needs its effect waits for its revision (`applied`).

Commits are calls of coroutines that the runtime has spawned. What they decide on the image is a plan: another broker
may be quicker, and then it is made again on the image that shows what that one did.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Protocol

from ottla.broker.config.topic import replication_rules
from ottla.broker.histogram import Histogram
from ottla.broker.metadata.dynamic_configs import DynamicConfigs
from ottla.broker.runtime import Runtime, complete, next_step
from ottla.cluster.controller import TopicRules
from ottla.cluster.encoding import (
    BROKERS,
    DELETED,
    ENTRIES_PER_SLICE,
    DeletionMark,
    deletion_marks,
    topics_in_slices,
)
from ottla.cluster.image import NO_LEADER, MetadataImage, ScramUser, TopicInfo
from ottla.cluster.scram_users import scram_credentials_in_slices
from ottla.cluster.store import (
    Changes,
    CommitResult,
    Committed,
    Conflict,
    MetadataStore,
    Snapshot,
    StoreError,
    StoreWatcher,
    TooLarge,
    Transaction,
    Unavailable,
)
from ottla.cluster.updates import ImageUpdate, Understood, acls_in_slices, applied, quotas_in_slices
from ottla.protocol.errors import ErrorCode, KafkaError, KafkaStorageError, PolicyViolation, error_for
from ottla.security.scram_credential import ScramCredential
from ottla.timer.wheel import TimerEntry

if TYPE_CHECKING:
    from ottla.security.acl import AclBinding
    from ottla.security.quotas import EntityQuotas, QuotaEntity

# Between two attempts to read a store that does not answer.
RETRY_MS = 1000
# Another broker may be quicker so many times in a row.
TRIES_MAX = 10

NOT_REGISTERED = -1


class MetadataPublisher(Protocol):
    """A part of the broker that acts on changes of the metadata."""

    def on_metadata_update(self, before: MetadataImage, update: ImageUpdate) -> None: ...


class StoreListener(Protocol):
    """The part of the broker that deals with trouble with the metadata store."""

    def failed(self, why: str) -> None:
        """What the store says cannot be understood."""
        ...

    def store_answered(self, failure: Unavailable | None = None) -> None:
        """The store has answered, or failed to."""
        ...


class ClusterMetadata:
    listener: StoreListener
    """Set once, before `start`."""

    def __init__(self, runtime: Runtime, store: MetadataStore, cluster_id: str) -> None:
        self.image = MetadataImage(cluster_id, NO_LEADER)
        self.broker_epoch = NOT_REGISTERED
        """Of this broker's registration."""
        self.configs = DynamicConfigs(runtime)
        self.deletion_marks: dict[str, DeletionMark] = {}
        self.store_times = Histogram()
        """How long calls of the store have taken, until it answered or was given up."""
        self.publishers: list[MetadataPublisher] = []
        self._runtime = runtime
        self._store = store
        self._follower = StoreWatcher(store, "", self.entering(self._take), self.entering(self._unreadable))
        self._retry_timer: TimerEntry | None = None
        # Called with every update after the first, before the publishers.
        self.watchers: list[Callable[[MetadataImage, ImageUpdate], None]] = []
        self._calling = 0
        self._is_known = False
        # What the store has said and when, and is not in the image yet, while topics are parsed in several steps.
        self._arrived: deque[tuple[Snapshot | Changes, int]] = deque()
        self._taking: asyncio.Task[None] | None = None
        # (revision, number, future, since when), the number keeping those of one revision in order.
        self._waiting: list[tuple[int, int, asyncio.Future[None], int]] = []
        self._waiting_count = 0

    def start(self) -> None:
        """Begin to follow. With a store in this process that has little, the image is there when this returns."""
        self._call(self._follower.start)

    def stop(self) -> None:
        """The image stays as it is; what waits for another one is cancelled by the runtime."""
        self._follower.stop()
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        self._arrived.clear()
        self._waiting.clear()

    async def read(self, prefix: str) -> Snapshot | Unavailable:
        """What the store has under `prefix`."""
        found: Snapshot | Unavailable = await self.ask(self._store.read, prefix)
        return found

    async def catch_up(self, prefix: str) -> None:
        """Returns once the image has what the store has under `prefix` by now: another broker may have acknowledged
        what this one has not heard of. Raises the KafkaError of a store that does not answer."""
        stored = await self.read(prefix)
        if isinstance(stored, Unavailable):
            raise not_committed(stored)
        await self.applied(stored.last_changed)

    async def commit(self, transaction: Transaction) -> CommitResult:
        """One transaction to the store."""
        result: CommitResult = await self.ask(self._store.commit, transaction.expected, transaction.changes)
        return result

    async def commit_planned(
        self, plan: Callable[[], Transaction], refusal: "Callable[[CommitResult], KafkaError] | None" = None
    ) -> None:
        """Commits what is planned on the image, and returns when the image shows it.

        Raises what the plan raises; and the KafkaError that `refusal` makes of the store's answer, where it does not
        take the transaction or another broker has been quicker again and again."""
        for tries_left in reversed(range(TRIES_MAX)):
            seen = self.image.revision
            transaction = plan()
            if not transaction.changes:
                return
            result = await self.commit(transaction)
            if isinstance(result, Committed):
                await self.applied(result.revision)
                return
            if not isinstance(result, Conflict) or not tries_left:
                raise (refusal or _refusal)(result)
            await self.applied(seen + 1)

    async def applied(self, revision: int) -> None:
        """Returns once the image has come to `revision`."""
        if self.image.revision >= revision:
            return
        self._waiting_count += 1
        has_come: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (revision, self._waiting_count, has_come, self._runtime.clock.now_ms()))
        await has_come

    @property
    def apply_lag_ms(self) -> int:
        """How long the oldest change is known to be in the store, or on its way from there, and is not in the image."""
        since_ms = [arrived_ms for _, arrived_ms in self._arrived]
        since_ms += [asked_ms for _, _, has_come, asked_ms in self._waiting if not has_come.done()]
        return self._runtime.clock.now_ms() - min(since_ms) if since_ms else 0

    async def brokers_known(self) -> None:
        """Returns once the image has every broker that is registered by now, or the store does not answer.

        A client may know of a broker that is ready before this one does."""
        registered = await self.read(BROKERS)
        if isinstance(registered, Snapshot):
            await self.applied(registered.last_changed)

    def rules_of(self, topic: TopicInfo) -> TopicRules:
        return TopicRules(*replication_rules(topic.configs, self._runtime.config))

    def entering(self, action: Callable[..., None]) -> Callable[..., None]:
        """`action` as a callback for the store: an event of the broker, or a part of the one that called the store."""

        def enter(*arguments: Any) -> None:
            self._runtime.guard(action, *arguments)
            if not self._calling:
                self._runtime.end_event()

        return enter

    async def ask(self, method: Callable[..., None], *arguments: Any) -> Any:
        """What a method of the store answers."""
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        began_ns = self._runtime.clock.now_ns()
        self._call(method, *arguments, partial(complete, answered))
        result = await answered
        self.store_times.observe(self._runtime.clock.now_ns() - began_ns)
        return result

    def _call(self, method: Callable[..., None], *arguments: Any) -> None:
        self._calling += 1
        try:
            method(*arguments)
        finally:
            self._calling -= 1

    # What the follower delivers.

    def _take(self, event: Snapshot | Changes) -> None:
        if self._taking is None and not _is_long(event):
            self._apply(event)
            return
        self._arrived.append((event, self._runtime.clock.now_ms()))
        if self._taking is None:
            self._taking = self._runtime.spawn(self._take_arrived(), "snapshot of the metadata")

    async def _take_arrived(self) -> None:
        """A long snapshot is understood in several steps, and becomes the image in one. What the store says in between
        waits for it."""
        try:
            while self._arrived:
                event, _ = self._arrived[0]
                update = await self._understood(event) if isinstance(event, Snapshot) else None
                if self._arrived:
                    self._runtime.guard(self._apply, self._arrived.popleft()[0], update)
                await next_step()
        finally:
            self._taking = None

    async def _understood(self, snapshot: Snapshot) -> ImageUpdate | None:
        """None where it cannot be understood: that is said when it is applied."""
        topics: list[TopicInfo] = []
        credentials: dict[ScramUser, ScramCredential] = {}
        acls: dict[str, AclBinding] = {}
        quotas: dict[QuotaEntity, EntityQuotas] = {}
        try:
            for some in topics_in_slices(snapshot.entries):
                topics += some
                await next_step()
            for others in scram_credentials_in_slices(snapshot.entries):
                credentials |= others
                await next_step()
            for more in acls_in_slices(snapshot.entries):
                acls |= more
                await next_step()
            for further in quotas_in_slices(snapshot.entries):
                quotas |= further
                await next_step()
            update = applied(self.image, snapshot, Understood(topics, credentials, acls, quotas))
        except StoreError:
            return None
        await next_step()
        return update

    def _apply(self, event: Snapshot | Changes, update: ImageUpdate | None = None) -> None:
        """`update` is what the event makes of the image, where that is known already."""
        before = self.image
        try:
            update = update or applied(before, event)
            self.configs.take(event)
            self._take_marks(event)
        except StoreError as error:
            self.listener.failed(str(error))
            return
        # No append may be queued while a replica takes a new state.
        self._runtime.end_event()
        self.image = update.image
        if self._is_known:
            for watcher in self.watchers:
                self._runtime.guard(watcher, before, update)
        else:
            self._is_known = True
        for publisher in self.publishers:
            self._runtime.guard(publisher.on_metadata_update, before, update)
        self._wake(update.image.revision)

    def _take_marks(self, event: Snapshot | Changes) -> None:
        if isinstance(event, Snapshot):
            self.deletion_marks = {mark.key: mark for mark in deletion_marks(event.entries)}
            return
        self.deletion_marks |= {mark.key: mark for mark in deletion_marks(event.puts)}
        for key in event.deletes:
            if key.startswith(DELETED):
                self.deletion_marks.pop(key, None)

    def _wake(self, revision: int) -> None:
        while self._waiting and self._waiting[0][0] <= revision:
            complete(heappop(self._waiting)[2], None)

    def _unreadable(self, why: Unavailable) -> None:
        self.listener.store_answered(why)
        self._retry_timer = self._runtime.wheel.schedule(self._runtime.clock.now_ms() + RETRY_MS, self.start)


def _is_long(event: Snapshot | Changes) -> bool:
    return isinstance(event, Snapshot) and len(event.entries) > ENTRIES_PER_SLICE


def not_committed(result: CommitResult, fewer: str = "change less in one request") -> KafkaError:
    """Why an administrator's change was not made. `fewer`: what to do where it is too large for one transaction."""
    if isinstance(result, TooLarge):
        return PolicyViolation(f"{result.reason}: {fewer}")
    why = f"the metadata store does not answer: {result.reason}" if isinstance(result, Unavailable) else "try again"
    return error_for(ErrorCode.REQUEST_TIMED_OUT, why)


def _refusal(result: CommitResult) -> KafkaError:
    if isinstance(result, Conflict):
        return error_for(ErrorCode.NOT_CONTROLLER, f"{result.key} was changed by another broker, try again")
    if isinstance(result, TooLarge):
        return PolicyViolation(f"{result.reason}: create it with fewer partitions, and add the others later")
    return KafkaStorageError(result.reason if isinstance(result, Unavailable) else "a lease was lost")
