"""Brokers and partitions as a test has them in its hands: `kafka.brokers[2]`, `kafka.partition("orders", 0)`."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ottla.testing.usage import checks_usage
from ottla.testing.views import PartitionView, SegmentView
from ottla.testing.worker import NotRunningError

if TYPE_CHECKING:
    from ottla.testing.faults.faults import Fault
    from ottla.testing.testbed import Testbed

B = TypeVar("B")

UNLIMITED: Final = "unlimited"


class KafkaBrokers(Mapping[int, B], Generic[B]):
    """By node id, also those that do not run at the moment."""

    def __init__(self, bed: "Testbed", made: Callable[["Testbed", int], B]) -> None:
        self._bed = bed
        self._made = made

    def __getitem__(self, node_id: int) -> B:
        """Raises NotRunningError for one that is none of the cluster's."""
        if node_id not in self._bed.hosted.node_ids:
            known = ", ".join(map(str, self._bed.hosted.node_ids))
            raise NotRunningError(f"no broker {node_id!r} is part of the cluster, only {known}")
        return self._made(self._bed, node_id)

    def __iter__(self) -> Iterator[int]:
        return iter(self._bed.hosted.node_ids)

    def __len__(self) -> int:
        return len(self._bed.hosted.node_ids)


@checks_usage
class KafkaBroker:
    """One broker. What needs several raises NotRunningError where there is one alone: all but `pause` and `resume`."""

    def __init__(self, bed: "Testbed", node_id: int) -> None:
        self._bed = bed
        self.node_id = node_id

    @property
    def is_running(self) -> bool:
        """Also while it is paused."""
        return self._bed.call(self._bed.control.is_running, self.node_id)

    def kill(self) -> None:
        """As `kill -9` does: its connections break, its session ends later. Raises NotRunningError."""
        self._bed.run(self._bed.control.kill(self.node_id))

    def stop(self) -> None:
        """As SIGTERM does: it hands over what it leads first. Raises NotRunningError."""
        self._bed.run(self._bed.control.stop(self.node_id))

    def restart(self, *, after: float | None = None) -> None:
        """On its port, with its data; one that runs is stopped before. Returns when it is active; with `after`, in
        seconds, at once, and it starts then. Raises StartError, NotRunningError."""
        self._bed.run(self._bed.control.restart(self.node_id, after))

    def pause(self) -> None:
        """As SIGSTOP does: its sockets accept, nothing is answered, its session ends. Raises NotRunningError."""
        self._bed.call(self._bed.control.pause, self.node_id)

    def resume(self) -> None:
        """As SIGCONT does: what has come since then is worked off."""
        self._bed.call(self._bed.control.resume, self.node_id)

    def isolate(self) -> None:
        """Cuts it off from the other brokers and from the metadata store; clients still reach it. `kafka.links.heal`
        ends that. Raises LinkError where there is one alone."""
        self._bed.links.isolate(self.node_id)


@checks_usage
class KafkaBrokerAsync:
    """Each method is that of `KafkaBroker` with the same name, to await."""

    def __init__(self, bed: "Testbed", node_id: int) -> None:
        self._bed = bed
        self.node_id = node_id

    async def is_running(self) -> bool:
        return await self._bed.loop.wait_for_call(self._bed.control.is_running, self.node_id)

    async def kill(self) -> None:
        await self._bed.loop.wait(self._bed.control.kill(self.node_id))

    async def stop(self) -> None:
        await self._bed.loop.wait(self._bed.control.stop(self.node_id))

    async def restart(self, *, after: float | None = None) -> None:
        await self._bed.loop.wait(self._bed.control.restart(self.node_id, after))

    async def pause(self) -> None:
        await self._bed.loop.wait_for_call(self._bed.control.pause, self.node_id)

    async def resume(self) -> None:
        await self._bed.loop.wait_for_call(self._bed.control.resume, self.node_id)

    async def isolate(self) -> None:
        self._bed.links.isolate(self.node_id)


