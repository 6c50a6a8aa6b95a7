"""The cluster's metadata as this broker knows it: read from the store, followed, changed only by what comes from there.

An update runs through the broker in one order: the image is replaced, the logs follow it, the replicas, the configs,
then this broker's own place in the cluster, the controller, and at last everyone who waits for a revision. A commit is
therefore no change yet: who needs its effect waits for its revision (`when_applied`).
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from ottla.broker.config.topic import log_config, replication_rules
from ottla.broker.metadata.deleted_topics import DeletedTopics
from ottla.broker.metadata.dynamic_configs import DynamicConfigs
from ottla.broker.replicas.topic_logs import TopicLogs
from ottla.cluster.controller import TopicRules
from ottla.cluster.encoding import BROKERS
from ottla.cluster.image import NO_LEADER, MetadataImage, TopicInfo
from ottla.cluster.store import (
    Changes,
    CommitResult,
    MetadataStore,
    Snapshot,
    StoreError,
    StoreWatcher,
    Transaction,
    Unavailable,
)
from ottla.cluster.updates import ImageUpdate, applied

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.timer.wheel import TimerEntry

# Between two attempts to read a store that does not answer.
RETRY_MS = 1000


class ClusterMetadata:
    def __init__(self, broker: "Broker", store: MetadataStore) -> None:
        self.image = MetadataImage(broker.cluster_id, NO_LEADER)
        self.configs = DynamicConfigs(broker)
        self.deleted = DeletedTopics(broker)
        self.logs = TopicLogs(broker, self)
        self._broker = broker
        self._store = store
        self._follower = StoreWatcher(store, "", self.entering(self._take), self.entering(self._unreadable))
        self._retry_timer: TimerEntry | None = None
        # Told of every update after the first, before anything follows it.
        self.watchers: list[Callable[[MetadataImage, ImageUpdate], None]] = []
        self._calling = 0
        self._is_known = False
        # (revision, number, action), the number keeping those of one revision in order.
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._waiting_count = 0

    def start(self) -> None:
        """Begin to follow. With a store in this process, the image is there when this returns."""
        self._call(self._follower.start)

    def stop(self) -> None:
        """The image stays as it is, and nobody is told anything any more."""
        self._follower.stop()
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        self.deleted.stop()
        self.logs.stop()
        self._waiting.clear()

    @property
    def broker_epoch(self) -> int:
        """Of this broker's registration, -1 before."""
        return self._broker.membership.broker_epoch

    def read(self, prefix: str, done: Callable[[Snapshot | Unavailable], None]) -> None:
        """What the store has under `prefix`; `done` is called as an event."""
        self._call(self._store.read, prefix, self.entering(done))

    def commit(self, transaction: Transaction, done: Callable[[CommitResult], None]) -> None:
        """One transaction to the store; `done` is called as an event, maybe before this returns."""
        self._call(self._store.commit, transaction.expected, transaction.changes, self.entering(done))

    def when_applied(self, revision: int, action: Callable[[], None]) -> None:
        """Runs `action` once the image has come to `revision`: at once if it has."""
        if self.image.revision >= revision:
            action()
            return
        self._waiting_count += 1
        heappush(self._waiting, (revision, self._waiting_count, action))

    def when_brokers_are_known(self, action: Callable[[], None]) -> None:
        """Runs `action` once the image has every broker that is registered by now, or the store does not answer.

        A client may know of a broker, which told it that it is ready, before this one does."""

        def read(registered: Snapshot | Unavailable) -> None:
            if isinstance(registered, Snapshot):
                self.when_applied(max((entry.revision for entry in registered.entries), default=0), action)
            else:
                action()

        self.read(BROKERS, read)

    def rules_of(self, topic: TopicInfo) -> TopicRules:
        return TopicRules(*replication_rules(topic.configs, self._broker.config))

    def entering(self, action: Callable[..., None]) -> Callable[..., None]:
        """`action` as a callback for the store: an event of the broker, or a part of the one that called the store."""

        def enter(*arguments: Any) -> None:
            self._broker.guard(action, *arguments)
            if not self._calling:
                self._broker.end_event()

        return enter

    def _call(self, method: Callable[..., None], *arguments: Any) -> None:
        self._calling += 1
        try:
            method(*arguments)
        finally:
            self._calling -= 1

    # What the follower delivers.

    def _take(self, event: Snapshot | Changes) -> None:
        before = self.image
        try:
            update = applied(before, event)
            configs_changed = self.configs.take(event)
            self.deleted.take(event)
        except StoreError as error:
            self._broker.membership.failed(str(error))
            return
        # No append may be queued while a replica takes a new state.
        self._broker.end_event()
        self.image = update.image
        if self._is_known:
            for watcher in self.watchers:
                self._broker.guard(watcher, before, update)
        else:
            self._is_known = True
            self._broker.guard(self.deleted.finish)
        for step in (
            lambda: self.logs.follow(before, update),
            lambda: self._broker.replicas.metadata_applied(update),
            lambda: self._configure(before, update, all_topics=configs_changed),
            self._broker.membership.follow,
            lambda: self._broker.controlling.follow(before, update),
        ):
            self._broker.guard(step)
        self._wake(update.image.revision)

    def _configure(self, before: MetadataImage, update: ImageUpdate, *, all_topics: bool) -> None:
        if all_topics:
            # They are the defaults of every topic that has no value of its own.
            self.configs.apply()
            self._broker.housekeeping.configured()
        for name in self.image.topics if all_topics else update.topics:
            old, new = before.topic(name), self.image.topic(name)
            if new is not None and (all_topics or (old is not None and old.configs != new.configs)):
                self._broker.replicas.configure(name, log_config(new.configs, self._broker.config))

    def _wake(self, revision: int) -> None:
        while self._waiting and self._waiting[0][0] <= revision:
            self._broker.guard(heappop(self._waiting)[2])

    def _unreadable(self, why: Unavailable) -> None:
        self._broker.membership.store_answers(why)
        self._retry_timer = self._broker.wheel.schedule(self._broker.clock.now_ms() + RETRY_MS, self.start)
