"""A shop on an empty broker, as it was written and as it was corrected. Its bank is in memory."""

import sqlite3
import threading
from collections.abc import Iterator
from types import ModuleType

import pytest
import shop.as_written.payments
import shop.as_written.relay
import shop.corrected.payments
import shop.corrected.relay
from shop.bank import BankUnavailable
from shop.events import DEAD_LETTERS, ORDERS, RETRIES
from shop.orders import Orders

from ottla.testing import Kafka

VERSIONS = {
    "as_written": (shop.as_written.relay, shop.as_written.payments),
    "corrected": (shop.corrected.relay, shop.corrected.payments),
}
PaymentWorker = shop.as_written.payments.PaymentWorker | shop.corrected.payments.PaymentWorker
PAID_WITHIN_S = 30
RUNS_MAX = 300


class SlowPayment:
    """A payment that has begun, and ends when the test says so."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def wait_until_begun(self) -> None:
        assert self.begun.wait(PAID_WITHIN_S)

    def pass_through(self) -> None:
        self.begun.set()
        assert self.may_end.wait(PAID_WITHIN_S)


class FakeBank:
    def __init__(self) -> None:
        self.bookings: list[tuple[str, int]] = []
        """Orders, with what was charged; below zero what was refunded."""
        self.failures = 0
        """How many calls fail from now on."""
        self.slow: SlowPayment | None = None
        """The next charge."""
        self._keys: set[str] = set()

    def charge(self, order_id: str, cents: int, idempotency_key: str) -> None:
        slow, self.slow = self.slow, None
        if slow is not None:
            slow.pass_through()
        self._book(order_id, cents, idempotency_key)

    def refund(self, order_id: str, idempotency_key: str) -> None:
        self._book(order_id, -self.charged(order_id), idempotency_key)

    def charged(self, order_id: str) -> int:
        return sum(cents for each, cents in self.bookings if each == order_id)

    def _book(self, order_id: str, cents: int, idempotency_key: str) -> None:
        if self.failures > 0:
            self.failures -= 1
            raise BankUnavailable
        if idempotency_key not in self._keys and cents:
            self.bookings.append((order_id, cents))
        self._keys.add(idempotency_key)


class Shop:
    def __init__(self, kafka: Kafka, relay: ModuleType, payments: ModuleType) -> None:
        self._kafka = kafka
        self._payments = payments
        self._running: list[tuple[PaymentWorker, threading.Thread]] = []
        database = sqlite3.connect(":memory:")
        self.bank = FakeBank()
        self.orders = Orders(database)
        self.relay = relay.Relay(database, kafka.client_config("producer") | {"client.id": "relay"})
        for topic in (ORDERS, RETRIES, DEAD_LETTERS):
            kafka.create_topic(topic, partitions=1)

    def start_worker(self, name: str) -> PaymentWorker:
        """In a thread; `name` is its client id."""
        worker = self._new_worker(name)
        self._running.append((worker, threading.Thread(target=worker.run, daemon=True)))
        self._running[-1][1].start()
        return worker

    def stop_workers(self) -> None:
        for worker, thread in self._running:
            worker.stop()
            thread.join(PAID_WITHIN_S)

    def work_off(self) -> None:
        """One worker handles all that is in the topics, and commits it."""
        worker, group = self._new_worker("worker"), self._kafka.group("payments")
        for _ in range(RUNS_MAX):
            worker.run_once()
            if not any([*group.lag(ORDERS).values(), *group.lag(RETRIES).values()]):
                break
        worker.close()
        group.wait_until_lag(0, topic=ORDERS)

    def _new_worker(self, name: str) -> PaymentWorker:
        consumer = self._kafka.client_config("consumer") | {"client.id": name, "auto.commit.interval.ms": 50}
        producer = self._kafka.client_config("producer") | {"client.id": name}
        return self._payments.PaymentWorker(self.bank, consumer, producer)


@pytest.fixture(params=VERSIONS, name="shop")
def made_shop(request: pytest.FixtureRequest, kafka: Kafka) -> Iterator[Shop]:
    made = Shop(kafka, *VERSIONS[request.param])
    yield made
    made.stop_workers()
    made.relay.close()
