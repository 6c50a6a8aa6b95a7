"""Metrics of transactions: of the coordinator of this broker, of the partitions led here, and of the questions between
the two."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from ottla.broker.admin.metrics.exposition import Sample, labels
from ottla.broker.admin.metrics.group_source import ServedPartition
from ottla.broker.admin.metrics.source import Samples
from ottla.broker.coordinators.coordinator_loaders import TransactionCoordinatorLoader
from ottla.broker.histogram import Histogram
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.replicas.transaction_verification import TransactionVerification
from ottla.broker.runtime import LoopRuntime


class TransactionSource:
    def __init__(
        self,
        runtime: LoopRuntime,
        replicas: ReplicaManager,
        coordinators: TransactionCoordinatorLoader,
        verification: TransactionVerification,
    ) -> None:
        self._runtime = runtime
        self._replicas = replicas
        self._coordinators = coordinators
        self._loads = Histogram()
        # As of the last pass.
        self._states: Counter[str] = Counter()
        self._began_ms: dict[str, int] = {}
        self._late_partitions = 0
        self._producer_ids = 0
        self.families: Mapping[str, Callable[[], Samples]] = {
            "ottla_transactional_ids": lambda: [(labels(state=s), n) for s, n in self._states.items()],
            "ottla_transaction_oldest_seconds": self._oldest_seconds,
            "ottla_transaction_load_seconds": lambda: [("", self._loads)],
            "ottla_transaction_markers_queued": self._markers_queued,
            "ottla_transaction_markers_retried": self._markers_retried,
            "ottla_transaction_verification_seconds": lambda: [("", verification.times)],
            "ottla_transaction_verification_failures_total": lambda: [
                (labels(error=error), count) for error, count in verification.failures.items()
            ],
            "ottla_partitions_with_late_transactions": self.late_partitions,
            "ottla_producer_ids": self.producer_ids,
        }

    def loaded(self, partition: ServedPartition) -> None:
        """A partition of `__transaction_state` is served from now on."""
        self._loads.observe((self._runtime.clock.now_ms() - partition.began_ms) * 1_000_000)

    # Samples.

    def prepare(self) -> Iterator[None]:
        yield from self._look_at_ids()
        yield from self._look_at_partitions()

    def _look_at_ids(self) -> Iterator[None]:
        states: Counter[str] = Counter()
        began_ms: dict[str, int] = {}
        for shard in self._coordinators.loaded_shards():
            for entry in list(shard.entries.values()):
                yield
                metadata = entry.metadata
                state = metadata.state.kafka_name
                states[state] += 1
                if not metadata.is_idle:
                    since_ms = metadata.last_update_ms if metadata.is_decided else metadata.start_ms
                    began_ms[state] = min(since_ms, began_ms.get(state, since_ms))
        self._states, self._began_ms = states, began_ms

    def _look_at_partitions(self) -> Iterator[None]:
        late = producers = 0
        wall_ms, max_timeout_ms = self._runtime.broker_clock.wall_ms(), self._runtime.config.transaction_max_timeout_ms
        for partition in list(self._replicas):
            yield
            known = partition.log.known_producers if partition.is_leader else None
            if known is not None:
                producers += len(known)
                oldest = known.oldest_transaction
                late += oldest is not None and oldest.is_late(wall_ms, max_timeout_ms)
        self._late_partitions, self._producer_ids = late, producers

    def late_partitions(self) -> list[Sample]:
        return [("", self._late_partitions)]

    def producer_ids(self) -> list[Sample]:
        return [("", self._producer_ids)]

    def _oldest_seconds(self) -> list[Sample]:
        wall_ms = self._runtime.broker_clock.wall_ms()
        return [(labels(state=state), max(wall_ms - ms, 0) / 1000) for state, ms in self._began_ms.items()]

    def _markers_queued(self) -> list[Sample]:
        made = self._coordinators.if_made
        queued = {} if made is None else made.markers.queued_by_broker()
        return [(labels(destination=broker), count) for broker, count in queued.items()]

    def _markers_retried(self) -> list[Sample]:
        made = self._coordinators.if_made
        return [("", 0 if made is None else made.markers.waiting_again)]
