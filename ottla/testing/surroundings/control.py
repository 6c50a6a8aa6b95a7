"""What is done to whole brokers and to the leaders of partitions: coroutines of the brokers' loop."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from ottla.broker.assembly import Parts
from ottla.broker.loop_wheel import LoopWheel
from ottla.broker.metadata.partition_commands import Decide, change_partitions
from ottla.cluster.alterations import IsrProposal, alter_isr, elect_preferred, elect_unclean, reassign
from ottla.cluster.controller import PartitionChange, RulesOf
from ottla.cluster.image import CONSUMER_OFFSETS, BrokerState, MetadataImage, PartitionInfo
from ottla.coordinator.runtime.hashing import partition_for
from ottla.protocol.errors import InvalidReplicaAssignment, UnknownTopicOrPartition
from ottla.testing.conditions import CoordinatorsLoaded, Sources, TopicCondition, partition_led_by
from ottla.testing.hosting import HostedBrokers
from ottla.testing.surroundings.around import AllSurroundings, FaultSteps
from ottla.testing.surroundings.disks import lose_unsynced
from ottla.testing.waits import Explanation, Waits
from ottla.testing.worker import NotRunningError

WITHIN_S: Final = 30.0
"""For leaders and brokers that the kit's own calls wait for."""


class BrokerControl:
    def __init__(
        self, hosted: HostedBrokers, around: AllSurroundings, steps: FaultSteps, sources: Sources, waits: Waits
    ) -> None:
        self._hosted = hosted
        self._around = around
        self._steps = steps
        self._sources = sources
        self._waits = waits
        self._restarts: set[asyncio.Task[None]] = set()

    # Brokers.

    def is_running(self, node_id: int) -> bool:
        return node_id in self._hosted.parts()

    async def kill(self, node_id: int) -> None:
        """Raises NotRunningError."""
        disk = self._around.disks.get(node_id)
        loses = disk is not None and disk.loses_at_kill and self.is_running(node_id)
        if disk is not None and disk.journal is not None and loses:
            # First, for the syncs that are under way end with the process.
            disk.journal.cut_power()
        self._end_of(node_id, "kill")
        await self._hosted.kill(node_id)
        if disk is not None and loses:
            lose_unsynced(disk, node_id, self._steps)

    async def stop(self, node_id: int) -> None:
        """Raises NotRunningError."""
        self._end_of(node_id, "stop")
        await self._hosted.shut_down(node_id)

    async def restart(self, node_id: int, after_s: float | None) -> None:
        """With `after_s` it returns at once. Raises NotRunningError, StartError."""
        if after_s is None:
            await self._start_again(node_id)
            return
        self._steps.note(f"broker {node_id}: restart after {after_s:g} s")
        task = asyncio.get_running_loop().create_task(self._start_later(node_id, after_s), name=f"restart {node_id}")
        self._restarts.add(task)
        task.add_done_callback(self._restarts.discard)

    async def _start_later(self, node_id: int, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await self._start_again(node_id)

    async def _start_again(self, node_id: int) -> None:
        if self.is_running(node_id):
            self._end_of(node_id, "restart")
        else:
            self._steps.note(f"broker {node_id}: restart")
        await self._hosted.restart(node_id)

    def pause(self, node_id: int) -> None:
        """Raises NotRunningError."""
        parts = self._hosted.parts().get(node_id)
        if parts is None:
            raise NotRunningError(f"no broker {node_id!r} runs, only {', '.join(map(str, self._hosted.parts()))}")
        self._steps.note(f"broker {node_id}: pause")
        for wheel in _wheels(parts):
            wheel.hold()
        self._around.ways.stop(node_id)

    def resume(self, node_id: int) -> None:
        """One that was not paused is left as it is."""
        if self._around.ways.is_stopped(node_id):
            self._steps.note(f"broker {node_id}: resume")
            self._continue(node_id)

    def _continue(self, node_id: int) -> None:
        parts = self._hosted.parts().get(node_id)
        if parts is not None:
            for wheel in _wheels(parts):
                wheel.release()
        self._around.ways.go_on(node_id)

    def _end_of(self, node_id: int, what: str) -> None:
        """A process that ends waits for nothing: neither for its continuation nor for its disk."""
        self._steps.note(f"broker {node_id}: {what}")
        if self._around.ways.is_stopped(node_id):
            self._continue(node_id)
        disk = self._around.disks.get(node_id)
        if disk is not None and disk.is_stalled:
            disk.go_on()
            disk.apply()

    async def heal(self) -> None:
        """Links, disks and stopped processes are as at first, and all brokers are active, with their coordinators."""
        await self.cancel_restarts()
        for node_id in self._hosted.node_ids:
            if self._around.ways.is_stopped(node_id):
                self._continue(node_id)
        self._around.heal()
        if not self._steps.since_clear():
            return
        self._steps.clear()
        for node_id in self._hosted.node_ids:
            parts = self._hosted.parts().get(node_id)
            if parts is None or any(each.log.failure is not None for each in parts.replicas):
                await self._hosted.start_again(node_id)
        await self._waits.wait(BrokersActive(self._sources, self._hosted.node_ids), WITHIN_S)
        # What follows takes them away again: a broker that is still making its coordinator would miss that.
        await self._waits.wait(CoordinatorsLoaded(self._sources), WITHIN_S)

    async def cancel_restarts(self) -> None:
        """Those that were to come later."""
        restarts, self._restarts = self._restarts, set()
        for task in restarts:
            task.cancel()
        await asyncio.gather(*restarts, return_exceptions=True)

    # Partitions.

    async def move_leader(self, topic: str, index: int, to: int) -> None:
        """Raises the KafkaError of the reassignment or the election."""
        state = self._state(topic, index)
        if to not in self._hosted.node_ids:
            raise InvalidReplicaAssignment(f"there is no broker {to}")
        self._steps.note(f"partition {topic}-{index}: move_leader to {to}")
        if state.leader == to:
            return
        if state.replicas[0] != to:
            gone = () if to in state.replicas else (state.leader,)
            target = (to, *(each for each in state.replicas if each != to and each not in gone))
            await self._change(topic, index, lambda image, rules: reassign(image, topic, index, target, rules))
            await self._waits.wait(self._moved(topic, index, to), WITHIN_S)
        if self._state(topic, index).leader != to:
            await self._change(topic, index, lambda image, rules: elect_preferred(image, topic, index, rules))
        await self._waits.wait(partition_led_by(self._sources, topic, index, to), WITHIN_S)

    async def elect_uncleanly(self, topic: str, index: int) -> None:
        """Raises the KafkaError of the election."""
        self._state(topic, index)
        self._steps.note(f"partition {topic}-{index}: unclean_election")
        await self._change(topic, index, lambda image, rules: elect_unclean(image, topic, index, rules))
        await self._waits.wait(partition_led_by(self._sources, topic, index, None), WITHIN_S)

    def follows(self, topic: str, index: int, node_id: int) -> bool:
        """Whether a broker that runs copies the partition. Raises UnknownTopicOrPartition."""
        state = self._state(topic, index)
        has_leader = self.is_running(state.leader) and state.leader != node_id
        return has_leader and node_id in state.isr and self.is_running(node_id)

    async def propose_isr_without(self, topic: str, index: int, node_id: int) -> None:
        """Raises the KafkaError of AlterPartition."""
        self._steps.note(f"partition {topic}-{index}: shrink_isr {node_id}, now")

        def decide(image: MetadataImage, rules: RulesOf) -> PartitionChange | None:
            state = self._state(topic, index)
            members = [(each, -1) for each in state.isr if each != node_id]
            leader = image.brokers[state.leader]
            epochs = leader.epoch, state.leader_epoch, state.partition_epoch
            return alter_isr(image, topic, index, IsrProposal(state.leader, *epochs, members), rules)

        await self._change(topic, index, decide)

    async def move_group(self, group_id: str, to: int) -> None:
        """To another coordinator. Raises the KafkaError of the election."""
        topic = self._sources.reader.image.topic(CONSUMER_OFFSETS)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no {CONSUMER_OFFSETS} yet")
        await self.move_leader(CONSUMER_OFFSETS, partition_for(group_id, len(topic.partitions)), to)

    async def _change(
        self, topic: str, index: int, decide: Callable[[MetadataImage, RulesOf], PartitionChange | None]
    ) -> None:
        state = self._state(topic, index)
        all_parts = self._hosted.parts()
        # A broker that knows of all that has happened: one that was cut off decides on an old image.
        image = self._sources.reader.image
        parts = next((each for each in all_parts.values() if each.metadata.image is image), all_parts.get(state.leader))
        assert parts is not None, "the newest image is that of a broker that runs"
        rules = parts.metadata.rules_of
        decided: Decide = lambda known, _: decide(known, rules)  # noqa: E731
        key = topic, index
        outcomes = await change_partitions(
            parts.runtime, parts.metadata, [key], decided, timeout_ms=int(WITHIN_S * 1000)
        )
        error = outcomes[key]
        if error is not None:
            raise error

    def _moved(self, topic: str, index: int, to: int) -> TopicCondition:
        def lacks() -> list[str]:
            state = self._state(topic, index)
            is_done = not state.is_reassigning and state.replicas[0] == to and to in state.isr
            return [] if is_done else [f"{topic}-{index}: replicas {state.replicas}, in sync {state.isr}"]

        return TopicCondition(self._sources, topic, f"{topic}-{index} was not moved to broker {to}", lacks)

    def _state(self, topic: str, index: int) -> PartitionInfo:
        """Raises UnknownTopicOrPartition."""
        state = self._sources.reader.image.partition(topic, index)
        if state is None:
            raise UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
        return state


class BrokersActive:
    """All brokers are in the metadata of each of them, and active."""

    def __init__(self, sources: Sources, node_ids: list[int]) -> None:
        self._sources = sources
        self._node_ids = node_ids
        self.wanted = "not all brokers were active again"

    def is_met(self) -> bool:
        return not self._missing()

    def explain(self) -> Explanation:
        return Explanation("brokers are healed", [f"broker {each}" for each in self._missing()])

    def _missing(self) -> list[int]:
        known = self._sources.reader.image.brokers
        active = [each for each in self._node_ids if each in known and known[each].state is BrokerState.ACTIVE]
        return [each for each in self._node_ids if each not in active]


def _wheels(parts: Parts) -> Iterator[LoopWheel]:
    """Of a broker of the kit: of transport time and of broker time."""
    for wheel in (parts.runtime.wheel, parts.runtime.broker_wheel):
        assert isinstance(wheel, LoopWheel), "brokers in a process turn their wheels by its loop"
        yield wheel
