"""Charges orders that are placed, and refunds those that are cancelled. Several workers share the partitions."""

import threading
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, Message, Producer

from shop.bank import Bank, BankUnavailable
from shop.events import CANCELLED, DEAD_LETTERS, ORDERS, PLACED, OrderEvent

GROUP = "payments"
BATCH = 100
ATTEMPTS = 3
BACKOFF_S = 0.05


class PaymentWorker:
    def __init__(self, bank: Bank, consumer: Mapping[str, Any], producer: Mapping[str, Any]) -> None:
        self._bank = bank
        # Commits what `store_offsets` says, and not what `consume` has handed over.
        manual = {"enable.auto.offset.store": False}
        self._consumer = Consumer({**consumer, "group.id": GROUP, "auto.offset.reset": "earliest", **manual})
        self._producer = Producer({"enable.idempotence": True, **producer})
        self._stopping = threading.Event()
        self._consumer.subscribe([ORDERS])

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
            if message.error() is None and self._handle(message):
                self._consumer.store_offsets(message)

    def _handle(self, message: Message) -> bool:
        """False where it was stopped before the order was paid."""
        event = OrderEvent.from_bytes(message.value())
        # Later events of the order are behind this one in its partition, and wait there.
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._pay(event)
            except BankUnavailable:
                if self._stopping.wait(BACKOFF_S * attempt):
                    return False
            else:
                return True
        self._producer.produce(DEAD_LETTERS, key=message.key(), value=message.value())
        return self._producer.flush() == 0

    def _pay(self, event: OrderEvent) -> None:
        # The key is that of the event: the bank does once what comes twice.
        if event.kind == PLACED:
            self._bank.charge(event.order_id, event.cents, idempotency_key=event.event_id)
        elif event.kind == CANCELLED:
            self._bank.refund(event.order_id, idempotency_key=event.event_id)
