"""Latest and committed views of state, against a model that replays the log."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.coordinator.runtime.timeline import Timeline, TimelineMap

KEYS = ("a", "b", "c")


def written(timeline: Timeline, append_id: int, view: TimelineMap[str, int], **values: int) -> None:
    with timeline.writing(append_id):
        for key, value in values.items():
            view.put(key, value)


def test_a_write_is_latest_at_once_and_committed_later() -> None:
    timeline = Timeline()
    view = TimelineMap[str, int](timeline)
    written(timeline, 1, view, k=1)
    assert (view.latest("k"), view.committed("k")) == (1, None)
    timeline.commit(1)
    assert (view.latest("k"), view.committed("k")) == (1, 1)


def test_a_write_of_a_failed_append_is_undone() -> None:
    timeline = Timeline()
    view = TimelineMap[str, int](timeline)
    view.put("k", 1)
    written(timeline, 1, view, k=2)
    with timeline.writing(2):
        view.remove("k")
    assert view.latest("k") is None
    timeline.revert(2)
    timeline.revert(1)
    assert view.latest("k") == 1


def test_what_a_later_append_wrote_survives_a_failed_earlier_one() -> None:
    timeline = Timeline()
    view = TimelineMap[str, int](timeline)
    written(timeline, 1, view, k=1, other=1)
    written(timeline, 2, view, k=2)
    timeline.revert(1)
    assert (view.latest("k"), view.latest("other")) == (2, None)


def test_an_older_append_committed_last_does_not_win() -> None:
    timeline = Timeline()
    view = TimelineMap[str, int](timeline)
    written(timeline, 1, view, k=1)
    written(timeline, 2, view, k=2)
    timeline.commit(2)
    timeline.commit(1)
    assert (view.latest("k"), view.committed("k")) == (2, 2)


class Views(RuleBasedStateMachine):
    """The model is the log: appends in order, each open, committed or gone."""

    def __init__(self) -> None:
        super().__init__()
        self.timeline = Timeline()
        self.maps = [TimelineMap[str, int](self.timeline), TimelineMap[str, int](self.timeline)]
        self.log: list[tuple[int, list[tuple[int, str, int | None]]]] = []
        self.committed: set[int] = set()
        self.last_id = 0

    @rule(
        writes=st.lists(
            st.tuples(st.integers(0, 1), st.sampled_from(KEYS), st.one_of(st.none(), st.integers(0, 9))), max_size=4
        )
    )
    def append(self, writes: list[tuple[int, str, int | None]]) -> None:
        self.last_id += 1
        self.log.append((self.last_id, writes))
        with self.timeline.writing(self.last_id):
            for index, key, value in writes:
                if value is None:
                    self.maps[index].remove(key)
                else:
                    self.maps[index].put(key, value)

    @rule(data=st.data())
    def end(self, data: Any) -> None:
        opened = [append_id for append_id, _ in self.log if append_id not in self.committed]
        if not opened:
            return
        append_id = data.draw(st.sampled_from(opened))
        if data.draw(st.booleans()):
            self.committed.add(append_id)
            self.timeline.commit(append_id)
        else:
            self.log = [append for append in self.log if append[0] != append_id]
            self.timeline.revert(append_id)

    @rule()
    def clear(self) -> None:
        self.log.clear()
        self.timeline.clear()

    @invariant()
    def views_are_what_replaying_the_log_gives(self) -> None:
        for index, view in enumerate(self.maps):
            latest = self._replayed(index, {append_id for append_id, _ in self.log})
            committed = self._replayed(index, self.committed)
            assert dict(view.latest_items()) == latest
            assert dict(view.committed_items()) == committed
            assert {key: view.latest(key) for key in KEYS} == {key: latest.get(key) for key in KEYS}
            assert {key: view.committed(key) for key in KEYS} == {key: committed.get(key) for key in KEYS}

    def _replayed(self, map_index: int, append_ids: set[int]) -> dict[str, int]:
        state: dict[str, int] = {}
        for append_id, writes in self.log:
            for index, key, value in writes if append_id in append_ids else ():
                if index == map_index:
                    state.pop(key, None)
                    if value is not None:
                        state[key] = value
        return state


TestViews = Views.TestCase
