"""The transaction coordinator: `__transaction_state`, its transactional ids, and the way of a request there and back.

Markers are written by `MarkerSender`; what it has written comes back to the partition that asked for it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from ottla.broker.config.coordinator_topics import TRANSACTION_TOPIC
from ottla.broker.config.server import ServerConfig
from ottla.broker.coordinators.coordinator_topic import (
    CoordinatorTopic,
    MetadataCache,
    Replicas,
    has_committed_what_it_loaded,
)
from ottla.broker.coordinators.marker_sender import MarkerSender
from ottla.broker.coordinators.observers import Observers, log_fact
from ottla.broker.coordinators.pending_requests import ParkingContext
from ottla.broker.runtime import Runtime
from ottla.cluster.image import BrokerInfo
from ottla.coordinator.facts import Fact
from ottla.coordinator.transactions.context import TransactionConfig
from ottla.coordinator.transactions.events import (
    AbortTimedOutTransactions,
    ExpireTransactionalIds,
    IdRequest,
    ListedId,
    ListTransactionalIds,
)
from ottla.coordinator.transactions.shard import TransactionShard, transaction_request_error
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.compression import Codec
from ottla.timer.clock import TimerKind
from ottla.timer.wheel import TimerEntry


class ProducerIdSource(Protocol):
    def take_now(self) -> int | None:
        """One that was never given before, or None while there is none at hand."""
        ...

    def note_in_use(self, producer_id: int) -> None:
        """The log of a coordinator has it."""
        ...


class TransactionCoordinator:
    def __init__(
        self,
        runtime: Runtime,
        replicas: Replicas,
        metadata: MetadataCache,
        markers: MarkerSender,
        *,
        producer_ids: ProducerIdSource,
        ensure_topic: Callable[[], None],
        may_be_deposed: Callable[[], bool],
    ) -> None:
        """`ensure_topic` starts the creation of the topic where it is missing; `may_be_deposed` says whether another
        broker may be the coordinator by now."""
        self._config = transaction_config(runtime.config)
        self._metadata = metadata
        self._producer_ids = producer_ids
        # Notified of every fact as it happens, with the time of its step by the clock that is never set.
        self.timed_observers: Observers[Fact, int] = Observers(runtime.log)
        self.markers = markers
        self.topic: CoordinatorTopic[TransactionShard] = CoordinatorTopic(
            TRANSACTION_TOPIC.name,
            self._new_shard,
            runtime,
            replicas,
            metadata,
            codec=Codec.NONE,
            # Kafka waits for the timeout of the transaction, which may be an hour: the client has given up by then.
            append_timeout_ms=runtime.config.request_timeout_ms,
            load_buffer_bytes=runtime.config.transaction_state_log_load_buffer_size,
            observe=self._observe,
            dispatch=markers.send,
        )
        self.new_token = self.topic.pending.new_token
        self._runtime = runtime
        self._replicas = replicas
        self._ensure_topic = ensure_topic
        self._may_be_deposed = may_be_deposed
        self._timers: dict[type, TimerEntry] = {}

    def _new_shard(self) -> TransactionShard:
        return TransactionShard(
            self._config,
            self._producer_ids.take_now,
            lambda: self._metadata.image.transaction_version,
            lambda: not self.timed_observers.is_empty,
            self._producer_ids.note_in_use,
        )

    # Life.

    def start(self) -> None:
        config = self._runtime.config
        abort_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._repeat(AbortTimedOutTransactions, abort_ms, TimerKind.TRANSACTION_TIMEOUT)
        expire_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
        self._repeat(ExpireTransactionalIds, expire_ms, TimerKind.TRANSACTIONAL_ID_EXPIRY)
        self.topic.start()

    def stop(self) -> None:
        self.topic.stop()
        self.markers.stop()
        for timer in self._timers.values():
            timer.cancel()

    def _repeat(self, event: type, interval_ms: int, kind: TimerKind) -> None:
        """Hand an event of this type to every partition, again and again."""

        def fire() -> None:
            self._repeat(event, interval_ms, kind)
            for partition in self.topic:
                partition.handle(event())

        self._timers[event] = self._runtime.schedule(interval_ms, fire, kind)

    # Requests.

    def ask(self, context: ParkingContext, request: IdRequest, build_response: Callable[[Any], Any]) -> Any | None:
        """The response that `build_response` makes of the result, or None when the request was parked.

        The request carries a token of `new_token`."""
        return self.topic.pending.ask(self._send, context, request, build_response)

    def ask_here(self, request: IdRequest, answered: Callable[[Any], None]) -> Any | None:
        """As `ask`, for a leader of partitions on this broker: the result if it is known at once; else None, and
        `answered` gets it, in the middle of a step."""
        return self.topic.pending.ask_here(self._send, request, answered)

    def ask_each(
        self, context: ParkingContext, requests: Sequence[IdRequest], build_response: Callable[[list[Any]], Any]
    ) -> Any | None:
        """As `ask`, for one response to several requests: `build_response` gets their results in the same order."""
        return self.topic.pending.ask_each(self._send, context, requests, len(requests), build_response)

    def _send(self, request: IdRequest) -> None:
        """To its partition, or to refusal where that is not served here.

        Nothing is answered before the high watermark has passed what this coordinator has loaded: of a partition that
        is part of the transaction already no record is written, and the next coordinator may not know of it. Nor by a
        broker whose session may have ended: what it refuses for good another coordinator may have begun."""
        partition = self.topic.partition_of(request.transactional_id)
        if (
            partition is not None
            and has_committed_what_it_loaded(self._replicas, partition)
            and not self._may_be_deposed()
        ):
            partition.handle(request)
            return
        error = transaction_request_error(self._config, request)
        if error is None:
            error = self._why_not_served(is_hosted=partition is not None)
        self.topic.deliver(request.token, TransactionShard.refusal(request, error))

    def _why_not_served(self, *, is_hosted: bool) -> ErrorCode:
        if is_hosted:
            # Clients look for the coordinator again after the one, and ask this one again after the other.
            is_deposed = self._may_be_deposed()
            return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_deposed else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NOT_COORDINATOR if self.topic.is_active else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def list_ids(
        self,
        context: ParkingContext,
        wanted: ListTransactionalIds,
        build_response: Callable[[list[ListedId] | ErrorCode], Any],
    ) -> Any | None:
        """The ids of all partitions here; one error for all while any of them is being loaded."""
        if not self.topic.is_active:
            return build_response(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        hosted = list(self.topic)
        if any(partition.is_loading for partition in hosted):
            return build_response(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        requests = [replace(wanted, token=self.new_token()) for _ in hosted]
        partitions = iter(hosted)

        def respond(results: list[tuple[ListedId, ...] | ErrorCode]) -> Any:
            # Of a partition that could not be loaded nothing is known.
            return build_response([listed for each in results if not isinstance(each, ErrorCode) for listed in each])

        return self.topic.pending.ask_each(
            lambda request: next(partitions).handle(request), context, requests, len(requests), respond
        )

    def coordinator_of(self, transactional_id: str) -> BrokerInfo | None:
        """The broker that serves the id, by the metadata; None while the topic or its leader is missing."""
        leader = self.topic.leader_of(transactional_id)
        if leader is None and not self.topic.exists:
            self._ensure_topic()
        return leader

    def _observe(self, fact: Fact, now_ms: int, wall_ms: int) -> None:
        log_fact(self._runtime.log, fact, now_ms, wall_ms)
        if not self.timed_observers.is_empty:
            self.timed_observers.notify(fact, now_ms)


def transaction_config(config: ServerConfig) -> TransactionConfig:
    return TransactionConfig(
        transaction_max_timeout_ms=config.transaction_max_timeout_ms,
        transactional_id_expiration_ms=config.transactional_id_expiration_ms,
    )
