"""Sends what is in the outbox to Kafka."""

import sqlite3
from collections.abc import Mapping
from functools import partial
from typing import Any

from confluent_kafka import Producer

from shop.events import ORDERS

SENT_WITHIN_S = 30


class Relay:
    def __init__(self, database: sqlite3.Connection, kafka: Mapping[str, Any]) -> None:
        self._database = database
        self._producer = Producer({"enable.idempotence": True, **kafka})

    def run_once(self) -> None:
        """What is not acknowledged stays in the outbox, for the next time."""
        rows = self._database.execute("SELECT number, key, value FROM outbox WHERE NOT is_sent ORDER BY number")
        for number, key, value in rows.fetchall():
            self._producer.produce(ORDERS, key=key, value=value, on_delivery=partial(self._delivered, number))
        self._producer.flush(SENT_WITHIN_S)

    def close(self) -> None:
        self._producer.close()

    def _delivered(self, number: int, error: object, _message: object) -> None:
        if error is None:
            with self._database:
                self._database.execute("UPDATE outbox SET is_sent = 1 WHERE number = ?", (number,))
