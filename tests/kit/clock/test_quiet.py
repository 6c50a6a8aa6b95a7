"""When brokers have come to rest, so that their time may move on."""

import asyncio
import time
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.testing.clock.walk import WITHIN_NS, Quiet

LOOKS = 1_000


class Working:
    """A broker for which a thread works until it was looked at so often."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    @property
    def works_under_way(self) -> int:
        self.looks -= 1
        return int(self.looks > 0)


def until_quiet(broker: Working) -> Quiet:
    waits: Any = SimpleNamespace(watch=lambda _: None, unwatch=lambda _: None)
    runtimes: Any = [broker]
    with Quiet(waits, lambda: runtimes) as quiet:
        asyncio.run(quiet.until_quiet())
    return quiet


def test_thread_that_gets_no_processor_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the loop may have none either, however long that lasts."""
    monkeypatch.setattr(time, "thread_time_ns", lambda: 0)
    broker = Working(LOOKS)

    assert (until_quiet(broker).given_up, broker.looks <= 0) == (0, True)


def test_broker_that_does_not_come_to_rest_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    spent_ns = count(0, WITHIN_NS // 10)
    monkeypatch.setattr(time, "thread_time_ns", lambda: next(spent_ns))
    broker = Working(LOOKS)

    assert (until_quiet(broker).given_up, broker.looks > 0) == (1, True)
