"""aiokafka, in the words of the suite: each call has an event loop of its own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete

from ottla.testing.profile import client_config
from tests.kit.suite.library import POLL_MS, READ_UNCOMMITTED, WITHIN_S, Follower, Placed, Read, Sent

T = TypeVar("T")


class Aiokafka:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producer = client_config("producer", "aiokafka", bootstrap)
        self._consumer = client_config("consumer", "aiokafka", bootstrap)

    def send(
        self, topic: str, records: Sequence[Sent], *, idempotent: bool = False, compression: str = "none"
    ) -> list[Placed]:
        codec = None if compression == "none" else compression

        async def write() -> list[Placed]:
            options: dict[str, Any] = {"enable_idempotence": idempotent, "compression_type": codec, "acks": "all"}
            async with AIOKafkaProducer(**self._producer, **options) as producer:
                return await _written(producer, topic, records)

        return asyncio.run(write())

    def consume(
        self,
        topics: Sequence[str],
        group: str,
        count: int,
        *,
        commits: bool = True,
        isolation: str = READ_UNCOMMITTED,
    ) -> list[Read]:
        async def work(consumer: AIOKafkaConsumer) -> list[Read]:
            consumer.subscribe(list(topics))
            reads = await _take(consumer, count)
            if commits:
                await consumer.commit()
            return reads

        return self._with_consumer(work, group, isolation)

    def read(
        self, topic: str, partition: int, start: int, count: int, *, isolation: str = READ_UNCOMMITTED
    ) -> list[Read]:
        async def work(consumer: AIOKafkaConsumer) -> list[Read]:
            place = TopicPartition(topic, partition)
            consumer.assign([place])
            consumer.seek(place, start)
            return await _take(consumer, count)

        return self._with_consumer(work, None, isolation)

    def follow(self, topic: str, group: str, follower: Follower) -> None:
        async def work(consumer: AIOKafkaConsumer) -> None:
            consumer.subscribe([topic])
            while not follower.over.is_set():
                follower.reads += await _polled(consumer)
                follower.assigned = frozenset(each.partition for each in consumer.assignment())

        self._with_consumer(work, group)

    def committed(self, topic: str, group: str, partition: int) -> int | None:
        async def work(consumer: AIOKafkaConsumer) -> int | None:
            found: int | None = await consumer.committed(TopicPartition(topic, partition))
            return found

        return self._with_consumer(work, group)

    def commit(self, topic: str, group: str, offsets: Mapping[int, int]) -> None:
        async def work(consumer: AIOKafkaConsumer) -> None:
            places = _offsets(topic, offsets)
            consumer.assign(list(places))
            await consumer.commit(places)

        self._with_consumer(work, group)

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        async def work(consumer: AIOKafkaConsumer) -> tuple[int, int]:
            place = TopicPartition(topic, partition)
            first, end = await consumer.beginning_offsets([place]), await consumer.end_offsets([place])
            return first[place], end[place]

        return self._with_consumer(work)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        async def work(consumer: AIOKafkaConsumer) -> int | None:
            place = TopicPartition(topic, partition)
            found = (await consumer.offsets_for_times({place: timestamp_ms}))[place]
            return None if found is None else found.offset

        return self._with_consumer(work)

    def transact(
        self,
        transactional_id: str,
        topic: str,
        records: Sequence[Sent],
        *,
        commits: bool,
        read: tuple[str, str, Mapping[int, int]] | None = None,
    ) -> None:
        async def work() -> None:
            async with AIOKafkaProducer(**self._producer, transactional_id=transactional_id) as producer:
                await producer.begin_transaction()
                await _written(producer, topic, records)
                if read is not None:
                    group, source, offsets = read
                    await producer.send_offsets_to_transaction(_offsets(source, offsets), group)
                if commits:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()

        asyncio.run(work())

    def grow(self, topic: str, partitions: int) -> None:
        self._with_admin(lambda admin: admin.create_partitions({topic: NewPartitions(partitions)}))

    def partitions(self, topic: str) -> int:
        (found,) = self._with_admin(lambda admin: admin.describe_topics([topic]))
        return len(found["partitions"])

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        until = {TopicPartition(topic, partition): RecordsToDelete(before)}
        self._with_admin(lambda admin: admin.delete_records(until))

    def delete_topic(self, topic: str) -> None:
        self._with_admin(lambda admin: admin.delete_topics([topic]))

    def _with_admin(self, ask: Callable[[AIOKafkaAdminClient], Awaitable[Any]]) -> Any:
        async def work() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
            await admin.start()
            try:
                return await ask(admin)
            finally:
                await admin.close()

        return asyncio.run(work())

    def _with_consumer(
        self,
        work: Callable[[AIOKafkaConsumer], Awaitable[T]],
        group: str | None = None,
        isolation: str = READ_UNCOMMITTED,
    ) -> T:
        async def run() -> T:
            async with self._opened(group, isolation) as consumer:
                return await work(consumer)

        return asyncio.run(run())

    @asynccontextmanager
    async def _opened(self, group: str | None, isolation: str) -> AsyncIterator[AIOKafkaConsumer]:
        config: dict[str, Any] = {"group_id": group, "enable_auto_commit": False, "isolation_level": isolation}
        consumer = AIOKafkaConsumer(**self._consumer, **config)
        await consumer.start()
        try:
            yield consumer
        finally:
            await consumer.stop()


async def _written(producer: AIOKafkaProducer, topic: str, records: Sequence[Sent]) -> list[Placed]:
    futures = [
        await producer.send(topic, each.value, each.key, each.partition, each.timestamp_ms, list(each.headers))
        for each in records
    ]
    return [(done.partition, done.offset) for done in await asyncio.gather(*futures)]


async def _take(consumer: AIOKafkaConsumer, count: int) -> list[Read]:
    """The next records, and no position beyond them."""
    reads: list[Read] = []
    async with asyncio.timeout(WITHIN_S):
        while len(reads) < count:
            reads += await _polled(consumer, count - len(reads))
    return reads


async def _polled(consumer: AIOKafkaConsumer, at_most: int | None = None) -> list[Read]:
    found = await consumer.getmany(timeout_ms=POLL_MS, max_records=at_most)
    return [
        Read(each.partition, each.offset, each.value, each.key, tuple(each.headers), each.topic)
        for records in found.values()
        for each in records
    ]


def _offsets(topic: str, offsets: Mapping[int, int]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, partition): offset for partition, offset in offsets.items()}
