"""What the kit keeps of clients that come and go for as long as its brokers run is bounded."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.classic.states import GroupState
from ottla.coordinator.facts import StateChanged
from ottla.testing import histories, wire
from ottla.testing.clock.timeline import BrokerTimeline, MachineClock
from ottla.testing.deliveries import keep_last
from ottla.testing.histories import GroupHistories
from ottla.testing.surroundings.around import STEPS_KEPT, FaultSteps
from ottla.testing.wire import WireRing


class FakeConnection:
    is_closed = True


def changed(group: str) -> StateChanged:
    return StateChanged(
        group_id=group, generation=1, from_state=GroupState.EMPTY, to_state=GroupState.STABLE, reason=""
    )


def test_group_not_heard_of_for_longest_is_forgotten(monkeypatch: Any) -> None:
    monkeypatch.setattr(histories, "ALL_FACTS_KEPT", 10)
    monkeypatch.setattr(histories, "FACTS_KEPT", 4)
    kept = GroupHistories()
    for number in range(100):
        kept.observe(changed("busy"), number)
        kept.observe(changed(f"group-{number}"), number)

    assert len(kept.facts_of("busy")) == 4
    assert [group for group in kept._facts if group != "busy"] == [f"group-{number}" for number in range(94, 100)]
    assert kept._fact_count == 10
    kept.clear()
    kept.observe(changed("busy"), 0)
    assert kept._fact_count == 1


def test_names_of_clients_and_members_are_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(wire, "NAMES_KEPT", 3)
    monkeypatch.setattr(wire, "MEMBERS_KEPT", 3)
    ring = WireRing()
    route: Any = SimpleNamespace(api=SimpleNamespace(name="Heartbeat"), version=4, has_group=True)
    for number in range(10):
        context: Any = SimpleNamespace(connection=FakeConnection(), client_id=f"client-{number}")
        ring.begin(route, "", context, SimpleNamespace(group_id="g", member_id=f"member-{number}"))

    assert list(ring._numbers) == ["client-7", "client-8", "client-9"]
    assert list(ring._members) == ["member-7", "member-8", "member-9"]


def test_steps_are_bounded() -> None:
    steps = FaultSteps(BrokerTimeline(MachineClock()))
    for number in range(STEPS_KEPT + 5):
        steps.note(f"pause {number}")

    assert (len(steps.since_clear()), steps.since_clear()[0].what) == (STEPS_KEPT, "pause 5")


@given(st.lists(st.integers(0, 5)), st.integers(1, 4))
def test_last_ones_are_kept(keys: list[int], count: int) -> None:
    kept: dict[int, int] = {}
    for number, key in enumerate(keys):
        keep_last(kept, key, number, count)

    distinct = list(dict.fromkeys(reversed(keys)))[:count]
    assert list(kept) == distinct[::-1]
