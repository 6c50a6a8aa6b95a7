"""Lines of a file, a pipe or a terminal, without holding up the event loop."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Protocol

CHUNK_BYTES = 256 * 1024
# Read ahead by this many chunks while the producer waits for its broker.
CHUNKS_AHEAD = 8


class Readable(Protocol):
    """An unbuffered stream: `read` returns what is there, and waits only if nothing is."""

    def read(self, size: int, /) -> bytes | None: ...


async def read_lines(stream: Readable) -> AsyncIterator[list[bytes]]:
    """The lines that have come so far, as they come, without their ends; the last one may lack its newline.

    Reading happens on a thread of its own that nobody waits for: one that is stuck on a terminal cannot be cancelled.
    It must not hold the lock of a buffered reader then, which the interpreter wants at its end; hence unbuffered.
    """
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(CHUNKS_AHEAD)
    arguments = (stream, chunks, room, asyncio.get_running_loop())
    threading.Thread(target=_pump, args=arguments, name="ottla-read-lines", daemon=True).start()
    rest = b""
    while chunk := await chunks.get():
        room.release()
        if isinstance(chunk, OSError):
            raise chunk
        *lines, rest = (rest + chunk).split(b"\n")
        yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest.removesuffix(b"\r")]


def _pump(
    stream: Readable,
    chunks: "asyncio.Queue[bytes | OSError]",
    room: threading.Semaphore,
    loop: asyncio.AbstractEventLoop,
) -> None:
    # A loop that is closed refuses: the command has ended for another reason.
    with suppress(RuntimeError):
        while True:
            try:
                chunk: bytes | OSError = stream.read(CHUNK_BYTES) or b""
            except OSError as error:
                chunk = error
            room.acquire()
            loop.call_soon_threadsafe(chunks.put_nowait, chunk)
            if not chunk or isinstance(chunk, OSError):
                return
