"""Replicas spread evenly over brokers, with as few of them moved as possible.

First what stands on brokers that are not to be used finds another, then replicas move from the broker with the most to
the one with the fewest, until none has two more than another. Where there is a choice, a broker in a rack that the
partition is not in comes first. At last leadership is spread: a preferred replica, the first, changes its place with
another of the same partition, so that no data moves.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence

from ottla.cli.client import TopicPartition

Replicas = dict[TopicPartition, list[int]]


def spread_evenly(
    replicas: Mapping[TopicPartition, Sequence[int]], racks: Mapping[int, str | None]
) -> dict[TopicPartition, tuple[int, ...]]:
    """As many replicas as each partition has, all on the brokers of `racks`, of which there are enough for each."""
    placed = {partition: list(nodes) for partition, nodes in replicas.items()}
    _leave_others(placed, racks)
    _even_out(placed, racks)
    _spread_leaders(placed, racks)
    return {partition: tuple(nodes) for partition, nodes in placed.items()}


def _loads(placed: Replicas, racks: Mapping[int, str | None]) -> Counter[int]:
    loads = Counter(dict.fromkeys(racks, 0))
    for nodes in placed.values():
        loads.update(node for node in nodes if node in racks)
    return loads


def _leave_others(placed: Replicas, racks: Mapping[int, str | None]) -> None:
    loads = _loads(placed, racks)
    for nodes in placed.values():
        for n, node in enumerate(nodes):
            if node not in racks:
                free = [each for each in racks if each not in nodes]
                nodes[n] = min(free, key=lambda each: (loads[each], _shares_rack(each, n, nodes, racks), each))
                loads[nodes[n]] += 1


def _shares_rack(node: int, n: int, nodes: Sequence[int], racks: Mapping[int, str | None]) -> bool:
    """Whether `node`, as the n-th replica, is in the rack of another one."""
    rack = racks[node]
    return rack is not None and any(racks.get(each) == rack for i, each in enumerate(nodes) if i != n)


def _even_out(placed: Replicas, racks: Mapping[int, str | None]) -> None:
    loads = _loads(placed, racks)
    while True:
        most = max(sorted(loads), key=lambda node: loads[node])
        least = min(sorted(loads), key=lambda node: loads[node])
        if loads[most] - loads[least] < 2:
            return
        # There is one: more partitions are on the one than on the other.
        movable = [nodes for nodes in placed.values() if most in nodes and least not in nodes]
        nodes = min(movable, key=lambda each: (_shares_rack(least, each.index(most), each, racks), each[0] == most))
        nodes[nodes.index(most)] = least
        loads[most] -= 1
        loads[least] += 1


def _spread_leaders(placed: Replicas, racks: Mapping[int, str | None]) -> None:
    """By swaps along the shortest way from a broker with too many to one with too few."""
    leads = Counter(dict.fromkeys(racks, 0))
    leads.update(nodes[0] for nodes in placed.values())
    while way := next(filter(None, (_way_from(most, placed, leads) for most in sorted(racks))), None):
        for nodes, follower in way:
            leads[nodes[0]] -= 1
            leads[follower] += 1
            n = nodes.index(follower)
            nodes[0], nodes[n] = nodes[n], nodes[0]


def _way_from(most: int, placed: Replicas, leads: Counter[int]) -> list[tuple[list[int], int]]:
    """Partitions and their next leaders, which bring a leadership from `most` to a broker with two or more fewer."""
    came_by: dict[int, tuple[list[int], int] | None] = {most: None}
    waiting = deque([most])
    while waiting:
        node = waiting.popleft()
        if leads[node] <= leads[most] - 2:
            return _steps_to(node, came_by)
        for nodes in placed.values():
            if nodes[0] == node:
                for follower in nodes[1:]:
                    if follower not in came_by:
                        came_by[follower] = (nodes, follower)
                        waiting.append(follower)
    return []


def _steps_to(node: int, came_by: Mapping[int, tuple[list[int], int] | None]) -> list[tuple[list[int], int]]:
    steps: list[tuple[list[int], int]] = []
    step = came_by[node]
    while step is not None:
        steps.append(step)
        step = came_by[step[0][0]]
    return steps
