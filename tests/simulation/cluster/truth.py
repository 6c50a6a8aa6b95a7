"""What the metadata store has committed, kept beside every broker's own picture of it (I-1, I-8, I-25, I-26)."""

from collections.abc import Callable
from typing import Any

from ottla.cluster.image import NO_LEADER, MetadataImage, PartitionInfo
from ottla.cluster.store import Changes, MetadataStore, Snapshot, StoreWatcher, Unavailable
from ottla.cluster.updates import ImageUpdate, applied
from tests.simulation.cluster.settings import Configs, defaults_after
from tests.simulation.judge import Judge

# Brokers are this many transactions behind at most; an image that is older is not compared any more.
IMAGES_KEPT = 2_000


class Truth:
    def __init__(self, judge: Judge, store: MetadataStore) -> None:
        self.image = MetadataImage("", NO_LEADER)
        # Server properties altered for all brokers.
        self.defaults: Configs = {}
        # Called with the partitions that have changed, by topic, after the image has.
        self.when_changed: list[Callable[[MetadataImage, ImageUpdate], None]] = []
        self._judge = judge
        self._images: dict[int, MetadataImage] = {}
        self._defaults: dict[int, Configs] = {}
        self._controllers: dict[int, int] = {}
        self._leaders: dict[tuple[bytes, int, int], int] = {}
        self._broker_epochs: dict[int, int] = {}
        StoreWatcher(store, "", self._take, self._fail).start()

    def partition(self, topic: str, index: int) -> PartitionInfo | None:
        return self.image.partition(topic, index)

    def defaults_at(self, revision: int) -> Configs | None:
        """None where the revision is not known, or too old."""
        return self._defaults.get(revision)

    def compare(self, broker: str, image: MetadataImage) -> None:
        """I-25: what a broker believes was true at the revision that its image is of."""
        known = self._images.get(image.revision)
        if known is None or known is image:
            return
        wrong = [name for name, mine, its in _facts(known, image) if mine != its]
        if wrong:
            self._judge.violated("I-25", f"{broker} has other {', '.join(wrong)} at revision {image.revision}")

    def _take(self, event: Snapshot | Changes) -> None:
        before, update = self.image, applied(self.image, event)
        self.image = update.image
        self.defaults = self._defaults[update.image.revision] = defaults_after(self.defaults, event)
        self._defaults.pop(update.image.revision - IMAGES_KEPT, None)
        self._images[update.image.revision] = update.image
        self._images.pop(update.image.revision - IMAGES_KEPT, None)
        self._judge.trace.note("committed", update.image.revision, dict(update.topics), update.brokers)
        self._look_at_partitions(before, update)
        self._look_at_brokers(update.image)
        for action in self.when_changed:
            action(before, update)

    def _look_at_partitions(self, before: MetadataImage, update: ImageUpdate) -> None:
        for name, indexes in update.topics.items():
            topic, old = update.image.topic(name), before.topic(name)
            if topic is None:
                continue
            for index in indexes:
                state = topic.partitions[index]
                if old is not None and old.topic_id == topic.topic_id and index < len(old.partitions):
                    self._compare_epochs(f"{name}-{index}", old.partitions[index], state)
                if state.leader != NO_LEADER:
                    key = (topic.topic_id, index, state.leader_epoch)
                    leader = self._leaders.setdefault(key, state.leader)
                    if leader != state.leader:
                        how = f"{name}-{index}: {leader} and {state.leader} lead in epoch {state.leader_epoch}"
                        self._judge.violated("I-1", how)

    def _compare_epochs(self, name: str, old: PartitionInfo, new: PartitionInfo) -> None:
        if new.partition_epoch <= old.partition_epoch or new.leader_epoch < old.leader_epoch:
            self._judge.violated("I-8", f"{name}: {old} became {new}")

    def _look_at_brokers(self, image: MetadataImage) -> None:
        if image.controller_id != NO_LEADER:
            controller = self._controllers.setdefault(image.controller_epoch, image.controller_id)
            if controller != image.controller_id:
                how = f"{controller} and {image.controller_id} control in epoch {image.controller_epoch}"
                self._judge.violated("I-26", how)
        for node_id, broker in image.brokers.items():
            if broker.epoch < self._broker_epochs.get(node_id, -1):
                self._judge.violated("I-8", f"broker epoch {broker.epoch} of {node_id} fell")
            self._broker_epochs[node_id] = broker.epoch

    def _fail(self, why: Unavailable) -> None:
        raise AssertionError(f"a store in this process is always there: {why}")


def _facts(known: MetadataImage, image: MetadataImage) -> list[tuple[str, Any, Any]]:
    return [
        ("brokers", known.brokers, image.brokers),
        ("controller", known.controller_id, image.controller_id),
        ("controller epoch", known.controller_epoch, image.controller_epoch),
        ("topics", dict(known.topics), dict(image.topics)),
        ("users", dict(known.scram_credentials), dict(image.scram_credentials)),
        ("quotas", dict(known.client_quotas), dict(image.client_quotas)),
        ("features", known.features, image.features),
        ("decoy secret", known.decoy_secret, image.decoy_secret),
    ]
