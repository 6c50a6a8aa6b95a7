"""Records from partitions or as a member of a group, with the client library's consumer."""

import asyncio
import logging
import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from ottla.cli.client import ClientConfig
from ottla.cli.failures import ClientError, Interrupted
from ottla.cli.operations.client_library import library_options, on_signals, show_errors_only
from ottla.cli.operations.record_source import Bounds, Offsets, RecordSource, find_bounds

# How long one wait for records lasts; limits are looked at in between.
WAIT_MS = 100
RECORDS_AT_ONCE = 500
# At the end: for a broker to answer, and for the consumer to commit and leave its group.
ANSWER_WITHIN_S = 1
STOP_WITHIN_S = 5


@dataclass(frozen=True, slots=True)
class Limits:
    max_messages: int | None = None
    idle_s: float | None = None


# Takes the records that have come; false ends the reading.
TakeRecords = Callable[[Sequence[Any]], bool]


async def consume_records(
    config: ClientConfig,
    source: RecordSource,
    limits: Limits,
    take: TakeRecords,
    at_start: Callable[[], bool] | None = None,
) -> None:
    """Give records to `take` until a limit, the source's stop or an interrupt. `at_start` is called once an interrupt
    would end the reading in order; false ends it. Raises ClientError."""
    async with config.client() as client:
        bounds = await find_bounds(client, source)
    # Ctrl-C and SIGTERM let the consumer commit and leave its group before the command ends.
    interrupted = asyncio.Event()
    from aiokafka.errors import KafkaError

    try:
        consumer = await _started_consumer(config, source, bounds)
        try:
            with on_signals(signal.SIGINT, signal.SIGTERM, act=interrupted.set):
                if at_start is None or at_start():
                    await _read_records(consumer, limits, bounds.stops, take, interrupted)
        finally:
            is_stopped = await _stop(config, consumer)
    except (KafkaError, OSError) as error:
        raise ClientError(f"cannot consume {source.name}: {str(error) or type(error).__name__}") from error
    if not is_stopped:
        failure = Interrupted if interrupted.is_set() else ClientError
        lost = "" if source.group is None else f": group {source.group} may not have committed what was read last"
        raise failure(f"no broker answered at the end{lost}")


async def _started_consumer(config: ClientConfig, source: RecordSource, bounds: Bounds) -> Any:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.structs import TopicPartition as Assigned

    show_errors_only()
    consumer: Any = AIOKafkaConsumer(
        **library_options(config),
        group_id=source.group,
        auto_offset_reset="earliest" if source.start.from_beginning else "latest",
        enable_auto_commit=source.group is not None,
        isolation_level="read_committed" if source.committed_only else "read_uncommitted",
    )
    if source.group is not None:
        if source.include is None:
            consumer.subscribe(bounds.topics)
        else:
            # Of the whole name, and of topics to come too.
            consumer.subscribe(pattern="|".join(_whole_name(source)))
        await consumer.start()
        return consumer
    await consumer.start()
    consumer.assign([Assigned(topic, index) for topic, index in bounds.starts])
    for (topic, index), offset in bounds.starts.items():
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
        async with asyncio.timeout(STOP_WITHIN_S), replace(config, timeout_s=ANSWER_WITHIN_S).client():
            return True
    except (ClientError, TimeoutError):
        return False


async def _read_records(
    consumer: Any, limits: Limits, stops: Offsets, take: TakeRecords, interrupted: asyncio.Event
) -> None:
    taken = 0
    last_at = monotonic()
    while not interrupted.is_set():
        if stops and await _is_at_stop(consumer, stops):
            return
        room = RECORDS_AT_ONCE
        if limits.max_messages is not None:
            room = min(room, limits.max_messages - taken)
        # What is fetched here is what the group commits, so nothing may be fetched that is not taken.
        batches = await consumer.getmany(timeout_ms=WAIT_MS, max_records=room)
        records = [record for batch in batches.values() for record in batch if _is_before_stop(record, stops)]
        if not take(records):
            return
        taken += len(records)
        if records:
            last_at = monotonic()
        if taken == limits.max_messages or (limits.idle_s is not None and monotonic() - last_at >= limits.idle_s):
            return


def _is_before_stop(record: Any, stops: Offsets) -> bool:
    stop = stops.get((record.topic, record.partition))
    return stop is None or record.offset < stop


async def _is_at_stop(consumer: Any, stops: Offsets) -> bool:
    """Partitions that are read up to their stop are read no further."""
    is_at_stop = True
    for partition in consumer.assignment() - consumer.paused():
        if await consumer.position(partition) >= stops[partition.topic, partition.partition]:
            consumer.pause(partition)
        else:
            is_at_stop = False
    return is_at_stop


def _whole_name(source: RecordSource) -> list[str]:
    assert source.include is not None, "asked for with a pattern only"
    return [*(f"^{re.escape(topic)}$" for topic in source.topics), f"^(?:{source.include.pattern})$"]
