"""Data directories of brokers for tests: in memory where there is a tmpfs with room, and gone at the end.

The owner of a directory holds a lock on a file in it. A process that was killed leaves its directories; the next one
that makes a directory removes those whose lock is free. A forked child forgets the directories of its parent.
"""

import fcntl
import os
import weakref
from pathlib import Path
from secrets import token_hex

from ottla.broker.config.options import ConfigError

MEMORY = Path("/dev/shm")
FREE_BYTES_MIN = 256 << 20
PREFIX = "ottla-testing-"
LOCK_FILE = "owner.lock"


class ScratchDirectory:
    """A directory of this process, until `remove`, or until the process ends."""

    def __init__(self, where: str | Path = "auto") -> None:
        """`where`: the directory to make it in; `auto` is memory where there is room, else the temporary directory of
        the machine. Raises ConfigError."""
        parent = _automatic() if where == "auto" else Path(where)
        if not parent.is_dir():
            raise ConfigError(f"data={str(where)!r}: expected a directory that exists, or auto")
        _remove_abandoned(parent)
        # It gets the name by which others find it when it is locked.
        hidden = parent / f".{PREFIX}{os.getuid()}-{token_hex(8)}"
        hidden.mkdir(0o700)
        self._lock = os.open(hidden / LOCK_FILE, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = hidden.rename(hidden.with_name(hidden.name.removeprefix(".")))
        self._finalizer = weakref.finalize(self, _remove, self.path, self._lock)
        _OWNED.add(self)

    def remove(self) -> None:
        self._finalizer()

    def forget(self) -> None:
        """It is the parent's: the end of this process leaves it alone."""
        self._finalizer.detach()


_OWNED: "weakref.WeakSet[ScratchDirectory]" = weakref.WeakSet()


def _forget_all() -> None:
    for directory in list(_OWNED):
        directory.forget()


os.register_at_fork(after_in_child=_forget_all)


def _remove(path: Path, lock: int) -> None:
    from shutil import rmtree

    rmtree(path, ignore_errors=True)
    os.close(lock)


def _automatic() -> Path:
    try:
        room = os.statvfs(MEMORY)
    except OSError:
        return _of_the_machine()
    has_room = room.f_bavail * room.f_frsize >= FREE_BYTES_MIN and os.access(MEMORY, os.W_OK)
    return MEMORY if has_room else _of_the_machine()


def _of_the_machine() -> Path:
    # Imported here, as where something is removed: with memory for its data the first record needs neither.
    from tempfile import gettempdir

    return Path(gettempdir())


def _remove_abandoned(parent: Path) -> None:
    for path in parent.glob(f"{PREFIX}{os.getuid()}-*"):
        try:
            lock = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # It is being made, or removed.
        try:
            from shutil import rmtree

            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            rmtree(path, ignore_errors=True)
        except OSError:
            pass  # Its owner lives.
        finally:
            os.close(lock)
