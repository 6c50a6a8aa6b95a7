"""The transaction coordinator, made when it is first needed: most brokers never see a transactional id.

Until then this part stands in for it, and starts its import in a thread when a partition of `__transaction_state` is
led here or a client looks for a coordinator.
"""

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from ottla.broker.config.coordinator_topics import TRANSACTION_TOPIC
from ottla.broker.runtime import Runtime, complete

if TYPE_CHECKING:
    from ottla.broker.coordinators.coordinator_topic import MetadataCache
    from ottla.broker.coordinators.hosted_partition import HostedPartition
    from ottla.broker.coordinators.transaction_coordinator import TransactionCoordinator
    from ottla.coordinator.transactions.shard import TransactionShard


class TransactionCoordinatorLoader:
    def __init__(
        self, runtime: Runtime, metadata: "MetadataCache", make: "Callable[[], TransactionCoordinator]"
    ) -> None:
        self.topic_name = TRANSACTION_TOPIC.name
        self._runtime = runtime
        self._metadata = metadata
        self._make = make
        self._coordinator: TransactionCoordinator | None = None
        self._is_importing = False
        self._waiting: list[asyncio.Future[None]] = []
        # Called with the coordinator when it is made, before it serves.
        self.when_made: list[Callable[[TransactionCoordinator], None]] = []

    # Life.

    def start(self) -> None:
        """The broker serves from now on."""
        if self._coordinator is not None:
            self._coordinator.start()
        elif self.topic_exists:
            self.prepare()

    def stop(self) -> None:
        if self._coordinator is not None:
            self._coordinator.stop()

    def stop_loading(self) -> None:
        """Ends at once, as a killed process does."""
        if self._coordinator is not None:
            self._coordinator.topic.stop_loading()

    # The coordinator.

    @property
    def coordinator(self) -> "TransactionCoordinator":
        """It is imported now if `prepare` has not done that."""
        if self._coordinator is None:
            self._coordinator = self._make()
            for action in self.when_made:
                action(self._coordinator)
            if self._runtime.is_serving:
                self._coordinator.start()
        return self._coordinator

    def prepare(self) -> "TransactionCoordinator | None":
        """The coordinator, or None while a thread imports it."""
        if self._coordinator is None and not self._is_importing:
            self._is_importing = True
            self._runtime.offload(import_coordinator, self._imported)
        return self._coordinator

    async def prepared(self) -> None:
        """Returns when the coordinator is made, or could not be."""
        if self.prepare() is None:
            self._waiting.append(imported := asyncio.get_running_loop().create_future())
            await imported

    @property
    def if_made(self) -> "TransactionCoordinator | None":
        """For those who only look: it is not made for them."""
        return self._coordinator

    def loaded_shards(self) -> "list[TransactionShard]":
        """The ids of each partition that is served here."""
        if self._coordinator is None:
            return []
        return [hosted.coordinator.shard for hosted in self._coordinator.topic if not hosted.is_loading]

    def loading(self) -> "list[HostedPartition[TransactionShard]]":
        """The partitions of the topic that are being loaded."""
        if self._coordinator is None:
            return []
        return [hosted for hosted in self._coordinator.topic if hosted.is_loading]

    def _imported(self) -> None:
        # A broker that accepts no requests for a moment makes it when it is asked for afterwards.
        self._is_importing = False
        if self._runtime.is_serving:
            assert self.coordinator is not None, "asking for it makes and starts it"
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            complete(each, None)

    @property
    def topic_exists(self) -> bool:
        return self._metadata.image.topic(self.topic_name) is not None

    # What happens in the cluster.

    def elected(self, index: int) -> None:
        if self._coordinator is not None:
            self._coordinator.topic.elected(index)
        elif self._runtime.is_serving:
            self.prepare()

    def resigned(self, index: int) -> None:
        if self._coordinator is not None:
            self._coordinator.topic.resigned(index)

    def log_failed(self, index: int) -> None:
        """A decision that was refused may be committed all the same, when followers have copied it: from now on it
        counts as if another broker had led."""
        if self._coordinator is not None:
            self._coordinator.topic.load_again(index)


def import_coordinator() -> None:
    """All that making it imports: some 30 ms, in a thread."""
    import_module("ottla.broker.coordinators.transaction_coordinator")
    import_module("ottla.broker.coordinators.marker_sender")
    import_module("ottla.broker.handlers.write_txn_markers")
