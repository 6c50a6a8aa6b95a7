"""Orders, in a database. Each change and its event are one transaction: the event waits in the outbox for the relay."""

import sqlite3
from uuid import uuid4

from shop.events import CANCELLED, PLACED, OrderEvent

SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (order_id TEXT PRIMARY KEY, cents INTEGER NOT NULL, state TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, value BLOB NOT NULL, is_sent INTEGER NOT NULL DEFAULT 0
);
"""


class Orders:
    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        database.executescript(SCHEMA)

    def place(self, order_id: str, cents: int) -> None:
        with self._database:
            self._database.execute("INSERT INTO orders VALUES (?, ?, ?)", (order_id, cents, PLACED))
            self._add_to_outbox(OrderEvent(str(uuid4()), PLACED, order_id, cents))

    def cancel(self, order_id: str) -> None:
        with self._database:
            self._database.execute("UPDATE orders SET state = ? WHERE order_id = ?", (CANCELLED, order_id))
            self._add_to_outbox(OrderEvent(str(uuid4()), CANCELLED, order_id))

    def _add_to_outbox(self, event: OrderEvent) -> None:
        row = event.order_id, event.to_bytes()
        self._database.execute("INSERT INTO outbox (key, value) VALUES (?, ?)", row)
