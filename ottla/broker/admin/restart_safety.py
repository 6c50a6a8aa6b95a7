"""Whether a broker may be stopped now (docs/operators.md §3.6), from the image of the metadata: so that every broker
answers for every other."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ottla.cluster.controller import TopicRules
from ottla.cluster.image import BrokerState, MetadataImage, PartitionInfo, TopicInfo
from ottla.cluster.partition_state import effective_min_isr

NAMED_MAX = 20


class Hindrance(NamedTuple):
    topic: str
    partition: int
    why: str


@dataclass(slots=True)
class RestartSafety:
    """`hindered` counts the partitions, `hindrances` names the first of them. `going_away` have this replica alone."""

    is_known: bool = True
    text: str = ""
    hindered: int = 0
    hindrances: tuple[Hindrance, ...] = ()
    going_away: int = 0

    @property
    def is_safe(self) -> bool:
        return self.is_known and not self.text and not self.hindered


class RestartCheck:
    """One look at all partitions, a part at a time: a cluster may have tens of thousands."""

    def __init__(self, image: MetadataImage, node_id: int, rules_of: Callable[[TopicInfo], TopicRules]) -> None:
        self._image = image
        self._node_id = node_id
        self._rules_of = rules_of
        self._active = image.active_brokers - {node_id}
        self._named: list[Hindrance] = []
        self.safety = RestartSafety()

    def steps(self) -> Iterator[int]:
        """Runs the check; a step looks at the partitions of one topic and gives their number."""
        stopping = [
            node_id
            for node_id, broker in self._image.brokers.items()
            if broker.state is BrokerState.STOPPING and node_id != self._node_id
        ]
        if self._node_id not in self._image.brokers:
            self.safety.is_known = False
            self.safety.text = f"there is no broker {self._node_id}"
            return
        if stopping:
            self.safety.text = f"broker {stopping[0]} is shutting down"
        for topic in self._image.topics.values():
            min_isr = self._rules_of(topic).min_isr
            for index, state in enumerate(topic.partitions):
                if self._node_id in state.replicas:
                    self._look(topic.name, index, state, effective_min_isr(state, min_isr))
            yield len(topic.partitions)
        self.safety.hindrances = tuple(self._named)

    def _look(self, topic: str, index: int, state: PartitionInfo, min_isr: int) -> None:
        if len(state.replicas) == 1:
            self.safety.going_away += 1
            return
        staying = [replica for replica in state.isr if replica in self._active]
        if not staying:
            self._hinder(topic, index, "no other replica is in sync and can lead")
        elif len(staying) < min_isr:
            self._hinder(topic, index, f"{len(staying)} replicas would be in sync, {min_isr} are needed")

    def _hinder(self, topic: str, index: int, why: str) -> None:
        self.safety.hindered += 1
        if len(self._named) < NAMED_MAX:
            self._named.append(Hindrance(topic, index, why))
