"""From lines to acknowledged records, with the client library's producer."""

import asyncio
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

from ottla.cli.client import ClientConfig
from ottla.cli.failures import WORDS, ClientError
from ottla.cli.operations.client_library import library_options, on_signals, show_errors_only
from ottla.cli.operations.topics import reachable_partitions
from ottla.cli.records import ProducerRecord
from ottla.protocol.errors import ErrorCode

STDIN = "-"
# Long enough to fill batches from a pipe, too short to be felt at a keyboard.
LINGER_MS = 5
BATCH_BYTES = 256 * 1024
# The broker limits the size of a record; this is only the largest request that the library sends.
REQUEST_BYTES_MAX = 256 * 1024 * 1024

# Where the words of the client library do not help.
SAID_IN_OUR_WORDS = (
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)

CHUNK_BYTES = 256 * 1024
# Read ahead by this many chunks while the producer waits for its broker.
CHUNKS_AHEAD = 8

MakeRecord = Callable[[bytes], ProducerRecord]


class Readable(Protocol):
    """An unbuffered stream: `read` returns what is there, and waits only if nothing is."""

    def read(self, size: int, /) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class Destination:
    topic: str
    acks: str
    compression: str | None
    transactional_id: str | None = None
    """Everything is one transaction."""
    transaction_timeout_ms: int = 60_000


class Tally:
    """What has been read, sent and acknowledged."""

    def __init__(self) -> None:
        self.bytes_read = 0
        self.sent = 0
        self.acknowledged = 0
        self.seconds = 0.0
        self.was_interrupted = False
        self.was_aborted = False
        self.failure: BaseException | None = None

    def watch(self, delivery: "asyncio.Future[Any]") -> None:
        self.sent += 1
        delivery.add_done_callback(self._delivered)

    def _delivered(self, delivery: "asyncio.Future[Any]") -> None:
        error = asyncio.CancelledError() if delivery.cancelled() else delivery.exception()
        if error is None:
            self.acknowledged += 1
        elif self.failure is None:
            self.failure = error


async def produce_lines(
    config: ClientConfig, destination: Destination, files: Sequence[str], make: MakeRecord, tally: Tally
) -> None:
    """Produce all lines of `files`, counted in `tally`; returns when everything sent has been acknowledged.

    Raises ClientError."""
    topic = destination.topic
    # With what comes before the first record, such as the creation of the topic: a user waits for that too.
    started_at = monotonic()
    async with config.client() as client:
        partitions = await reachable_partitions(client, topic, create_missing=True)
    from aiokafka.errors import KafkaError

    try:
        producer = await started_producer(config, destination)
        try:
            send = partial(_send, producer, topic, partitions, _messages(files, make, tally), tally)
            if destination.transactional_id is None:
                await _until_interrupted(send, tally)
            else:
                await _in_transaction(producer, send, tally)
        finally:
            await producer.stop()
    except (KafkaError, OSError) as error:
        # Where there is no room for more in the client, what came before was not acknowledged, and says why.
        raise ClientError(f"cannot produce to {topic}: {sentence_of(tally.failure or error)}") from error
    tally.seconds = monotonic() - started_at
    if tally.failure is not None:
        lost = tally.sent - tally.acknowledged
        why = sentence_of(tally.failure)
        aborted = "; the transaction was aborted" if tally.was_aborted else ""
        raise ClientError(f"{lost} of {tally.sent} records to {topic} were not acknowledged: {why}{aborted}")


async def _until_interrupted(send: Callable[[], Coroutine[Any, Any, None]], tally: Tally) -> None:
    """Ctrl-C ends the reading; what has been read is still delivered, or aborted with its transaction."""
    sending = asyncio.create_task(send())

    def interrupt() -> None:
        tally.was_interrupted = True
        sending.cancel()

    with on_signals(signal.SIGINT, act=interrupt), suppress(asyncio.CancelledError):
        await sending


