"""One consumer group, as the handle of a test has it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.testing import conditions
from ottla.testing.testbed import Testbed
from ottla.testing.usage import checks_usage
from ottla.testing.views import GroupRebalance, GroupView, MemberView

if TYPE_CHECKING:
    from ottla.coordinator.facts import Fact


@checks_usage
class KafkaGroup:
    """One consumer group. What it shows is as of the moment of the call; `describe` shows all of one moment."""

    def __init__(self, bed: Testbed, group_id: str) -> None:
        self._bed = bed
        self.group_id = group_id

    def describe(self) -> GroupView:
        return self._bed.call(self._bed.reader.group, self.group_id)

    @property
    def exists(self) -> bool:
        return self.describe().exists

    @property
    def state(self) -> str:
        """As DescribeGroups shows it: Empty, PreparingRebalance, CompletingRebalance, Stable; Dead where there is no
        such group."""
        return self.describe().state

    @property
    def generation(self) -> int:
        return self.describe().generation

    @property
    def members(self) -> tuple[MemberView, ...]:
        return self.describe().members

    @property
    def offsets(self) -> Mapping[tuple[str, int], int]:
        """What is committed, by topic and partition."""
        return self.describe().offsets

    def lag(self, topic: str) -> dict[int, int]:
        """Records behind the committed offset, by partition; all of them where nothing is committed."""
        return self._bed.call(lambda: self._bed.reader.lag(self._bed.reader.group(self.group_id), topic))

    @property
    def history(self) -> list[GroupRebalance]:
        """The rebalances since the last reset, the oldest first."""
        return self._bed.call(self._bed.histories.of, self.group_id)

    @property
    def facts(self) -> "list[tuple[int, Fact]]":
        """What the coordinator has reported (`ottla.coordinator.facts`), each with its time in ms."""
        return list(self._bed.call(self._bed.histories.facts_of, self.group_id))

    def move_to(self, node_id: int) -> None:
        """Another broker becomes the group's coordinator: the leader of its partition of `__consumer_offsets`. Returns
        when it leads. Raises the KafkaError of the election."""
        self._bed.run(self._bed.control.move_group(self.group_id, node_id))

    # As an administrator.

    def delete(self) -> None:
        """With its offsets. Raises the KafkaError of DeleteGroups, as for a group with members."""
        self._bed.run(self._bed.group_commands.delete(self.group_id))

    def set_offsets(self, topic: str, offsets: Mapping[int, int]) -> None:
        """By partition. Raises the KafkaError of OffsetCommit, as for a group with members."""
        self._bed.run(self._bed.group_commands.set_offsets(self.group_id, topic, offsets))

    def evict(self, member: str, reason: str = "") -> str:
        """Removes a member: by its member id, its instance id, or its client id where no other has that. Gives the
        member id. Its client hears of it by its next request, and joins again. Raises the KafkaError of LeaveGroup."""
        return self._bed.run(self._bed.group_commands.evict(self.group_id, member, reason))

    def rebalance(self) -> None:
        """Starts one, unless one is under way. Members hear of it by their next heartbeats. Raises UNKNOWN_MEMBER_ID
        where there are none."""
        self._bed.call(self._bed.group_commands.rebalance, self.group_id)

    # Waits.

    def wait_until_stable(
        self, *, members: int | None = None, assigned: Mapping[str, int] | None = None, within: float | None = None
    ) -> None:
        """`assigned`: how many partitions of each topic have an owner. Raises DeadlineExceeded."""
        condition = conditions.group_stable(self._bed.sources, self.group_id, members, assigned)
        self._bed.run(self._bed.wait(condition, within))

    def wait_until_empty(self, *, within: float | None = None) -> None:
        """Until it has no member. Raises DeadlineExceeded."""
        self._bed.run(self._bed.wait(conditions.group_empty(self._bed.sources, self.group_id), within))

    def wait_until_generation(self, generation: int, *, within: float | None = None) -> None:
        """Until it has come to this generation, or a later one. Raises DeadlineExceeded."""
        condition = conditions.group_generation(self._bed.sources, self.group_id, generation)
        self._bed.run(self._bed.wait(condition, within))

    def wait_until_lag(self, lag: int, *, topic: str, within: float | None = None) -> None:
        """Until this number of records of the topic, or fewer, are not committed. Raises DeadlineExceeded."""
        condition = conditions.group_lag(self._bed.sources, self.group_id, lag, topic)
        self._bed.run(self._bed.wait(condition, within))

    def wait_until_committed(self, topic: str, offsets: Mapping[int, int], *, within: float | None = None) -> None:
        """Until it has committed these offsets, or later ones, by partition. Raises DeadlineExceeded."""
        condition = conditions.group_committed(self._bed.sources, self.group_id, topic, offsets)
        self._bed.run(self._bed.wait(condition, within))
