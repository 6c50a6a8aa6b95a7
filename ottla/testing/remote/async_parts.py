"""Groups, brokers, partitions and the clock of brokers in another process, for tests that are coroutines."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING, Any

from ottla.coordinator.facts import Fact
from ottla.testing.async_handle import KafkaGroupAsync
from ottla.testing.clock.control import Pending
from ottla.testing.clock.handles import BrokerClock, BrokerClockAsync
from ottla.testing.clock.sessions import SPARE, Sessions
from ottla.testing.clock.timeline import Delta
from ottla.testing.clock.walk import Fired
from ottla.testing.group_handle import KafkaGroup
from ottla.testing.surroundings.handles import (
    KafkaBroker,
    KafkaBrokerAsync,
    KafkaBrokers,
    KafkaPartition,
    KafkaPartitionAsync,
)
from ottla.testing.usage import checks_usage
from ottla.testing.views import GroupRebalance, GroupView, PartitionView, SegmentView

if TYPE_CHECKING:
    from ottla.testing.faults.faults import Fault


@checks_usage
class RemoteGroupAsync(KafkaGroupAsync):
    def __init__(self, group: KafkaGroup) -> None:
        self._group = group
        self.group_id = group.group_id

    async def describe(self) -> GroupView:
        return await asyncio.to_thread(self._group.describe)

    async def lag(self, topic: str) -> dict[int, int]:
        return await asyncio.to_thread(self._group.lag, topic)

    async def history(self) -> list[GroupRebalance]:
        return await asyncio.to_thread(lambda: self._group.history)

    async def facts(self) -> list[tuple[int, Fact]]:
        return self._group.facts

    async def move_to(self, node_id: int) -> None:
        self._group.move_to(node_id)

    async def delete(self) -> None:
        await asyncio.to_thread(self._group.delete)

    async def set_offsets(self, topic: str, offsets: Mapping[int, int]) -> None:
        await asyncio.to_thread(self._group.set_offsets, topic, offsets)

    async def evict(self, member: str, reason: str = "") -> str:
        return await asyncio.to_thread(self._group.evict, member, reason)

    async def rebalance(self) -> None:
        await asyncio.to_thread(self._group.rebalance)

    async def wait_until_stable(
        self, *, members: int | None = None, assigned: Mapping[str, int] | None = None, within: float | None = None
    ) -> None:
        await asyncio.to_thread(self._group.wait_until_stable, members=members, assigned=assigned, within=within)

    async def wait_until_empty(self, *, within: float | None = None) -> None:
        await asyncio.to_thread(self._group.wait_until_empty, within=within)

    async def wait_until_generation(self, generation: int, *, within: float | None = None) -> None:
        await asyncio.to_thread(self._group.wait_until_generation, generation, within=within)

    async def wait_until_lag(self, lag: int, *, topic: str, within: float | None = None) -> None:
        await asyncio.to_thread(self._group.wait_until_lag, lag, topic=topic, within=within)

    async def wait_until_committed(
        self, topic: str, offsets: Mapping[int, int], *, within: float | None = None
    ) -> None:
        await asyncio.to_thread(self._group.wait_until_committed, topic, offsets, within=within)


class RemoteBrokersAsync(KafkaBrokers[KafkaBrokerAsync]):
    def __init__(self, brokers: KafkaBrokers[KafkaBroker]) -> None:
        self._brokers = brokers

    def __getitem__(self, node_id: int) -> KafkaBrokerAsync:
        return RemoteBrokerAsync(self._brokers[node_id])

    def __iter__(self) -> Iterator[int]:
        return iter(self._brokers)

    def __len__(self) -> int:
        return len(self._brokers)


@checks_usage
class RemoteBrokerAsync(KafkaBrokerAsync):
    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker
        self.node_id = broker.node_id

    async def is_running(self) -> bool:
        return await asyncio.to_thread(lambda: self._broker.is_running)

    async def kill(self) -> None:
        await asyncio.to_thread(self._broker.kill)

    async def stop(self) -> None:
        await asyncio.to_thread(self._broker.stop)

    async def restart(self, *, after: float | None = None) -> None:
        await asyncio.to_thread(self._broker.restart, after=after)

    async def pause(self) -> None:
        await asyncio.to_thread(self._broker.pause)

    async def resume(self) -> None:
        await asyncio.to_thread(self._broker.resume)

    async def isolate(self) -> None:
        await asyncio.to_thread(self._broker.isolate)


@checks_usage
class RemotePartitionAsync(KafkaPartitionAsync):
    def __init__(self, partition: KafkaPartition) -> None:
        self._partition = partition
        self.topic, self.index = partition.topic, partition.index

    async def describe(self) -> PartitionView:
        return await asyncio.to_thread(self._partition.describe)

    async def segments(self) -> tuple[SegmentView, ...]:
        return self._partition.segments

    async def move_leader(self, *, to: int) -> None:
        await asyncio.to_thread(self._partition.move_leader, to=to)

    async def shrink_isr(self, node_id: int, *, now: bool = False) -> "Fault":
        return self._partition.shrink_isr(node_id, now=now)

    async def unclean_election(self) -> None:
        self._partition.unclean_election()


@checks_usage
class RemoteClockAsync(BrokerClockAsync):
    def __init__(self, clock: BrokerClock) -> None:
        self._clock = clock

    async def now(self) -> datetime:
        return await asyncio.to_thread(self._clock.now)

    async def advance(self, delta: Delta, *, sessions: Sessions = SPARE, every: bool = False) -> list[Fired]:
        return await asyncio.to_thread(self._clock.advance, delta, sessions=sessions, every=every)

    async def run_next(self, kind: str | None = None, *, sessions: Sessions = SPARE) -> list[Fired]:
        return await asyncio.to_thread(self._clock.run_next, kind, sessions=sessions)

    async def freeze(self, at: datetime | None = None) -> None:
        await asyncio.to_thread(self._clock.freeze, at)

    async def resume(self) -> None:
        await asyncio.to_thread(self._clock.resume)

    async def rate(self) -> float:
        return await asyncio.to_thread(lambda: self._clock.rate)

    async def set_rate(self, rate: float, *, sessions: Sessions = SPARE) -> None:
        await asyncio.to_thread(self._clock.set_rate, rate, sessions=sessions)

    async def set(self, when: datetime) -> None:
        await asyncio.to_thread(self._clock.set, when)

    async def skew(self, node: int, delta: Delta) -> None:
        await asyncio.to_thread(self._clock.skew, node, delta)

    async def drift(self, node: int, rate: float) -> None:
        await asyncio.to_thread(self._clock.drift, node, rate)

    async def include(self, names: Iterable[str]) -> None:
        await asyncio.to_thread(self._clock.include, names)

    async def included(self) -> frozenset[str]:
        return await asyncio.to_thread(lambda: self._clock.included)

    async def pending(self) -> list[Pending]:
        return await asyncio.to_thread(self._clock.pending)

    async def reset(self) -> None:
        await asyncio.to_thread(self._clock.reset)

    @property
    def ties(self) -> Random | None:
        return self._clock.ties

    @ties.setter
    def ties(self, ties: Random | None) -> None:
        self._clock.ties = ties

    def follow(self, traveller: Any) -> None:
        self._clock.follow(traveller)
