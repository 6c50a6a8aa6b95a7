"""Records from partitions or as a member of a group, with the client library's consumer."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any

import click

from ottla.cli import client_log
from ottla.cli.client import EARLIEST, LATEST, Client, TopicPartition
from ottla.cli.failures import ClientError, Interrupted
from ottla.cli.operations.topics import reachable_partitions
from ottla.cli.record_format import WriteRecord
from ottla.cli.session import Session

# How long one wait for records lasts; limits are looked at in between.
WAIT_MS = 100
RECORDS_AT_ONCE = 500
# At the end: for a broker to say that it is there, and for the consumer to commit and leave its group.
ANSWER_WITHIN_S = 1
STOP_WITHIN_S = 5


@dataclass(frozen=True, slots=True)
class RecordSource:
    topic: str
    group: str | None
    # Empty: all of them.
    partitions: tuple[int, ...]
    from_beginning: bool
    # Negative: so many before the end of each partition.
    offset: int | None


@dataclass(frozen=True, slots=True)
class Limits:
    max_messages: int | None
    idle_s: float | None
    exit_at_end: bool


async def consume_records(
    session: Session,
    source: RecordSource,
    limits: Limits,
    write: WriteRecord,
    at_end: Callable[[], list[str]] | None = None,
) -> None:
    """Print records until a limit or an interrupt; and what `at_end` gives, once all records have been read that were
    there at the beginning. Raises ClientError."""
    starts, ends = await _bounds(session, source)
    from aiokafka.errors import KafkaError

    try:
        consumer = await _started_consumer(session, source, starts)
        try:
            with _interrupt() as interrupted:
                await _print_records(consumer, limits, ends, write, interrupted, at_end)
        finally:
            is_stopped = await _stop(session, consumer)
    except (KafkaError, OSError) as error:
        raise ClientError(f"cannot consume {source.topic}: {str(error) or type(error).__name__}") from error
    if not is_stopped:
        failure = Interrupted if interrupted.is_set() else ClientError
        lost = "" if source.group is None else f": group {source.group} may not have committed what was read last"
        raise failure(f"no broker answered at the end{lost}")


async def _bounds(
    session: Session, source: RecordSource
) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
    """Where to begin, and the end of each partition at this moment."""
    async with Client(session.bootstrap, session.timeout_s) as client:
        existing = await reachable_partitions(client, source.topic)
        for index in source.partitions:
            if index not in existing:
                raise ClientError(f"topic {source.topic} has no partition {index}")
        if source.group is not None:
            return {}, {}
        partitions = [(source.topic, index) for index in source.partitions or existing]
        ends = await client.list_offsets(partitions, LATEST)
        if not source.from_beginning and source.offset is None:
            return ends, ends
        first = await client.list_offsets(partitions, EARLIEST)
    if source.offset is None:
        return first, ends
    wanted = {p: source.offset if source.offset >= 0 else ends[p] + source.offset for p in partitions}
    return {p: min(max(wanted[p], first[p]), ends[p]) for p in partitions}, ends


async def _started_consumer(session: Session, source: RecordSource, starts: Mapping[TopicPartition, int]) -> Any:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.structs import TopicPartition as Assigned

    client_log.show_errors_only()
    consumer: Any = AIOKafkaConsumer(
        bootstrap_servers=session.bootstrap_servers,
        client_id="ottla",
        group_id=source.group,
        auto_offset_reset="earliest" if source.from_beginning else "latest",
        enable_auto_commit=source.group is not None,
        request_timeout_ms=int(session.timeout_s * 1000),
    )
    if source.group is not None:
        consumer.subscribe([source.topic])
        await consumer.start()
        return consumer
    await consumer.start()
    consumer.assign([Assigned(topic, index) for topic, index in starts])
    for (topic, index), offset in starts.items():
        consumer.seek(Assigned(topic, index), offset)
    # The library's consumer can only be stopped once its tasks have begun.
    await asyncio.sleep(0)
    return consumer


async def _stop(session: Session, consumer: Any) -> bool:
    """Commits and leaves the group; whether there was a broker for that.

    Without one the library would go on trying, however long that takes."""
    stopping = asyncio.create_task(consumer.stop())
    if await _is_reachable(session):
        done, _ = await asyncio.wait([stopping], timeout=STOP_WITHIN_S)
        if done:
            # The library lets the cancellation of its own tasks out, where they wait to try again.
            if not stopping.cancelled():
                stopping.result()
            return True
    # What it leaves open goes with this process; its complaints about that are of no use to anybody.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    stopping.cancel()
    return False


async def _is_reachable(session: Session) -> bool:
    try:
        async with asyncio.timeout(STOP_WITHIN_S), Client(session.bootstrap, ANSWER_WITHIN_S):
            return True
    except (ClientError, TimeoutError):
        return False


async def _print_records(
    consumer: Any,
    limits: Limits,
    ends: Mapping[TopicPartition, int],
    write: WriteRecord,
    interrupted: asyncio.Event,
    at_end: Callable[[], list[str]] | None,
) -> None:
    printed = 0
    last_at = monotonic()
    while not interrupted.is_set():
        if (limits.exit_at_end or at_end is not None) and await _is_at_end(consumer, ends):
            if at_end is not None and not _print(at_end()):
                return
            at_end = None
            if limits.exit_at_end:
                return
        room = RECORDS_AT_ONCE
        if limits.max_messages is not None:
            room = min(room, limits.max_messages - printed)
        # What is fetched here is what the group commits, so nothing may be fetched that is not printed.
        batches = await consumer.getmany(timeout_ms=WAIT_MS, max_records=room)
        records = [record for batch in batches.values() for record in batch]
        lines = (write(record) for record in records)
        if not _print([line for line in lines if line is not None]):
            return
        printed += len(records)
        if records:
            last_at = monotonic()
        if printed == limits.max_messages or (limits.idle_s is not None and monotonic() - last_at >= limits.idle_s):
            return


def _print(lines: list[str]) -> bool:
    """False when nobody reads any more, as after `| head`."""
    try:
        for line in lines:
            click.echo(line)
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes standard output once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


async def _is_at_end(consumer: Any, ends: Mapping[TopicPartition, int]) -> bool:
    for partition in consumer.assignment():
        if await consumer.position(partition) < ends[partition.topic, partition.partition]:
            return False
    return True


@contextmanager
def _interrupt() -> Generator[asyncio.Event]:
    """Ctrl-C and SIGTERM let the command commit and leave its group before it ends."""
    interrupted = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupted.set)
    try:
        yield interrupted
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
