"""What the replicas of a broker need of the cluster's metadata."""

from collections.abc import Callable
from typing import Protocol

from ottla.cluster.controller import TopicRules
from ottla.cluster.image import MetadataImage, TopicInfo
from ottla.cluster.store import CommitResult, Transaction


class Metadata(Protocol):
    @property
    def image(self) -> MetadataImage: ...

    @property
    def broker_epoch(self) -> int:
        """Of this broker's registration, -1 before."""
        ...

    def rules_of(self, topic: TopicInfo) -> TopicRules: ...

    def commit(self, transaction: Transaction, done: Callable[[CommitResult], None]) -> None:
        """One transaction to the store; `done` is called as an event, maybe before this returns."""
        ...
