"""An idempotent producer of aiokafka."""

import asyncio
import itertools
import time

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from tests.histories.events import Acknowledged, Sent
from tests.histories.files import now_us
from tests.storm.clients.client import Client, to_payload
from tests.storm.settings import PARTITIONS, TOPIC

CLOSE_WITHIN_S = 60


def run(client: Client) -> None:
    asyncio.run(_run(client))


async def _run(client: Client) -> None:
    for life in itertools.count():
        if client.stopping.is_set():
            return
        try:
            await _Life(client, f"{client.name}.{life}").produce()
        except (KafkaError, OSError, TimeoutError):
            await asyncio.sleep(0.2)


class _Life:
    """One producer from its making to its first error: aiokafka's cannot be trusted with its sequence after one."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name
        self._broken = asyncio.Event()
        self._producer = AIOKafkaProducer(
            bootstrap_servers=client.bootstrap,
            enable_idempotence=True,
            acks="all",
            linger_ms=5,
            request_timeout_ms=client.delivery_timeout_ms,
        )

    async def produce(self) -> None:
        await self._producer.start()
        try:
            started = time.monotonic()
            for number in itertools.count():
                if self._client.stopping.is_set() or self._broken.is_set():
                    return
                await self._send(number)
                due = started + number / self._client.records_per_s
                await asyncio.sleep(max(0.0, due - time.monotonic()))
        finally:
            await asyncio.wait_for(self._producer.stop(), CLOSE_WITHIN_S)

    async def _send(self, number: int) -> None:
        partition = number % PARTITIONS
        value = f"{self._name}/{number}"
        self._client.history.write(
            Sent(now_us(), self._name, TOPIC, partition, number, value, idempotent=not self._client.gives_up)
        )
        delivery = await self._producer.send(TOPIC, to_payload(value), partition=partition)
        delivery.add_done_callback(lambda done: self._delivered(value, done))

    def _delivered(self, value: str, delivery: "asyncio.Future[object]") -> None:
        if delivery.cancelled() or delivery.exception() is not None:
            self._broken.set()
            return
        metadata = delivery.result()
        self._client.history.write(Acknowledged(now_us(), value, metadata.offset))  # type: ignore[attr-defined]