@checks_usage
class KafkaPartition:
    """One partition. What it shows is as of the moment of the call."""

    def __init__(self, bed: "Testbed", topic: str, index: int) -> None:
        self._bed = bed
        self.topic = topic
        self.index = index

    def describe(self) -> PartitionView:
        """Raises UnknownTopicOrPartition."""
        return self._bed.call(self._bed.reader.partition, self.topic, self.index)

    @property
    def leader(self) -> int | None:
        """None while it has none."""
        return self.describe().leader

    @property
    def isr(self) -> tuple[int, ...]:
        return tuple(self.describe().isr)

    @property
    def segments(self) -> tuple[SegmentView, ...]:
        """Of its log at the leader, the oldest first. Raises UnknownTopicOrPartition."""
        return self._bed.call(self._bed.log_jobs.segments, self.topic, self.index)

    def move_leader(self, *, to: int) -> None:
        """By an election where it is the preferred replica, else by a reassignment before it. Returns when it leads.
        Raises the KafkaError of either."""
        self._bed.run(self._bed.control.move_leader(self.topic, self.index, to))

    def shrink_isr(self, node_id: int, *, now: bool = False) -> "Fault":
        """The leader hears nothing of this follower's fetches of the partition, and removes it from the ISR if it lacks
        records for `replica.lag.time.max.ms`; `now` proposes that at once. Gives the rule that does it: `remove` it, or
        use it as a context, and the follower catches up. Raises the KafkaError of AlterPartition."""
        rule = withholding_fetches(self._bed, self.topic, self.index, node_id)
        if self._bed.call(self._bed.control.follows, self.topic, self.index, node_id):
            # The fetch that the leader had already would still be answered with records.
            rule.wait(hits=1)
        if now:
            self._bed.run(self._bed.control.propose_isr_without(self.topic, self.index, node_id))
        return rule

    def unclean_election(self) -> None:
        """Gives a partition without a leader one that may lack records. Raises the KafkaError of ElectLeaders."""
        self._bed.run(self._bed.control.elect_uncleanly(self.topic, self.index))


@checks_usage
class KafkaPartitionAsync:
    """Each method is that of `KafkaPartition` with the same name, to await; what are attributes there, `describe`
    gives."""

    def __init__(self, bed: "Testbed", topic: str, index: int) -> None:
        self._bed = bed
        self.topic = topic
        self.index = index

    async def describe(self) -> PartitionView:
        return await self._bed.loop.wait_for_call(self._bed.reader.partition, self.topic, self.index)

    async def segments(self) -> tuple[SegmentView, ...]:
        return await self._bed.loop.wait_for_call(self._bed.log_jobs.segments, self.topic, self.index)

    async def move_leader(self, *, to: int) -> None:
        await self._bed.loop.wait(self._bed.control.move_leader(self.topic, self.index, to))

    async def shrink_isr(self, node_id: int, *, now: bool = False) -> "Fault":
        rule = withholding_fetches(self._bed, self.topic, self.index, node_id)
        if await self._bed.loop.wait_for_call(self._bed.control.follows, self.topic, self.index, node_id):
            await rule.wait_async(hits=1)
        if now:
            await self._bed.loop.wait(self._bed.control.propose_isr_without(self.topic, self.index, node_id))
        return rule

    async def unclean_election(self) -> None:
        await self._bed.loop.wait(self._bed.control.elect_uncleanly(self.topic, self.index))


def withholding_fetches(bed: "Testbed", topic: str, index: int, node_id: int) -> "Fault":
    """A rule that keeps the fetches of one follower for one partition from its leader; other partitions are served."""
    from ottla.testing.faults.actions import Error

    bed.note_step(f"partition {topic}-{index}: shrink_isr {node_id}")
    return bed.hosted.fault_host.faults.fault(
        do=Error("NOT_LEADER_OR_FOLLOWER"),
        api="Fetch",
        peer="broker",
        client_id=f"broker-{node_id}-*",
        topic=topic,
        partition=index,
        times=UNLIMITED,
        optional=True,
    )
