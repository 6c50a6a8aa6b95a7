"""The owners of partitions, against a model that looks through all of them at each step."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.operations.group_events import Ownership, TopicPartition

MEMBERS = st.sampled_from("abcd")
PARTITIONS = st.sets(st.tuples(st.just("t"), st.integers(0, 5)))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("keep"), MEMBERS, PARTITIONS),
        st.tuples(st.just("rename"), MEMBERS, MEMBERS),
        st.tuples(st.just("give"), st.dictionaries(MEMBERS, PARTITIONS)),
        st.tuples(st.just("forget")),
    )
)


class Model:
    def __init__(self) -> None:
        self.owners: dict[TopicPartition, str] = {}
        self.former: dict[TopicPartition, str] = {}
        self.freed_ms: dict[TopicPartition, int] = {}

    def keep(self, member_id: str, kept: set[TopicPartition], now_ms: int) -> None:
        for partition in [key for key, owner in self.owners.items() if owner == member_id and key not in kept]:
            self.former[partition] = self.owners.pop(partition)
            self.freed_ms[partition] = now_ms

    def rename(self, old: str, new: str) -> None:
        for owners in (self.owners, self.former):
            owners.update({key: new for key, owner in owners.items() if owner == old})

    def give(
        self, assignments: dict[str, set[TopicPartition]], now_ms: int
    ) -> tuple[list[TopicPartition], dict[TopicPartition, int]]:
        for member_id in {*self.owners.values(), *assignments}:
            self.keep(member_id, assignments.get(member_id, set()), now_ms)
        moved: list[TopicPartition] = []
        unowned_ms: dict[TopicPartition, int] = {}
        for member_id, given_to_it in assignments.items():
            for partition in given_to_it:
                former = self.owners.get(partition, self.former.pop(partition, None))
                if former not in (None, member_id):
                    moved.append(partition)
                if partition in self.freed_ms:
                    unowned_ms[partition] = now_ms - self.freed_ms.pop(partition)
                self.owners[partition] = member_id
        return sorted(moved), unowned_ms

    def forget(self, now_ms: int) -> dict[TopicPartition, int]:
        unowned_ms = {partition: now_ms - freed_ms for partition, freed_ms in self.freed_ms.items()}
        self.__init__()
        return unowned_ms


@given(STEPS)
def test_ownership_is_what_the_model_says(steps: list[tuple[str, *tuple[object, ...]]]) -> None:
    ownership, model = Ownership(), Model()
    for now_ms, (step, *arguments) in enumerate(steps):
        moment = () if step == "rename" else (now_ms,)
        said, expected = (getattr(each, step)(*arguments, *moment) for each in (ownership, model))
        if step == "give":
            assert (sorted(said[0]), said[1]) == expected
        else:
            assert said == expected
        assert ownership.freed_ms == model.freed_ms
