"""Opening and closing the logs of a broker in threads, so that others whom the same loop serves need not wait.

Thousands of logs take seconds: at the start to read their indexes, at the end to sync them.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from ottla.broker.runtime import Runtime
from ottla.broker.upkeep.boot import Boot
from ottla.protocol.errors import KafkaStorageError
from ottla.storage.errors import DataDirectoryError
from ottla.storage.log_directory import Checkpoint, LogDirectory

# So many logs are synced at once: a disk does several syncs in the time of one.
CLOSING_THREADS = 8


async def opened(runtime: Runtime, open_directory: Callable[..., LogDirectory]) -> LogDirectory:
    """What `open_directory` gives, which takes `notices` as LogDirectory.open does. Raises DataDirectoryError.

    A broker by itself does it in a thread too: the loop may be its user's, who has other work on it."""
    notices: list[str] = []
    try:
        return await _opened_in_thread(runtime, partial(open_directory, notices=notices.append))
    finally:
        for notice in notices:
            runtime.log.warning("recovery", notice=notice)


async def _opened_in_thread(runtime: Runtime, open_directory: Callable[[], LogDirectory]) -> LogDirectory:
    opening = asyncio.ensure_future(runtime.in_thread(open_directory))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        # The thread cannot be stopped, and has taken the directory's lock.
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
        runtime.log.error("the data could not be closed cleanly", why=str(error))
        boot.forget()
        directory.close(clean=False)
        return False
    failures = [str(log.failure) for log in directory.logs.values() if log.failure is not None]
    for failure in failures:
        runtime.log.error("a log that had failed could not be closed cleanly", why=failure)
        boot.forget()
    return not failures
