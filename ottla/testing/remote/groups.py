"""Groups of brokers in another process."""

from collections.abc import Mapping
from typing import Final

from ottla.coordinator.facts import Fact
from ottla.protocol.errors import UnknownTopicOrPartition
from ottla.testing.control.client import part
from ottla.testing.control.documents import Evicted, GroupDocument, GroupList, RebalanceList, TopicDocument
from ottla.testing.group_handle import KafkaGroup
from ottla.testing.reading import lag_of, no_group
from ottla.testing.remote.asking import RemoteControl, RemoteRefusal
from ottla.testing.usage import checks_usage
from ottla.testing.views import GroupRebalance, GroupView, TopicView

NO_GROUP: Final = "no-such-group"


@checks_usage
class RemoteGroup(KafkaGroup):
    def __init__(self, control: RemoteControl, group_id: str) -> None:
        self._control = control
        self.group_id = group_id

    def describe(self) -> GroupView:
        try:
            found: GroupDocument = self._control.read(GroupDocument, "GET", self._path)
        except RemoteRefusal as error:
            if error.kind != NO_GROUP:
                raise
            return no_group(self.group_id)
        return GroupView(
            group_id=self.group_id,
            exists=True,
            state=found.state,
            generation=found.generation,
            protocol=found.protocol,
            leader=found.leader,
            members=tuple(found.members),
            offsets={(each.topic, each.partition): each.offset for each in found.offsets},
        )

    def lag(self, topic: str) -> dict[int, int]:
        try:
            found: TopicDocument = self._control.read(TopicDocument, "GET", f"/v1/topics/{part(topic)}")
        except UnknownTopicOrPartition:
            return {}
        return lag_of(self.describe(), TopicView(topic, b"", tuple(found.partitions), found.configs))

    @property
    def history(self) -> list[GroupRebalance]:
        try:
            found: RebalanceList = self._control.read(RebalanceList, "GET", f"{self._path}/history")
        except RemoteRefusal as error:
            if error.kind != NO_GROUP:
                raise
            return []
        return list(found.rebalances)

    @property
    def facts(self) -> list[tuple[int, Fact]]:
        raise self._control.not_served("facts of a group")

    def move_to(self, node_id: int) -> None:
        del node_id
        raise self._control.not_served("moving a group")

    def delete(self) -> None:
        self._control.ask("DELETE", self._path)

    def set_offsets(self, topic: str, offsets: Mapping[int, int]) -> None:
        given = {str(index): offset for index, offset in offsets.items()}
        self._control.ask("POST", f"{self._path}/offsets", {"topic": topic, "offsets": given})

    def evict(self, member: str, reason: str = "") -> str:
        body = {"member": member, "reason": reason}
        done: Evicted = self._control.read(Evicted, "POST", f"{self._path}/evict", body)
        return done.member_id

    def rebalance(self) -> None:
        self._control.ask("POST", f"{self._path}/rebalance", {})

    def wait_until_stable(
        self, *, members: int | None = None, assigned: Mapping[str, int] | None = None, within: float | None = None
    ) -> None:
        self._control.wait("group-stable", within, group=self.group_id, members=members, assigned=assigned)

    def wait_until_empty(self, *, within: float | None = None) -> None:
        self._control.wait("group-empty", within, group=self.group_id)

    def wait_until_generation(self, generation: int, *, within: float | None = None) -> None:
        self._control.wait("group-generation", within, group=self.group_id, generation=generation)

    def wait_until_lag(self, lag: int, *, topic: str, within: float | None = None) -> None:
        self._control.wait("group-lag", within, group=self.group_id, topic=topic, lag=lag)

    def wait_until_committed(self, topic: str, offsets: Mapping[int, int], *, within: float | None = None) -> None:
        self._control.wait("group-committed", within, group=self.group_id, topic=topic, offsets=offsets)

    @property
    def _path(self) -> str:
        return f"/v1/groups/{part(self.group_id)}"


def group_names(control: RemoteControl) -> list[str]:
    """Those with members or committed offsets."""
    found: GroupList = control.read(GroupList, "GET", "/v1/groups")
    return [each.group_id for each in found.groups]
