"""What the shop says about its orders, and the topics that carry it."""

import json
from dataclasses import asdict, dataclass

ORDERS = "orders"
RETRIES = "orders.retry"
DEAD_LETTERS = "orders.dead-letter"

PLACED = "placed"
CANCELLED = "cancelled"


@dataclass(frozen=True)
class OrderEvent:
    event_id: str
    """No two events have the same."""
    kind: str
    order_id: str
    cents: int = 0

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> "OrderEvent":
        return cls(**json.loads(value))
