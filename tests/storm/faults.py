"""What befalls the brokers and the members of etcd, planned from a seed before anything runs.

The same seed gives the same steps at the same times.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from tests.storm.settings import SESSION_TIMEOUT_MS

SESSION_S = SESSION_TIMEOUT_MS / 1000
# These stand for etcd where otherwise a broker is named: all of its members, or one of them.
ETCD = 0
MEMBERS = (-1, -2, -3)


class Action(Enum):
    KILL = "kill -9"
    STOP = "stop"
    START = "start"
    PAUSE = "pause"
    RESUME = "resume"
    MOVE_LEADER = "move the leader"
    COMPACT = "forget the past"
    REVOKE_LEASE = "revoke the lease of"


# What happens at once and leaves nothing to start again.
MOMENTS = {"move leader": Action.MOVE_LEADER, "compact": Action.COMPACT}
KINDS = ("kill", "in turn", "together", "all", "pause", "stop", "etcd", "member", "move leader", "compact", "lease")
WEIGHTS = (45, 15, 5, 3, 25, 10, 5, 10, 5, 5, 5)


@dataclass(frozen=True)
class Step:
    """`at_s` is the time since the storm began."""

    at_s: float
    action: Action
    node_id: int

    def __str__(self) -> str:
        return f"{self.at_s:6.1f} s  {self.action.value} {self._name()}"

    def _name(self) -> str:
        if self.node_id > 0:
            return f"broker {self.node_id}"
        return "etcd" if self.node_id == ETCD else f"member {-self.node_id} of etcd"


def plan(seed: int, duration_s: float, node_ids: Sequence[int]) -> list[Step]:
    """Steps in order of time. Whatever is disturbed is undone by the end, though not necessarily within the time."""
    chance = random.Random(seed)
    steps: list[Step] = []
    now_s = chance.uniform(1, 3)
    while now_s < duration_s:
        disturbance = list(_disturbance(chance, now_s, node_ids))
        steps += disturbance
        # Now and then the next blow falls before the brokers have found each other again.
        now_s = max(step.at_s for step in disturbance) + chance.choice((0.5, 2, 4)) * chance.uniform(0.5, 1.5)
    return sorted(steps, key=lambda step: step.at_s)


def _disturbance(chance: random.Random, now_s: float, node_ids: Sequence[int]) -> Iterator[Step]:
    one, *others = chance.sample(list(node_ids), len(node_ids))
    other = others[0] if others else one
    what = chance.choices(KINDS, WEIGHTS)[0]
    if what in ("etcd", "member"):
        one = ETCD if what == "etcd" else chance.choice(MEMBERS)
        what = chance.choice(("kill", "pause"))
    down_s = chance.uniform(0.1, 2.5 * SESSION_S)
    match what:
        case "move leader" | "compact":
            yield Step(now_s, MOMENTS[what], ETCD)
        case "lease":
            yield Step(now_s, Action.REVOKE_LEASE, one)
        case "kill":
            yield Step(now_s, Action.KILL, one)
            yield Step(now_s + down_s, Action.START, one)
        case "stop":
            yield Step(now_s, Action.STOP, one)
            yield Step(now_s + down_s, Action.START, one)
        case "pause":
            pause_s = chance.choice((0.3, 1.0, 2.0)) * SESSION_S
            yield Step(now_s, Action.PAUSE, one)
            yield Step(now_s + pause_s, Action.RESUME, one)
        case "in turn":
            back_s = now_s + down_s
            second_s = back_s + chance.uniform(0.5, 3)
            yield Step(now_s, Action.KILL, one)
            yield Step(back_s, Action.START, one)
            yield Step(second_s, Action.KILL, other)
            yield Step(second_s + down_s, Action.START, other)
        case _:
            killed = sorted({one, other}) if what == "together" else node_ids
            for number, node_id in enumerate(killed):
                yield Step(now_s + 0.05 * number, Action.KILL, node_id)
                yield Step(now_s + down_s + chance.uniform(0.5, 3), Action.START, node_id)
