"""A client that consumes, transforms and produces, of aiokafka: alone, and assigned what it reads.

After each error another producer with the same transactional id takes over.
"""

import asyncio
import itertools
import logging
import random
import time
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from tests.storm.clients.client import Client
from tests.storm.clients.watchdog import HANGS_AFTER_S, Watchdog, begin_again
from tests.storm.settings import OUTPUT, REQUEST_TIMEOUT_MS, TOPIC, TRANSACTION_TIMEOUT_MS
from tests.storm.transforms import ASSIGNED_PIPELINE, Fate, Fates, Output

BATCH = 500
# Few large transactions cost a busy machine less than many small ones.
GATHERING_S = 1
ABORTS, DIES = 0.1, 0.04
# aiokafka asks a coordinator for ever, whatever it is answered.
ANSWER_WITHIN_S = 20
PARTITION = TopicPartition(TOPIC, *ASSIGNED_PIPELINE.partitions)
# An assertion of aiokafka fails where a broker that has just been started knows no broker yet.
FAILURES = (KafkaError, OSError, TimeoutError, AssertionError)


def run(client: Client) -> None:
    asyncio.run(_run(client))


async def _run(client: Client) -> None:
    watchdog = Watchdog(HANGS_AFTER_S, partial(begin_again, client.name))
    transformer = _Transformer(client, watchdog)
    while not client.stopping.is_set():
        try:
            await transformer.live()
        except FAILURES as error:
            logging.getLogger(client.name).warning("begins again after %r", error)
            await asyncio.sleep(0.2)
    watchdog.stop()


class _DiesError(KafkaError):  # type: ignore[misc]
    """As a process that is killed within a transaction."""


class _Transformer:
    def __init__(self, client: Client, watchdog: Watchdog) -> None:
        self._client = client
        self._watchdog = watchdog
        self._fates = Fates(client.directory, client.name)
        self._chance = random.Random(client.name)
        # Names of transactions: no two programs have one in common.
        self._names = (f"{client.name}.{time.time_ns()}/{number}" for number in itertools.count())

    async def live(self) -> None:
        """Until the first error, or the end."""
        producer = AIOKafkaProducer(
            bootstrap_servers=self._client.bootstrap,
            transactional_id=self._client.name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            linger_ms=5,
        )
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._client.bootstrap,
            group_id=ASSIGNED_PIPELINE.name,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )
        try:
            # The one before is replaced first: what it had under way is decided then, its offsets too.
            await self._answered(producer.start())
            await self._answered(consumer.start())
            consumer.assign([PARTITION])
            while not self._client.stopping.is_set():
                await self._transform(consumer, producer)
        finally:
            await self._stop(producer, consumer)

    async def _transform(self, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer) -> None:
        self._watchdog.alive()
        await asyncio.sleep(GATHERING_S)
        fetched = await consumer.getmany(PARTITION, timeout_ms=200, max_records=BATCH)
        messages = fetched.get(PARTITION)
        if not messages:
            return
        transaction = next(self._names)
        await self._answered(producer.begin_transaction())
        deliveries = []
        for message in messages:
            value = Output(ASSIGNED_PIPELINE.name, PARTITION.partition, message.offset, transaction).to_value()
            deliveries.append(await self._answered(producer.send(OUTPUT, value, partition=PARTITION.partition)))
        # aiokafka commits without records that it could not deliver.
        await self._answered(asyncio.gather(*deliveries))
        offsets = {PARTITION: messages[-1].offset + 1}
        await self._answered(producer.send_offsets_to_transaction(offsets, ASSIGNED_PIPELINE.name))
        chance = self._chance.random()
        if chance < ABORTS:
            await self._answered(producer.abort_transaction())
            self._fates.write(transaction, Fate.ABORTED)
            consumer.seek(PARTITION, messages[0].offset)
        elif chance < ABORTS + DIES:
            raise _DiesError
        else:
            await self._answered(producer.commit_transaction())
            self._fates.write(transaction, Fate.COMMITTED)

    async def _answered(self, call: Any) -> Any:
        """aiokafka may not end where it has to; then the watchdog sees that nothing comes after this."""
        self._watchdog.alive()
        return await asyncio.wait_for(call, ANSWER_WITHIN_S)

    async def _stop(self, *clients: Any) -> None:
        """What does not stop is left as it is; a producer that takes over fences it. aiokafka's fetcher awaits tasks
        that it has cancelled, and lets out what they raise."""
        for client in clients:
            try:
                await self._answered(client.stop())
            except (*FAILURES, asyncio.CancelledError):
                continue
