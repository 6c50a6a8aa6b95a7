"""What only one process of a test run may do at a time: the processes share this machine's caches."""

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone(what: str) -> Iterator[None]:
    """Waits for every other process that is `alone` with the same thing."""
    with (Path(tempfile.gettempdir()) / f"ottla-tests-{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
