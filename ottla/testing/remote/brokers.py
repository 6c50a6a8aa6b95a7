"""Brokers and partitions in another process."""

from collections.abc import Iterator
from typing import Any

from ottla.protocol.errors import UnknownTopicOrPartition
from ottla.testing.control.client import part
from ottla.testing.control.documents import TopicDocument
from ottla.testing.faults.faults import Fault
from ottla.testing.remote.asking import MS_PER_S, RemoteControl
from ottla.testing.remote.surroundings import RemoteLinks
from ottla.testing.surroundings.handles import KafkaBroker, KafkaBrokers, KafkaPartition
from ottla.testing.usage import checks_usage
from ottla.testing.views import PartitionView, SegmentView


class RemoteBrokers(KafkaBrokers[KafkaBroker]):
    def __init__(self, control: RemoteControl) -> None:
        self._control = control

    def __getitem__(self, node_id: int) -> KafkaBroker:
        self._control.check_node(node_id)
        return RemoteBroker(self._control, node_id)

    def __iter__(self) -> Iterator[int]:
        return iter(self._control.node_ids)

    def __len__(self) -> int:
        return len(self._control.node_ids)


@checks_usage
class RemoteBroker(KafkaBroker):
    def __init__(self, control: RemoteControl, node_id: int) -> None:
        self._control = control
        self.node_id = node_id

    @property
    def is_running(self) -> bool:
        return self.node_id in self._control.ask("GET", "/v1")["brokers"]

    def kill(self) -> None:
        self._do("kill")

    def stop(self) -> None:
        self._do("stop")

    def restart(self, *, after: float | None = None) -> None:
        self._do("restart", {"after_ms": None if after is None else round(after * MS_PER_S)})

    def pause(self) -> None:
        self._do("pause")

    def resume(self) -> None:
        self._do("resume")

    def isolate(self) -> None:
        RemoteLinks(self._control).isolate(self.node_id)

    def _do(self, what: str, body: dict[str, Any] | None = None) -> None:
        self._control.ask("POST", f"/v1/brokers/{self.node_id}/{what}", body or {})


@checks_usage
class RemotePartition(KafkaPartition):
    def __init__(self, control: RemoteControl, topic: str, index: int) -> None:
        self._control = control
        self.topic = topic
        self.index = index

    def describe(self) -> PartitionView:
        found: TopicDocument = self._control.read(TopicDocument, "GET", f"/v1/topics/{part(self.topic)}")
        if not 0 <= self.index < len(found.partitions):
            raise UnknownTopicOrPartition(f"there is no partition {self.topic}-{self.index}")
        return found.partitions[self.index]

    @property
    def segments(self) -> tuple[SegmentView, ...]:
        raise self._control.not_served("segments")

    def move_leader(self, *, to: int) -> None:
        self._control.ask("POST", f"/v1/partitions/{part(self.topic)}/{self.index}/leader", {"to": to})

    def shrink_isr(self, node_id: int, *, now: bool = False) -> Fault:
        del node_id, now
        raise self._control.not_served("shrink_isr")

    def unclean_election(self) -> None:
        raise self._control.not_served("an unclean election")
