"""From lines to acknowledged records, with the client library's producer."""

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Generator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from ottla.cli import client_log
from ottla.cli.client import Client
from ottla.cli.failures import ClientError
from ottla.cli.lines import Readable, read_lines
from ottla.cli.messages import ProducerRecord
from ottla.cli.operations.topics import reachable_partitions
from ottla.cli.progress import show_bar
from ottla.cli.session import Session

STDIN = "-"
# Long enough to fill batches from a pipe, too short to be felt at a keyboard.
LINGER_MS = 5
BATCH_BYTES = 256 * 1024
# How large a record may be is for the broker to say; this is only what the library will try.
REQUEST_BYTES_MAX = 256 * 1024 * 1024

MakeRecord = Callable[[bytes], ProducerRecord]


@dataclass(frozen=True, slots=True)
class Destination:
    topic: str
    acks: str
    compression: str | None


class Tally:
    """What has been read, sent and acknowledged."""

    def __init__(self) -> None:
        self.bytes_read = 0
        self.sent = 0
        self.acknowledged = 0
        self.seconds = 0.0
        self.was_interrupted = False
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


async def produce_lines(session: Session, destination: Destination, files: Sequence[str], make: MakeRecord) -> Tally:
    """Produce all lines of `files`; returns when everything sent has been acknowledged. Raises ClientError."""
    topic = destination.topic
    async with Client(session.bootstrap, session.timeout_s) as client:
        partitions = await reachable_partitions(client, topic, create_missing=True)
    from aiokafka.errors import KafkaError

    tally = Tally()
    started_at = monotonic()
    try:
        producer = await _started_producer(session, destination)
        try:
            sending = asyncio.create_task(_send(producer, topic, partitions, _messages(files, make, tally), tally))
            async with _shown(tally, files):
                with _cancelled_by_interrupt(sending, tally), suppress(asyncio.CancelledError):
                    await sending
        finally:
            await producer.stop()
    except (KafkaError, OSError) as error:
        raise ClientError(f"cannot produce to {topic}: {_sentence(error)}") from error
    tally.seconds = monotonic() - started_at
    if tally.failure is not None:
        lost = tally.sent - tally.acknowledged
        why = _sentence(tally.failure)
        raise ClientError(f"{lost} of {tally.sent} records to {topic} were not acknowledged: {why}")
    return tally


async def _started_producer(session: Session, destination: Destination) -> Any:
    from aiokafka import AIOKafkaProducer

    client_log.show_errors_only()
    producer = AIOKafkaProducer(
        bootstrap_servers=session.bootstrap_servers,
        client_id="ottla",
        acks=destination.acks if destination.acks == "all" else int(destination.acks),
        compression_type=destination.compression,
        linger_ms=LINGER_MS,
        max_batch_size=BATCH_BYTES,
        max_request_size=REQUEST_BYTES_MAX,
        request_timeout_ms=int(session.timeout_s * 1000),
    )
    await producer.start()
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


@contextmanager
def _cancelled_by_interrupt(sending: "asyncio.Task[None]", tally: Tally) -> Generator[None]:
    """Ctrl-C ends the reading; what has been read is still delivered."""

    def interrupt() -> None:
        tally.was_interrupted = True
        sending.cancel()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


@asynccontextmanager
async def _shown(tally: Tally, files: Sequence[str]) -> AsyncGenerator[None]:
    """A progress bar on standard error, unless lines are typed or nobody watches."""
    if not sys.stderr.isatty() or (STDIN in files and sys.stdin.isatty()):
        yield
        return
    bar = asyncio.create_task(
        show_bar(_total_bytes(files), lambda: (tally.bytes_read, f"{tally.acknowledged:,} records"))
    )
    try:
        yield
    finally:
        bar.cancel()
        with suppress(asyncio.CancelledError):
            await bar


def _total_bytes(files: Sequence[str]) -> int | None:
    """None when nobody knows: standard input may go on for ever."""
    return None if STDIN in files else sum(Path(file).stat().st_size for file in files)


def _sentence(error: BaseException) -> str:
    """The client library's errors begin with their number and class: `[Error 10] MessageSizeTooLargeError: ...`."""
    words = str(error).splitlines()
    return words[0] if words else type(error).__name__
