"""Clients of the storm outlive what their libraries do when they are stopped."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.storm.clients import aiokafka_transformer


class Stopping:
    """As a client of aiokafka whose fetcher was in a pause when it was stopped, with `error`."""

    def __init__(self, error: BaseException | None = None) -> None:
        self._error = error
        self.is_stopped = False

    async def stop(self) -> None:
        self.is_stopped = True
        if self._error is not None:
            raise self._error


async def test_clients_are_stopped_whatever_the_first_one_raises(tmp_path: Path) -> None:
    client: Any = SimpleNamespace(directory=tmp_path, name="c")
    watchdog: Any = SimpleNamespace(alive=lambda: None)
    transformer = aiokafka_transformer._Transformer(client, watchdog)

    for error in (asyncio.CancelledError(), OSError(), TimeoutError()):
        first, second = Stopping(error), Stopping()
        await transformer._stop(first, second)
        assert (first.is_stopped, second.is_stopped) == (True, True)
