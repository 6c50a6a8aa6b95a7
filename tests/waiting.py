"""Waiting for what another process does, which only asking again can show."""

import time
from collections.abc import Callable


def wait_for(
    condition: Callable[[], bool], within_s: float, complaint: str | Callable[[], str], *, every_s: float = 0.02
) -> None:
    """Asks until the condition holds; AssertionError with the complaint after `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(complaint if isinstance(complaint, str) else complaint())
        time.sleep(every_s)
