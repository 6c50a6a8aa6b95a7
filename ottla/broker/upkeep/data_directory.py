"""Opening and closing the logs of a broker in threads, so that the others on the same loop need not wait.

Thousands of logs take seconds: at the start to read their indexes, at the end to sync them.

`Boot` says whether the directory has lost nothing although its broker was not stopped cleanly. What a killed process
has written, the kernel has. Only a restart of the machine, or another machine, empties the page cache; the kernel's
boot id, kept in the data directory, shows which it was (docs/decisions/0009). After a failed write or sync nothing is
certain, and the id is removed.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from ottla.broker.logging import LazyLog
from ottla.broker.runtime import Runtime
from ottla.protocol.errors import KafkaStorageError
from ottla.storage.files import FileSystem, write_atomically
from ottla.storage.log_directory import Checkpoint, LogDirectory
from ottla.storage.meta_properties import DataDirectoryError

BOOT_ID = "ottla-boot-id"
_KERNELS = Path("/proc/sys/kernel/random/boot_id")


def kernel_boot_id() -> str:
    """Drawn by the kernel when it starts; empty where the system has none."""
    try:
        return _KERNELS.read_text(encoding="ascii").strip()
    except OSError:
        return ""


class Boot:
    def __init__(self, log: LazyLog, files: FileSystem, data_dir: Path, boot_id: str | None) -> None:
        self._log = log
        self._files = files
        self._path = data_dir / BOOT_ID
        self._boot_id = kernel_boot_id() if boot_id is None else boot_id
        self._is_kept = self._boot_id != "" and self._kept_id() == self._boot_id
        self.is_the_same = self._is_kept
        """Since the broker's last life in this directory."""

    def confirm(self) -> None:
        """From now on what was lost before is known to the cluster: what happens next is counted from this boot.

        After a clean shutdown nothing was lost, so that is said before its mark is removed: who is killed while it
        starts has no mark any more."""
        if self._is_kept or not self._boot_id:
            return
        try:
            # Not synced: should it be lost, so may be the records.
            write_atomically(self._files, self._path, self._boot_id.encode(), sync=False)
            self._is_kept = True
        except OSError as error:
            self._log.warning("the boot id could not be kept", why=str(error))

    def check_logs(self, directory: LogDirectory) -> None:
        """After a failed write or sync it is not certain any more that nothing is lost."""
        if self._is_kept and any(log.failure is not None for log in directory.logs.values()):
            self.forget()

    def forget(self) -> None:
        if not self._is_kept:
            return
        self._is_kept = False
        try:
            self._files.remove(self._path)
        except OSError as error:
            self._log.warning("the boot id could not be removed", why=str(error))

    def _kept_id(self) -> str:
        try:
            return self._files.read_bytes(self._path).decode("ascii", "replace")
        except OSError:
            return ""


# So many logs are synced at once: a disk does several syncs in the time of one.
CLOSING_THREADS = 8


async def opened(runtime: Runtime, open_directory: Callable[..., LogDirectory]) -> LogDirectory:
    """What `open_directory` gives, which takes `notices` as LogDirectory.open does. Raises DataDirectoryError.

    A broker by itself does it in a thread too: the loop may be its user's, who has other work on it."""
    notices: list[str] = []

    def say() -> None:
        for notice in notices:
            runtime.log.storage.warning("recovery", notice=notice)

    try:
        directory = await _opened_in_thread(runtime, partial(open_directory, notices=notices.append))
    except (Exception, asyncio.CancelledError):
        say()
        raise
    # Not in a `finally`: that would run for a coroutine that is only collected, whenever that is.
    say()
    return directory


async def _opened_in_thread(runtime: Runtime, open_directory: Callable[[], LogDirectory]) -> LogDirectory:
    opening = asyncio.ensure_future(runtime.in_thread(open_directory))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        # The thread cannot be cancelled, and has taken the directory's lock.
        with suppress(DataDirectoryError):
            (await opening).close(clean=False)
        raise


async def closed_cleanly(runtime: Runtime, directory: LogDirectory, high_watermarks: Checkpoint, boot: Boot) -> bool:
    """Makes all data durable and says so in the directory; whether that could be done. The log says why it could not.

    Nothing may use the logs any more."""
    try:
        await runtime.in_thread(high_watermarks.write)
        logs = list(directory.logs.values())
        parts = [logs[start::CLOSING_THREADS] for start in range(CLOSING_THREADS)]
        await asyncio.gather(*(runtime.in_thread(partial(directory.close_logs, part)) for part in parts if part))
        # The mark comes last: all that it speaks of is on the disk.
        await runtime.in_thread(directory.close)
    except KafkaStorageError as error:
        runtime.log.storage.error("the data could not be closed cleanly", why=str(error))
        boot.forget()
        directory.close(clean=False)
        return False
    failures = [str(log.failure) for log in directory.logs.values() if log.failure is not None]
    for failure in failures:
        runtime.log.storage.error("a log that had failed could not be closed cleanly", why=failure)
        boot.forget()
    return not failures