async def _in_transaction(producer: Any, send: Callable[[], Coroutine[Any, Any, None]], tally: Tally) -> None:
    """Commits what `send` sends; aborts it after an interrupt, or when not all of it was acknowledged."""
    with suppress(_AbortTransaction):
        async with producer.transaction():
            await _until_interrupted(send, tally)
            if not tally.was_interrupted:
                await producer.flush()
            if tally.was_interrupted or tally.failure is not None:
                tally.was_aborted = True
                raise _AbortTransaction


class _AbortTransaction(Exception):
    pass


async def started_producer(config: ClientConfig, destination: Destination) -> Any:
    from aiokafka import AIOKafkaProducer

    show_errors_only()
    producer: Any = AIOKafkaProducer(
        **library_options(config),
        acks=destination.acks if destination.acks == "all" else int(destination.acks),
        compression_type=destination.compression,
        linger_ms=LINGER_MS,
        max_batch_size=BATCH_BYTES,
        max_request_size=REQUEST_BYTES_MAX,
        transactional_id=destination.transactional_id,
        transaction_timeout_ms=destination.transaction_timeout_ms,
    )
    try:
        # The library would look for the coordinator of a transactional id without end.
        async with asyncio.timeout(None if destination.transactional_id is None else config.timeout_s):
            await producer.start()
    except BaseException as error:
        await producer.stop()
        if isinstance(error, TimeoutError):
            what = f"transactional id {destination.transactional_id} has no coordinator"
            raise ClientError(f"{what} that answered within {config.timeout_s:g} s") from error
        raise
    return producer


async def _messages(files: Sequence[str], make: MakeRecord, tally: Tally) -> AsyncIterator[ProducerRecord]:
    for file in files:
        name = "standard input" if file == STDIN else file
        read = 0
        with _opened(file) as stream:
            async for lines in read_lines(stream):
                for number, line in enumerate(lines, read + 1):
                    tally.bytes_read += len(line) + 1
                    try:
                        message = make(line)
                    except ValueError as error:
                        raise ClientError(f"line {number} of {name} {error}") from error
                    yield message
                read += len(lines)


def _opened(file: str) -> AbstractContextManager[Readable]:
    if file != STDIN:
        return Path(file).open("rb", buffering=0)
    stdin = sys.stdin.buffer
    return nullcontext(getattr(stdin, "raw", stdin))


async def _send(
    producer: Any, topic: str, partitions: Collection[int], messages: AsyncIterator[ProducerRecord], tally: Tally
) -> None:
    async for message in messages:
        if message.partition is not None and message.partition not in partitions:
            raise ClientError(f"topic {topic} has no partition {message.partition}")
        if tally.failure is not None:
            return
        delivery = await producer.send(
            topic,
            message.value,
            key=message.key,
            partition=message.partition,
            timestamp_ms=message.timestamp_ms,
            headers=list(message.headers),
        )
        tally.watch(delivery)


def sentence_of(error: BaseException) -> str:
    """The client library's errors begin with their number and class: `[Error 10] MessageSizeTooLargeError: ...`."""
    from aiokafka.errors import ProducerFenced

    code = ErrorCode.PRODUCER_FENCED if isinstance(error, ProducerFenced) else getattr(error, "errno", None)
    for said in SAID_IN_OUR_WORDS:
        if code == said:
            return WORDS[said]
    words = str(error).splitlines()
    return words[0] if words else type(error).__name__


async def read_lines(stream: Readable) -> AsyncIterator[list[bytes]]:
    """The lines that have come so far, as they come, without their ends; the last one may lack its newline.

    A thread of its own reads and is never joined: one that is blocked on a terminal cannot be cancelled. It must not
    hold the lock of a buffered reader then, which the interpreter needs when it exits; hence unbuffered.
    """
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(CHUNKS_AHEAD)
    arguments = (stream, chunks, room, asyncio.get_running_loop())
    threading.Thread(target=_read_chunks, args=arguments, name="ottla-read-lines", daemon=True).start()
    rest = b""
    while chunk := await chunks.get():
        room.release()
        if isinstance(chunk, OSError):
            raise chunk
        *lines, rest = (rest + chunk).split(b"\n")
        yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest.removesuffix(b"\r")]


def _read_chunks(
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
