"""The group coordinator: `__consumer_offsets`, its groups, and the way of a request to its group and back (§4.3)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Protocol

from ottla.broker.config.server import ServerConfig
from ottla.broker.coordinators.coordinator_topic import (
    CoordinatorTopic,
    MetadataCache,
    Replicas,
    has_committed_what_it_loaded,
)
from ottla.broker.coordinators.observers import NotedFacts, Observers, log_fact
from ottla.broker.coordinators.pending_requests import ParkingContext
from ottla.broker.logging import GROUP_LOGGER
from ottla.broker.runtime import Runtime
from ottla.cluster.image import BrokerInfo
from ottla.coordinator.durable_state import LoggedOffset, TopicPartition
from ottla.coordinator.events import (
    CommitOffsets,
    ExpireOffsets,
    FetchOffsets,
    GroupRequest,
    ListGroups,
    SyncGroup,
    TopicsDeleted,
)
from ottla.coordinator.facts import Fact
from ottla.coordinator.group_context import GroupConfig
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.refusals import group_id_error, refusal
from ottla.coordinator.results import ListedGroup, ListResult, SyncResult, transaction_error
from ottla.coordinator.runtime.effects import ProducerIdAndEpoch, TransactionCompleted
from ottla.coordinator.runtime.hashing import forget_names
from ottla.protocol.errors import ErrorCode
from ottla.storage.log import VerificationGuard
from ottla.timer.clock import TimerKind
from ottla.timer.wheel import TimerEntry

# Followers fetch again within a few milliseconds; after five seconds there are too few of them.
SYNC_RETRY_MS = 20
SYNC_TRIES = 250


class TransactionParticipation(Protocol):
    """Whether a partition of `__consumer_offsets` belongs to the transaction that a producer has open: what its leader
    asks the transaction coordinator before it appends offsets of the transaction (§46.2)."""

    def ask(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partition_index: int,
        done: Callable[[ErrorCode, VerificationGuard | None], None],
        *,
        register: bool,
    ) -> None:
        """Calls `done`, at once or later, within an event: with the coordinator's own code, and what the offsets are to
        be appended with. With `register` the partition becomes a part of the transaction (KIP-890)."""
        ...


class GroupCoordinator:
    def __init__(
        self,
        topic_name: str,
        runtime: Runtime,
        replicas: Replicas,
        metadata: MetadataCache,
        *,
        ensure_topic: Callable[[], None],
        participation: TransactionParticipation,
        may_be_deposed: Callable[[], bool],
    ) -> None:
        """`ensure_topic` starts the creation of the topic where it is missing; `may_be_deposed` says whether another
        broker may be the coordinator by now."""
        config = runtime.config
        group_config, rng = _group_config(config), runtime.rng
        # Notified of every fact as it happens; they must not call back into the coordinator.
        self.observers: Observers[Fact] = Observers(runtime.log)
        # The same, for those that need the time of the step by the clock that is never set.
        self.timed_observers: Observers[Fact, int] = Observers(runtime.log)
        # The same, for metrics, which are read seldom; None where there are none.
        self.noted_facts: NotedFacts | None = None
        self.generation_floor = 0
        """Groups of partitions that are loaded from now on begin above it."""
        self.topic = CoordinatorTopic(
            topic_name,
            lambda: GroupShard(
                group_config, lambda prefix: _new_member_id(rng, prefix), generation_floor=self.generation_floor
            ),
            runtime,
            replicas,
            metadata,
            codec=config.offsets_topic_compression_codec,
            append_timeout_ms=config.offsets_commit_timeout_ms,
            load_buffer_bytes=config.offsets_load_buffer_size,
            observe=self._observe,
        )
        self.new_token = self.topic.pending.new_token
        self._runtime = runtime
        self._replicas = replicas
        self._log = runtime.log.logger(GROUP_LOGGER)
        self._ensure_topic = ensure_topic
        self._participation = participation
        self._may_be_deposed = may_be_deposed
        self._expiry: TimerEntry | None = None

    # Life.

    def start(self) -> None:
        self._schedule_expiry()
        self.topic.start()

    def stop(self) -> None:
        self.topic.stop()
        if self._expiry is not None:
            self._expiry.cancel()
        if self.noted_facts is not None:
            self.noted_facts.end()

    def topics_deleted(self, names: Sequence[str]) -> None:
        """§9.7.4: their offsets go, in all groups."""
        for partition in self.topic:
            partition.handle_once_loaded(TopicsDeleted(tuple(names)))

    # Requests.

    def ask(self, context: ParkingContext, request: GroupRequest, build_response: Callable[[Any], Any]) -> Any | None:
        """The response that `build_response` makes of the result, or None when the request was parked.

        The request carries a token of `new_token`."""
        return self.topic.pending.ask(self._send, context, request, build_response)

    def ask_each(
        self,
        context: ParkingContext,
        requests: Iterable[GroupRequest],
        count: int,
        build_response: Callable[[list[Any]], Any],
    ) -> Any | None:
        """As `ask`, for one response to `count` requests: `build_response` gets their results in the same order.

        The requests are taken when they are sent, a few in a step."""
        return self.topic.pending.ask_each(self._send, context, requests, count, build_response)

    def _send(self, request: GroupRequest) -> None:
        """To its group, or to refusal where that is not served here."""
        partition = self.topic.partition_of(request.group_id)
        if partition is not None:
            partition.handle(request)
            return
        error = group_id_error(request)
        if error is None:
            error = ErrorCode.NOT_COORDINATOR if self.topic.is_active else ErrorCode.COORDINATOR_NOT_AVAILABLE
        self.topic.deliver(request.token, refusal(request, error))

    def fetch_offsets(
        self, context: ParkingContext, requests: Sequence[FetchOffsets], build_response: Callable[[list[Any]], Any]
    ) -> Any | None:
        """As `ask_each`. An offset that was read must not move back with the next leader, nor one that the next leader
        has be hidden: none is answered before the high watermark has passed what this coordinator has loaded, and none
        by a broker that was stopped so long that its session may have ended."""
        return self.topic.pending.ask_each(self._send_fetch, context, requests, len(requests), build_response)

    def _send_fetch(self, request: FetchOffsets) -> None:
        partition = self.topic.partition_of(request.group_id)
        if partition is None:
            self._send(request)
        elif group_id_error(request) is not None or (
            has_committed_what_it_loaded(self._replicas, partition) and not self._may_be_deposed()
        ):
            partition.handle(request)
        else:
            self.topic.deliver(request.token, refusal(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))

    def sync(
        self, context: ParkingContext, request: SyncGroup, build_response: Callable[[SyncResult], Any]
    ) -> Any | None:
        """As `ask`. Assignments must not be given that the next leader may not know: it would make the generation once
        more, with others. So none is before the high watermark has passed what this coordinator has loaded."""
        return self.topic.pending.ask(self._send_sync, context, request, build_response)

    def _send_sync(self, request: SyncGroup) -> None:
        if self._may_sync(request):
            self._send(request)
        else:
            self._runtime.spawn(self._sync_once_committed(request), "SyncGroup behind a change of the coordinator")

    def _may_sync(self, request: SyncGroup) -> bool:
        """Also where the request is refused anyway."""
        partition = self.topic.partition_of(request.group_id)
        return (
            partition is None
            or group_id_error(request) is not None
            or has_committed_what_it_loaded(self._replicas, partition)
        )

    async def _sync_once_committed(self, request: SyncGroup) -> None:
        for _ in range(SYNC_TRIES):
            await self._runtime.sleep(SYNC_RETRY_MS)
            if self._may_sync(request):
                self._send(request)
                return
        # A member asks again then, and rests before that.
        self.topic.deliver(request.token, refusal(request, ErrorCode.REBALANCE_IN_PROGRESS))

    def commit_in_transaction(
        self,
        context: ParkingContext,
        transactional_id: str,
        request: CommitOffsets,
        build_response: Callable[[Any], Any],
        *,
        register: bool,
    ) -> Any | None:
        """As `ask`, once the transaction coordinator has said that the group's partition belongs to the transaction;
        with `register`, has made it belong."""
        send = partial(self._ask_and_send, transactional_id, register)
        return self.topic.pending.ask(send, context, request, build_response)

    def _ask_and_send(self, transactional_id: str, register: bool, request: CommitOffsets) -> None:
        partition = self.topic.partition_of(request.group_id)
        assert request.producer is not None, "a transaction has a producer"
        if partition is None or group_id_error(request) is not None:
            self._send(request)
        else:
            done = partial(self._send_if_accepted, request)
            self._participation.ask(transactional_id, request.producer, partition.index, done, register=register)

    def _send_if_accepted(
        self, request: CommitOffsets, error: ErrorCode, guard: VerificationGuard | None = None
    ) -> None:
        if error is ErrorCode.NONE:
            self._send(request._replace(guard=guard))
        else:
            self.topic.deliver(request.token, refusal(request, transaction_error(error)))

    def complete_transaction(self, partition_index: int, producer_id: int, *, commit: bool) -> None:
        """The high watermark has passed a marker in this partition of `__consumer_offsets` (§46.4): the producer's
        pending offsets there become visible, or are dropped.

        Call it in the order of the log, as appends of the broker's own are reported, and before the marker is answered:
        only then may the producer's next transaction come here. A partition that is being loaded may read the marker as
        well, and then has nothing pending any more."""
        partition = self.topic.partition_at(partition_index)
        if partition is not None:
            partition.handle_once_loaded(TransactionCompleted(producer_id, commit))

    def list_groups(
        self,
        context: ParkingContext,
        states: Sequence[str],
        types: Sequence[str],
        build_response: Callable[[ListResult], Any],
    ) -> Any | None:
        """The groups of all partitions here; COORDINATOR_LOAD_IN_PROGRESS beside them if some are still loading."""
        if not self.topic.is_active:
            return build_response(ListResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        hosted = list(self.topic)
        loaded = [partition for partition in hosted if not partition.is_loading]
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if len(loaded) < len(hosted) else ErrorCode.NONE
        requests = (ListGroups(self.new_token(), tuple(states), tuple(types)) for _ in loaded)
        partitions = iter(loaded)

        def respond(results: list[ListResult]) -> Any:
            groups: list[ListedGroup] = [group for result in results for group in result.groups]
            return build_response(ListResult(error, tuple(groups)))

        return self.topic.pending.ask_each(
            lambda request: next(partitions).handle(request), context, requests, len(loaded), respond
        )

    def coordinator_of(self, group_id: str) -> BrokerInfo | None:
        """The broker that serves the group, by the metadata; None while the topic or its leader is missing."""
        leader = self.topic.leader_of(group_id)
        if leader is None and not self.topic.exists:
            self._ensure_topic()
        return leader

    def committed_offsets(self) -> Iterator[tuple[str, bool, Mapping[TopicPartition, LoggedOffset]]]:
        """Each group here that is loaded, whether it has members, and what it has committed."""
        for partition in self.topic:
            if not partition.is_loading:
                shard = partition.coordinator.shard
                for group_id, offsets in shard.durable.offsets.items():
                    group = shard.groups.get(group_id)
                    yield group_id, group is not None and bool(group.members), offsets

    # Inside.

    def _observe(self, fact: Fact, now_ms: int, wall_ms: int) -> None:
        if fact.level is not None:
            log_fact(self._log, fact, now_ms, wall_ms)
        facts = self.noted_facts
        if facts is not None:
            if not facts:
                facts.begin()
            facts += (fact, now_ms)
        if not self.timed_observers.is_empty:
            self.timed_observers.notify(fact, now_ms)
        if not self.observers.is_empty:
            self.observers.notify(fact)

    def _schedule_expiry(self) -> None:
        interval_ms = self._runtime.config.offsets_retention_check_interval_ms
        self._expiry = self._runtime.schedule(interval_ms, self._expire, TimerKind.OFFSETS_EXPIRY)

    def _expire(self) -> None:
        self._schedule_expiry()
        forget_names()
        for partition in self.topic:
            partition.handle(ExpireOffsets())


def _group_config(config: ServerConfig) -> GroupConfig:
    return GroupConfig(
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_max_size=config.group_max_size,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_minutes=config.offsets_retention_minutes,
    )


def _new_member_id(rng: Random, prefix: str) -> str:
    digits = f"{rng.getrandbits(128) & ~(0xF << 76 | 0x3 << 62) | 4 << 76 | 0x2 << 62:032x}"
    return f"{prefix}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
