"""What the shop needs of a bank."""

from typing import Protocol


class BankUnavailable(Exception):
    """Nothing was done; it may work later."""


class Bank(Protocol):
    def charge(self, order_id: str, cents: int, idempotency_key: str) -> None:
        """Calls with the same key charge once. Raises BankUnavailable."""

    def refund(self, order_id: str, idempotency_key: str) -> None:
        """Gives back what the order was charged, which may be nothing. Raises BankUnavailable."""
