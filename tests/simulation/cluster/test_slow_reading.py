"""What is right of a broker whose client reads slowly or never, and what is found."""

import asyncio
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.cluster.client import REQUEST_TIMEOUT_MS
from tests.simulation.cluster.slow_reading import ANSWER_MS, LOOK_MS, LOOKS_MAX, SlowReader, SlowWire
from tests.simulation.judge import Judge
from tests.simulation.trace import Trace

FOR_EVER_MS = 10**9
IDLE_MS_MAX = 5_000


class Stand:
    """One client that reads nothing, and its broker: which answers for a while, and has closed it after another."""

    def __init__(self, *, answers_ms: int, closed_after_ms: int) -> None:
        self._now_ms = 0
        self._answers_ms, self._closed_after_ms = answers_ms, closed_after_ms
        self.judge = Judge(Trace(lambda: 0))
        self.plan = SimpleNamespace(faults=[], idle_ms_max=IDLE_MS_MAX)
        self.network = SimpleNamespace(links=SimpleNamespace(cuts=[]))
        self.writing_is_over = False
        self._owner = SimpleNamespace(closed=Counter(), connections=[])
        far = SimpleNamespace(get_protocol=lambda: self.connection, get_write_buffer_size=lambda: 100)
        # It is judged by nothing else here.
        self.connection = SimpleNamespace(_owner=self._owner, is_closed=True, listener_name="", transport=far)
        self._owner.connections.append(self.connection)
        self.wire: Any = SimpleNamespace(is_lost=False, transport=SimpleNamespace(peer=far, _unread_bytes=0))

    def serves(self, _: Any) -> bool:
        return True

    def process_behind(self, _: Any) -> Any:
        return SimpleNamespace(is_paused=False)

    async def sleep_ms(self, duration_ms: int) -> None:
        self._now_ms += duration_ms
        if self._now_ms <= self._answers_ms:
            self.wire.transport._unread_bytes += 1
        if self._now_ms > self._closed_after_ms:
            self._owner.connections.clear()


@pytest.mark.parametrize(
    ("answers_ms", "closed_after_ms", "is_found"),
    [
        pytest.param(0, FOR_EVER_MS, True, id="never-closed"),
        pytest.param(0, 9_900, False, id="closed-and-the-client-does-not-know"),
        pytest.param(6_000, 15_900, False, id="closed-when-it-had-not-been-answered-for-as-long"),
        pytest.param(6_000, FOR_EVER_MS, True, id="never-closed-after-its-last-answer"),
    ],
)
def test_a_connection_that_stays_unread_is_found(answers_ms: int, closed_after_ms: int, is_found: bool) -> None:
    stand: Any = Stand(answers_ms=answers_ms, closed_after_ms=closed_after_ms)

    asyncio.run(SlowReader(stand, random.Random(0), "slow")._look_on(stand.wire, LOOKS_MAX))

    assert {each.partition(":")[0] for each in stand.judge.violations} == ({"I-19"} if is_found else set())


@pytest.mark.parametrize(
    ("answered_ms_ago", "found"),
    [
        pytest.param(LOOK_MS, [], id="answers-come"),
        pytest.param(REQUEST_TIMEOUT_MS + 1, ["I-18"], id="no-answer-comes"),
    ],
)
def test_who_is_answered_too_slowly_to_wait_hangs_up(answered_ms_ago: int, found: list[str]) -> None:
    judge = Judge(Trace(lambda: 0))
    wire: Any = SlowWire("slow", judge)
    wire.world = SimpleNamespace(now_us=FOR_EVER_MS * 1000, has_been_calm_for_ms=FOR_EVER_MS)
    wire.transport = SimpleNamespace(abort=lambda: None)
    wire._answered_us = (FOR_EVER_MS - answered_ms_ago) * 1000

    wire._overdue(SimpleNamespace(broker_served=True, version=12, request="a fetch"), ANSWER_MS)

    assert [each.partition(":")[0] for each in judge.violations] == found
    assert wire.is_lost is not bool(found)
