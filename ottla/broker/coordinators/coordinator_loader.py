"""A coordinator that is made when it is first needed, for its import takes longer than the rest of a broker's start.

Until then a loader stands in for it: it watches the leadership of the coordinator's topic, and starts the import, in a
thread, when a partition of that topic is led here or a client looks for the coordinator.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ottla.broker.runtime import Runtime, complete

if TYPE_CHECKING:
    from ottla.broker.coordinators.coordinator_topic import MetadataCache
    from ottla.broker.coordinators.hosted_partition import HostedPartition
    from ottla.coordinator.runtime.partition import CoordinatorShard

C = TypeVar("C", bound=Any)
"""The coordinator, with `start`, `stop` and its `topic`."""
S = TypeVar("S", bound="CoordinatorShard")
"""What it keeps of one partition."""


class CoordinatorLoader(ABC, Generic[C, S]):
    def __init__(self, topic_name: str, modules: Sequence[str], runtime: Runtime, metadata: "MetadataCache") -> None:
        """`modules`: what a thread imports before the coordinator is made."""
        self.topic_name = topic_name
        self.modules = list(modules)
        # Called once each, with the coordinator, before it serves.
        self.when_made: list[Callable[[C], None]] = []
        self._runtime = runtime
        self._metadata = metadata
        self._made: C | None = None
        self._is_importing = False
        self._waiting: list[asyncio.Future[None]] = []

    @abstractmethod
    def _make(self) -> C: ...

    # Life.

    def start(self) -> None:
        """The broker serves from now on."""
        if self._made is not None:
            self._made.start()
        elif self.topic_exists:
            self.prepare()

    def stop(self) -> None:
        if self._made is not None:
            self._made.stop()

    def stop_loading(self) -> None:
        """Ends at once, as a killed process does."""
        if self._made is not None:
            self._made.topic.stop_loading()

    # The coordinator.

    @property
    def coordinator(self) -> C:
        """It is imported now if `prepare` has not done that."""
        return self._made_now() if self._made is None else self._made

    def _made_now(self) -> C:
        self._made = made = self._make()
        for action in self.when_made:
            action(made)
        if self._runtime.is_serving:
            made.start()
        return made

    @property
    def if_made(self) -> C | None:
        """For those who only look: it is not made for them."""
        return self._made

    def prepare(self) -> C | None:
        """The coordinator, or None while a thread imports it."""
        if self._made is None and not self._is_importing:
            self._is_importing = True
            self._runtime.offload(self._import, self._imported)
        return self._made

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
        waiting, self._waiting = self._waiting, []
        try:
            if self._made is None and self._runtime.is_serving:
                self._made_now()
        finally:
            for each in waiting:
                complete(each, None)

    @property
    def topic_exists(self) -> bool:
        return self._metadata.image.topic(self.topic_name) is not None

    def loaded_shards(self) -> list[S]:
        """Of each partition that is served here."""
        if self._made is None:
            return []
        return [hosted.coordinator.shard for hosted in self._made.topic if not hosted.is_loading]

    def loading(self) -> "list[HostedPartition[S]]":
        """The partitions of the topic that are being loaded."""
        return [] if self._made is None else [hosted for hosted in self._made.topic if hosted.is_loading]

    # What happens in the cluster.

    def elected(self, index: int) -> None:
        if self._made is not None:
            self._made.topic.elected(index)
        elif self._runtime.is_serving:
            self.prepare()

    def resigned(self, index: int) -> None:
        if self._made is not None:
            self._made.topic.resigned(index)
