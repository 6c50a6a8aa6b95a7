"""The loaders of both coordinators: the group coordinator is imported by most brokers, that of transactions by few."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.broker.config.coordinator_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from ottla.broker.coordinators.coordinator_loader import CoordinatorLoader
from ottla.broker.runtime import Runtime

if TYPE_CHECKING:
    from ottla.broker.coordinators.coordinator_topic import MetadataCache, Replicas
    from ottla.broker.coordinators.group_coordinator import GroupCoordinator, TransactionParticipation
    from ottla.broker.coordinators.transaction_coordinator import TransactionCoordinator
    from ottla.coordinator.durable_state import LoggedOffset, TopicPartition
    from ottla.coordinator.group_shard import GroupShard  # noqa: F401 - of a base class
    from ottla.coordinator.transactions.shard import TransactionShard  # noqa: F401 - of a base class

GROUP_MODULES = ("ottla.broker.coordinators.group_coordinator",)
TRANSACTION_MODULES = (
    "ottla.broker.coordinators.transaction_coordinator",
    "ottla.broker.coordinators.marker_sender",
    "ottla.broker.handlers.write_txn_markers",
)


class GroupCoordinatorLoader(CoordinatorLoader["GroupCoordinator", "GroupShard"]):
    def __init__(
        self,
        runtime: Runtime,
        replicas: "Replicas",
        metadata: "MetadataCache",
        *,
        ensure_topic: Callable[[], None],
        participation: "TransactionParticipation",
        may_be_deposed: Callable[[], bool],
    ) -> None:
        """`ensure_topic` starts the creation of `__consumer_offsets` where it is missing; `may_be_deposed` says whether
        another broker may lead what this one leads by now."""
        super().__init__(OFFSETS_TOPIC.name, GROUP_MODULES, runtime, metadata)
        self._replicas = replicas
        self._ensure_topic = ensure_topic
        self._participation = participation
        self._may_be_deposed = may_be_deposed

    def _make(self) -> "GroupCoordinator":
        from ottla.broker.coordinators.group_coordinator import GroupCoordinator

        return GroupCoordinator(
            self.topic_name,
            self._runtime,
            self._replicas,
            self._metadata,
            ensure_topic=self._ensure_topic,
            participation=self._participation,
            may_be_deposed=self._may_be_deposed,
        )

    def committed_offsets(self) -> "Iterable[tuple[str, bool, Mapping[TopicPartition, LoggedOffset]]]":
        """Each group here that is loaded, whether it has members, and what it has committed."""
        return () if self._made is None else self._made.committed_offsets()

    # What happens in the cluster.

    def log_failed(self, index: int) -> None:
        """Its groups live on as they are: what a member was refused it asks for again, here or elsewhere."""

    def on_marker(
        self,
        topic: str,
        index: int,
        producer_id: int,
        producer_epoch: int,  # noqa: ARG002
        commit: bool,
    ) -> None:
        """The high watermark has passed a marker, in the order of the log; of other topics it concerns no group.

        A coordinator that is made later reads it from the log. The epoch was checked when it was appended."""
        if self._made is not None and topic == self.topic_name:
            self._made.complete_transaction(index, producer_id, commit=commit)

    def topics_deleted(self, names: Sequence[str]) -> None:
        """§9.7.4: groups lose their offsets of these topics."""
        # Without `__consumer_offsets`, no group has committed any.
        if self.topic_exists:
            self.coordinator.topics_deleted(names)


class TransactionCoordinatorLoader(CoordinatorLoader["TransactionCoordinator", "TransactionShard"]):
    def __init__(
        self, runtime: Runtime, metadata: "MetadataCache", make: "Callable[[], TransactionCoordinator]"
    ) -> None:
        super().__init__(TRANSACTION_TOPIC.name, TRANSACTION_MODULES, runtime, metadata)
        self._make_coordinator = make

    def _make(self) -> "TransactionCoordinator":
        return self._make_coordinator()

    def log_failed(self, index: int) -> None:
        """A decision that was refused may be committed all the same, when followers have copied it: from now on it
        counts as if another broker had led."""
        if self._made is not None:
            self._made.topic.load_again(index)
