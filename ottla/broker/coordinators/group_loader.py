"""The group coordinator, made when it is first needed: its import takes longer than the rest of a broker's start.

Until then this part stands in for it: it watches the leadership of `__consumer_offsets`, and starts the import, in a
thread, when a partition of that topic is led here or a client looks for a coordinator.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from ottla.broker.config.coordinator_topics import OFFSETS_TOPIC
from ottla.broker.runtime import Runtime, complete

if TYPE_CHECKING:
    from ottla.broker.coordinators.coordinator_topic import MetadataCache, Replicas
    from ottla.broker.coordinators.group_coordinator import GroupCoordinator, TransactionParticipation
    from ottla.broker.coordinators.hosted_partition import HostedPartition
    from ottla.coordinator.durable_state import LoggedOffset, TopicPartition
    from ottla.coordinator.group_shard import GroupShard

COORDINATOR = "ottla.broker.coordinators.group_coordinator"


class GroupCoordinatorLoader:
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
        self.topic_name = OFFSETS_TOPIC.name
        # Called once each, with the coordinator, before it serves.
        self.when_made: list[Callable[[GroupCoordinator], None]] = []
        self.modules = [COORDINATOR]
        """What a thread imports before it is made."""
        self._runtime = runtime
        self._replicas = replicas
        self._metadata = metadata
        self._ensure_topic = ensure_topic
        self._participation = participation
        self._may_be_deposed = may_be_deposed
        self._groups: GroupCoordinator | None = None
        self._is_importing = False
        self._waiting: list[asyncio.Future[None]] = []

    # Life.

    def start(self) -> None:
        """The broker serves from now on."""
        if self._groups is not None:
            self._groups.start()
        elif self.topic_exists:
            self.prepare()

    def stop(self) -> None:
        if self._groups is not None:
            self._groups.stop()

    def stop_loading(self) -> None:
        """Ends at once, as a killed process does."""
        if self._groups is not None:
            self._groups.topic.stop_loading()

    # The coordinator.

    @property
    def groups(self) -> "GroupCoordinator":
        """The coordinator; it is imported now if `prepare` has not done that."""
        if self._groups is None:
            from ottla.broker.coordinators.group_coordinator import GroupCoordinator

            groups = self._groups = GroupCoordinator(
                self.topic_name,
                self._runtime,
                self._replicas,
                self._metadata,
                ensure_topic=self._ensure_topic,
                participation=self._participation,
                may_be_deposed=self._may_be_deposed,
            )
            for action in self.when_made:
                action(groups)
            if self._runtime.is_serving:
                groups.start()
        return self._groups

    def prepare(self) -> "GroupCoordinator | None":
        """The coordinator, or None while a thread imports it."""
        if self._groups is None and not self._is_importing:
            self._is_importing = True
            self._runtime.offload(self._import, self._imported)
        return self._groups

    async def prepared(self) -> None:
        """Returns when the coordinator is made, or could not be."""
        if self.prepare() is None:
            self._waiting.append(imported := asyncio.get_running_loop().create_future())
            await imported

    def _import(self) -> None:
        for name in self.modules:
            import_module(name)

    def _imported(self) -> None:
        # A broker that accepts no requests for a moment makes it when it is asked for afterwards.
        self._is_importing = False
        if self._runtime.is_serving:
            assert self.groups is not None, "asking for it makes and starts it"
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            complete(each, None)

    @property
    def topic_exists(self) -> bool:
        return self._metadata.image.topic(self.topic_name) is not None

    def loaded_shards(self) -> "list[GroupShard]":
        """The groups of each partition that is served here."""
        if self._groups is None:
            return []
        return [hosted.coordinator.shard for hosted in self._groups.topic if not hosted.is_loading]

    def loading(self) -> "list[HostedPartition[GroupShard]]":
        """The partitions of the topic that are being loaded."""
        return [] if self._groups is None else [hosted for hosted in self._groups.topic if hosted.is_loading]

    def committed_offsets(self) -> "Iterable[tuple[str, bool, Mapping[TopicPartition, LoggedOffset]]]":
        """Each group here that is loaded, whether it has members, and what it has committed."""
        return () if self._groups is None else self._groups.committed_offsets()

    # What happens in the cluster.

    def elected(self, index: int) -> None:
        if self._groups is not None:
            self._groups.topic.elected(index)
        elif self._runtime.is_serving:
            self.prepare()

    def resigned(self, index: int) -> None:
        if self._groups is not None:
            self._groups.topic.resigned(index)

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
        if self._groups is not None and topic == self.topic_name:
            self._groups.complete_transaction(index, producer_id, commit=commit)

    def topics_deleted(self, names: Sequence[str]) -> None:
        """§9.7.4: groups lose their offsets of these topics."""
        # Without `__consumer_offsets`, no group has committed any.
        if self.topic_exists:
            self.groups.topics_deleted(names)
