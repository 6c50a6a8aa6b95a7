"""Replicas that are spread evenly, and no more of them moved than that needs."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.operations.even_replicas import spread_evenly

NO_RACKS = dict.fromkeys(range(5))


@st.composite
def placements(draw: st.DrawFn, highest: int = 5) -> dict[tuple[str, int], list[int]]:
    """Replicas on broker 5 are on one that is not to be used."""
    nodes = st.lists(st.integers(0, highest), min_size=1, max_size=4, unique=True)
    return {("t", n): draw(nodes) for n in range(draw(st.integers(1, 20)))}


@given(placements())
def test_no_broker_has_two_replicas_more_than_another(before: dict[tuple[str, int], list[int]]) -> None:
    after = spread_evenly(before, NO_RACKS)

    loads = Counter(dict.fromkeys(NO_RACKS, 0))
    for partition, nodes in after.items():
        assert len(set(nodes)) == len(nodes) == len(before[partition])
        assert set(nodes) <= NO_RACKS.keys()
        loads.update(nodes)
    assert max(loads.values()) - min(loads.values()) <= 1


@given(placements(highest=4))
def test_no_more_replicas_move_than_must(before: dict[tuple[str, int], list[int]]) -> None:
    after = spread_evenly(before, NO_RACKS)

    moved = sum(len(set(nodes) - set(before[partition])) for partition, nodes in after.items())
    loads = Counter(node for nodes in before.values() for node in nodes)
    even, with_one_more = divmod(loads.total(), len(NO_RACKS))
    highest_first = sorted((loads[node] for node in NO_RACKS), reverse=True)
    assert moved == sum(max(load - even - (n < with_one_more), 0) for n, load in enumerate(highest_first))


@given(placements())
def test_plan_of_a_plan_is_itself(before: dict[tuple[str, int], list[int]]) -> None:
    after = spread_evenly(before, NO_RACKS)

    assert spread_evenly(after, NO_RACKS) == after


@given(placements())
def test_leaders_are_as_even_as_replicas_allow(before: dict[tuple[str, int], list[int]]) -> None:
    after = spread_evenly(before, NO_RACKS)

    leads = Counter(nodes[0] for nodes in after.values())
    for nodes in after.values():
        assert all(leads[nodes[0]] - leads[node] <= 1 for node in nodes)


def test_another_rack_comes_first() -> None:
    racks = {0: "a", 1: "a", 2: "b", 3: "b"}

    assert spread_evenly({("t", 0): [0, 9]}, racks)["t", 0] == (0, 2)
    moved = spread_evenly({("t", 0): [2, 1], ("t", 1): [0, 1], ("t", 2): [0, 2]}, racks)
    assert moved["t", 1] == (3, 1)
