"""Records from partitions or as a member of a group, with the client library's consumer."""

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from ottla.cli.client import EARLIEST, LATEST, Client, ClientConfig, TopicPartition
from ottla.cli.failures import ClientError, Interrupted
from ottla.cli.operations.client_library import on_signals, show_errors_only
from ottla.cli.operations.topics import reachable_partitions

# How long one wait for records lasts; limits are looked at in between.
WAIT_MS = 100
RECORDS_AT_ONCE = 500
# At the end: for a broker to answer, and for the consumer to commit and leave its group.
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


# Takes the records that have come; false ends the reading.
TakeRecords = Callable[[Sequence[Any]], bool]


async def consume_records(
    config: ClientConfig,
    source: RecordSource,
    limits: Limits,
    take: TakeRecords,
    at_end: Callable[[], bool] | None = None,
) -> None:
    """Give records to `take` until a limit or an interrupt, and call `at_end` once all records have been read that were
    there at the beginning. Raises ClientError."""
    starts, ends = await _bounds(config, source)
    # Ctrl-C and SIGTERM let the consumer commit and leave its group before the command ends.
    interrupted = asyncio.Event()
    from aiokafka.errors import KafkaError

    try:
        consumer = await _started_consumer(config, source, starts)
        try:
            with on_signals(signal.SIGINT, signal.SIGTERM, act=interrupted.set):
                await _read_records(consumer, limits, ends, take, interrupted, at_end)
        finally:
            is_stopped = await _stop(config, consumer)
    except (KafkaError, OSError) as error:
        raise ClientError(f"cannot consume {source.topic}: {str(error) or type(error).__name__}") from error
    if not is_stopped:
        failure = Interrupted if interrupted.is_set() else ClientError
        lost = "" if source.group is None else f": group {source.group} may not have committed what was read last"
        raise failure(f"no broker answered at the end{lost}")


async def _bounds(
    config: ClientConfig, source: RecordSource
) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
    """Where to begin, and the end of each partition at this moment."""
    async with config.client() as client:
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


async def _started_consumer(config: ClientConfig, source: RecordSource, starts: Mapping[TopicPartition, int]) -> Any:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.structs import TopicPartition as Assigned

    show_errors_only()
    consumer: Any = AIOKafkaConsumer(
        bootstrap_servers=config.bootstrap_servers,
        client_id="ottla",
        group_id=source.group,
        auto_offset_reset="earliest" if source.from_beginning else "latest",
        enable_auto_commit=source.group is not None,
        request_timeout_ms=config.timeout_ms,
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


async def _stop(config: ClientConfig, consumer: Any) -> bool:
    """Commit and leave the group; false when no broker answered.

    Without one the library would retry without end."""
    stopping = asyncio.create_task(consumer.stop())
    if await _is_reachable(config):
        done, _ = await asyncio.wait([stopping], timeout=STOP_WITHIN_S)
        if done:
            # The library raises the cancellation of its own tasks when they wait to retry.
            if not stopping.cancelled():
                stopping.result()
            return True
    # What it leaves open ends with this process; the warnings about that would not help the user.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    stopping.cancel()
    return False


async def _is_reachable(config: ClientConfig) -> bool:
    try:
        async with asyncio.timeout(STOP_WITHIN_S), Client(config.bootstrap, ANSWER_WITHIN_S):
            return True
    except (ClientError, TimeoutError):
        return False


async def _read_records(
    consumer: Any,
    limits: Limits,
    ends: Mapping[TopicPartition, int],
    take: TakeRecords,
    interrupted: asyncio.Event,
    at_end: Callable[[], bool] | None,
) -> None:
    taken = 0
    last_at = monotonic()
    while not interrupted.is_set():
        if (limits.exit_at_end or at_end is not None) and await _is_at_end(consumer, ends):
            if at_end is not None and not at_end():
                return
            at_end = None
            if limits.exit_at_end:
                return
        room = RECORDS_AT_ONCE
        if limits.max_messages is not None:
            room = min(room, limits.max_messages - taken)
        # What is fetched here is what the group commits, so nothing may be fetched that is not taken.
        batches = await consumer.getmany(timeout_ms=WAIT_MS, max_records=room)
        records = [record for batch in batches.values() for record in batch]
        if not take(records):
            return
        taken += len(records)
        if records:
            last_at = monotonic()
        if taken == limits.max_messages or (limits.idle_s is not None and monotonic() - last_at >= limits.idle_s):
            return


async def _is_at_end(consumer: Any, ends: Mapping[TopicPartition, int]) -> bool:
    for partition in consumer.assignment():
        if await consumer.position(partition) < ends[partition.topic, partition.partition]:
            return False
    return True
