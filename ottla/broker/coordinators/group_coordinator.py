"""The shell of the group coordinator: which groups are served here, and the way of a request to its group and back.

A handler asks the group, or whoever answers for one that is not served here (§4.3):

    token = groups.ask(lambda token: Heartbeat(token, ...), deliver)

`deliver` is called with the result, during `ask` or later. A request whose client has gone is forgotten with its
token; the group itself learns of it by the session timeout, as it must.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ottla.broker.coordinators.group_loading import load
from ottla.broker.coordinators.group_partition import GroupPartition
from ottla.broker.coordinators.observers import Observers, log_fact
from ottla.cluster.image import CONSUMER_OFFSETS, BrokerInfo
from ottla.coordinator.durable_state import TopicPartition
from ottla.coordinator.events import ExpireOffsets, GroupRequest, ListGroups, TopicsDeleted
from ottla.coordinator.facts import Fact
from ottla.coordinator.group_context import GroupConfig
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.refusals import group_id_error, refusal
from ottla.coordinator.results import ListedGroup, ListResult, Result
from ottla.coordinator.runtime.hashing import partition_for
from ottla.coordinator.runtime.partition import CoordinatorPartition
from ottla.protocol.errors import ErrorCode
from ottla.timer.wheel import TimerEntry

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

Deliver = Callable[[Any], None]

# Between the attempts to load a partition: doubled each time, as far as the second.
LOAD_RETRY_MS = 1000
LOAD_RETRY_MS_MAX = 60_000


class GroupService:
    def __init__(self, broker: "Broker") -> None:
        self.broker = broker
        # Notified of every fact as it happens; they must not call back into the service.
        self.observers: Observers[Fact] = Observers(broker.log)
        # Notified of every partition whose groups are served from now on.
        self.when_loaded: Observers[GroupPartition] = Observers(broker.log)
        self._partitions: dict[int, GroupPartition] = {}
        self._partition_count = 0
        self._waiting: dict[int, Deliver] = {}
        self._next_token = 0
        self._active = False
        self._loader: asyncio.Task[None] | None = None
        self._to_load: list[GroupPartition] = []
        self._expiry: TimerEntry | None = None
        config = broker.config
        self._config = GroupConfig(
            group_min_session_timeout_ms=config.group_min_session_timeout_ms,
            group_max_session_timeout_ms=config.group_max_session_timeout_ms,
            group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            group_max_size=config.group_max_size,
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_minutes=config.offsets_retention_minutes,
        )

    # Life.

    def start(self) -> None:
        """Begin to serve. Partitions of `__consumer_offsets` that are led here already begin to load."""
        self._active = True
        self._schedule_expiry()
        replicas = self.broker.replicas
        replicas.groups = self
        for replica in replicas.of_topic(CONSUMER_OFFSETS):
            if replica.is_leader:
                self.lead(replica.index)

    def stop(self) -> None:
        """Answer everyone who waits with NOT_COORDINATOR, and take no more requests."""
        self._active = False
        self.broker.replicas.groups = None
        self.stop_loading()
        if self._expiry is not None:
            self._expiry.cancel()
        hosted, self._partitions = self._partitions, {}
        for partition in hosted.values():
            partition.unload()
        self._waiting.clear()

    def stop_loading(self) -> None:
        """What is not loaded yet stays so."""
        if self._loader is not None:
            self._loader.cancel()
            self._loader = None

    # Leadership.

    def lead(self, index: int) -> None:
        """This broker leads a partition of `__consumer_offsets` in a new term: load all its groups anew (§4.4).

        A term of which one has heard already is no news."""
        replica = self.broker.replicas.find(CONSUMER_OFFSETS, index)
        topic = self.broker.image.topic(CONSUMER_OFFSETS)
        if replica is None or topic is None or not self._active:
            return
        self._partition_count = len(topic.partitions)
        known = self._partitions.get(index)
        if known is not None:
            if known.leader_epoch >= replica.leader_epoch:
                return
            self._unload(index)
        hosted = self._partitions[index] = GroupPartition(self, index, self._coordinator(), replica.leader_epoch)
        if replica.log.log_start_offset == replica.log.log_end_offset:
            self._finish_loading(hosted)
        else:
            self._load_soon(hosted)

    def resign(self, index: int) -> None:
        """Another broker leads the partition, or nobody does: who waits here is told NOT_COORDINATOR (§4.5)."""
        self._unload(index)

    def _unload(self, index: int) -> None:
        # First it is out of reach, so that no request brings a group back.
        hosted = self._partitions.pop(index, None)
        if hosted is not None:
            hosted.unload()

    def topics_deleted(self, names: Sequence[str]) -> None:
        """§9.7.4: their offsets go, in all groups."""
        for partition in self._partitions.values():
            partition.handle(TopicsDeleted(tuple(names)))

    # Requests.

    def ask(self, request_of: Callable[[int], GroupRequest], deliver: Deliver) -> int:
        """Hand the request made for a token to its group; `deliver` gets the result, unless the token is forgotten."""
        token = self._token(deliver)
        request = request_of(token)
        partition = self._partition_of(request.group_id)
        if partition is not None:
            partition.handle(request)
            return token
        error = group_id_error(request)
        if error is None:
            error = ErrorCode.NOT_COORDINATOR if self._active else ErrorCode.COORDINATOR_NOT_AVAILABLE
        self.deliver(token, refusal(request, error))
        return token

    def forget(self, *tokens: int) -> None:
        """Nobody waits for these answers any more."""
        for token in tokens:
            self._waiting.pop(token, None)

    def list_groups(self, states: Sequence[str], types: Sequence[str], deliver: Callable[[ListResult], None]) -> None:
        """The groups of all partitions here; COORDINATOR_LOAD_IN_PROGRESS beside them if some are still loading."""
        if not self._active:
            deliver(ListResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        loaded = [partition for partition in self._partitions.values() if not partition.is_loading]
        loading = len(loaded) < len(self._partitions)
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE
        groups: list[ListedGroup] = []
        missing = len(loaded)

        def collect(result: ListResult) -> None:
            nonlocal missing
            missing -= 1
            groups.extend(result.groups)
            if not missing:
                deliver(ListResult(error, tuple(groups)))

        for partition in loaded:
            partition.handle(ListGroups(self._token(collect), tuple(states), tuple(types)))
        if not loaded:
            deliver(ListResult(error))

    def committed_offsets(self) -> Iterator[tuple[str, dict[TopicPartition, int]]]:
        """What each group here has committed; of those that are loaded."""
        for partition in self._partitions.values():
            if not partition.is_loading:
                for group_id, offsets in partition.coordinator.shard.durable.offsets.items():
                    yield group_id, {key: logged.committed.offset for key, logged in offsets.items()}

    def coordinator_of(self, group_id: str) -> BrokerInfo | None:
        """Who serves the group, by the metadata; None while `__consumer_offsets` or its leader is missing."""
        topic = self.broker.image.topic(CONSUMER_OFFSETS)
        if topic is None:
            self.broker.topics.ensure_offsets_topic()
            topic = self.broker.image.topic(CONSUMER_OFFSETS)
        if topic is None:
            return None
        partition = topic.partitions[partition_for(group_id, len(topic.partitions))]
        leader = self.broker.image.brokers.get(partition.leader)
        return leader if leader is not None and leader.is_live else None

    # What partitions call.

    def deliver(self, token: int, result: Result) -> None:
        waiting = self._waiting.pop(token, None)
        if waiting is not None:
            waiting(result)

    def observe(self, fact: Fact) -> None:
        log_fact(self.broker.log, fact)
        self.observers.notify(fact)

    # Inside.

    def _token(self, deliver: Deliver) -> int:
        token = self._next_token = self._next_token + 1
        self._waiting[token] = deliver
        return token

    def _partition_of(self, group_id: str) -> GroupPartition | None:
        if not self._partition_count:
            return None
        return self._partitions.get(partition_for(group_id, self._partition_count))

    # Loading. A partition that fails to load holds up none of the others.

    def _coordinator(self) -> CoordinatorPartition[GroupShard]:
        return CoordinatorPartition(GroupShard(self._config, self._new_member_id))

    def _load_soon(self, hosted: GroupPartition) -> None:
        self._to_load.append(hosted)
        if self._loader is None:
            self._loader = asyncio.get_running_loop().create_task(self._load_all(), name="group loader")

    async def _load_all(self) -> None:
        while self._to_load:
            await self._load(self._to_load.pop(0))
            # A task is an event of its own.
            self.broker.guard(self.broker.end_event)
        self._loader = None

    async def _load(self, hosted: GroupPartition) -> None:
        replica = self.broker.replicas.find(CONSUMER_OFFSETS, hosted.index)
        try:
            if replica is not None:
                await load(self.broker, replica, hosted)
        except Exception:
            self._fail_loading(hosted)
            return
        if not hosted.is_unloaded:
            self._finish_loading(hosted)

    def _finish_loading(self, hosted: GroupPartition) -> None:
        try:
            hosted.finish_loading()
        except Exception:
            self._fail_loading(hosted)
            return
        self.when_loaded.notify(hosted)

    def _fail_loading(self, hosted: GroupPartition) -> None:
        """Called in the handler of the exception. The groups are loaded again later: what failed may have been a
        thing of the moment, and without that they would be gone until the partition gets another leader."""
        if hosted.is_unloaded:
            return
        hosted.fail_loading()
        retry_ms = min(LOAD_RETRY_MS << (hosted.failed_loads - 1), LOAD_RETRY_MS_MAX)
        self.broker.log.exception("groups could not be loaded", partition=hosted.index, retry_ms=retry_ms)
        deadline_ms = self.broker.clock.now_ms() + retry_ms
        hosted.reload = self.broker.wheel.schedule(deadline_ms, lambda: self._load_again(hosted))

    def _load_again(self, hosted: GroupPartition) -> None:
        hosted.restart_loading(self._coordinator())
        self._load_soon(hosted)

    def _schedule_expiry(self) -> None:
        deadline_ms = self.broker.clock.now_ms() + self.broker.config.offsets_retention_check_interval_ms
        self._expiry = self.broker.wheel.schedule(deadline_ms, self._expire)

    def _expire(self) -> None:
        self._schedule_expiry()
        for partition in list(self._partitions.values()):
            partition.handle(ExpireOffsets())

    def _new_member_id(self, prefix: str) -> str:
        digits = f"{self.broker.rng.getrandbits(128) & ~(0xF << 76 | 0x3 << 62) | 4 << 76 | 0x2 << 62:032x}"
        return f"{prefix}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
