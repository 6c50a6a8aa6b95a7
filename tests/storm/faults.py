"""What befalls the brokers, planned from a seed before anything runs: same seed, same steps at the same times."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from tests.storm.settings import SESSION_TIMEOUT_MS

SESSION_S = SESSION_TIMEOUT_MS / 1000
# Stands for etcd where otherwise a broker is named.
ETCD = 0


class Action(Enum):
    KILL = "kill -9"
    STOP = "stop"
    START = "start"
    PAUSE = "pause"
    RESUME = "resume"


KINDS = ("kill", "in turn", "together", "all", "pause", "stop", "etcd")
WEIGHTS = (45, 15, 5, 3, 25, 10, 8)


@dataclass(frozen=True)
class Step:
    """`at_s` is the time since the storm began."""

    at_s: float
    action: Action
    node_id: int

    def __str__(self) -> str:
        return f"{self.at_s:6.1f} s  {self.action.value} {'etcd' if self.node_id == ETCD else self.node_id}"


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
    if what == "etcd":
        what, one = chance.choice(("kill", "pause")), ETCD
    down_s = chance.uniform(0.1, 2.5 * SESSION_S)
    match what:
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
