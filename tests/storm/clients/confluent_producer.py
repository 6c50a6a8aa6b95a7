"""An idempotent producer of confluent-kafka."""

import itertools
import logging
import time

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.histories.events import UNKNOWN_OFFSET, Acknowledged, Sent
from tests.histories.files import now_us
from tests.storm.clients.client import Client, to_payload, to_value
from tests.storm.settings import PARTITIONS, TOPIC

FLUSH_WITHIN_S = 60


def run(client: Client) -> None:
    for life in itertools.count():
        if client.stopping.is_set():
            return
        try:
            _Life(client, f"{client.name}.{life}").produce()
        except KafkaException as error:
            # A fatal one: this producer writes nothing any more.
            logging.getLogger(client.name).error("cannot go on: %s", error)


class _Life:
    """One producer from its making to a fatal error or the end; the next one is another producer."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name
        self._producer = Producer(
            {
                "bootstrap.servers": client.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": client.delivery_timeout_ms,
                "reconnect.backoff.max.ms": 500,
                "log_level": 2,
            }
        )

    def produce(self) -> None:
        started = time.monotonic()
        for number in itertools.count():
            if self._client.stopping.is_set():
                break
            self._send(number)
            due = started + number / self._client.records_per_s
            self._producer.poll(max(0.0, min(due - time.monotonic(), 0.1)))
        self._producer.flush(FLUSH_WITHIN_S)

    def _send(self, number: int) -> None:
        partition = number % PARTITIONS
        value = f"{self._name}/{number}"
        self._client.history.write(
            Sent(now_us(), self._name, TOPIC, partition, number, value, idempotent=not self._client.gives_up)
        )
        while True:
            try:
                self._producer.produce(TOPIC, to_payload(value), partition=partition, on_delivery=self._delivered)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            payload, offset = message.value(), message.offset()
            assert payload is not None
            # None: a repeated batch that the broker knows to have, and no more of it (DUPLICATE_SEQUENCE_NUMBER).
            acknowledged = UNKNOWN_OFFSET if offset is None else offset
            self._client.history.write(Acknowledged(now_us(), to_value(payload), acknowledged))
