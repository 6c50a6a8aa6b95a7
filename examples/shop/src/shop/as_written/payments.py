"""Charges orders that are placed, and refunds those that are cancelled. Several workers share the partitions."""

import threading
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, Message, Producer

from shop.bank import Bank, BankUnavailable
from shop.events import CANCELLED, DEAD_LETTERS, ORDERS, PLACED, RETRIES, OrderEvent

GROUP = "payments"
BATCH = 100
ATTEMPTS = 3


class PaymentWorker:
    def __init__(self, bank: Bank, consumer: Mapping[str, Any], producer: Mapping[str, Any]) -> None:
        self._bank = bank
        self._consumer = Consumer({**consumer, "group.id": GROUP, "auto.offset.reset": "earliest"})
        self._producer = Producer({"enable.idempotence": True, **producer})
        self._stopping = threading.Event()
        self._consumer.subscribe([ORDERS, RETRIES])

    def run(self) -> None:
        """Until `stop` is called, as it is by the handler of SIGTERM."""
        while not self._stopping.is_set():
            self.run_once()
        self.close()

    def stop(self) -> None:
        self._stopping.set()

    def close(self) -> None:
        self._consumer.close()
        self._producer.close()

    def run_once(self) -> None:
        for message in self._consumer.consume(BATCH, timeout=0.1):
            if self._stopping.is_set():
                break  # The worker that takes over reads the rest.
            if message.error() is None:
                self._handle(message)

    def _handle(self, message: Message) -> None:
        event = OrderEvent.from_bytes(message.value())
        try:
            self._pay(event)
        except BankUnavailable:
            # Other orders need not wait for this one.
            attempt = int(dict(message.headers() or []).get("attempt", b"1"))
            topic = RETRIES if attempt < ATTEMPTS else DEAD_LETTERS
            self._producer.produce(
                topic, key=message.key(), value=message.value(), headers={"attempt": str(attempt + 1)}
            )
            self._producer.flush()

    def _pay(self, event: OrderEvent) -> None:
        if event.kind == PLACED:
            self._bank.charge(event.order_id, event.cents, idempotency_key=str(uuid4()))
        elif event.kind == CANCELLED:
            self._bank.refund(event.order_id, idempotency_key=str(uuid4()))
