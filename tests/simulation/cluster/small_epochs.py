"""Producer epochs that are used up after a few transactions, so that producers get other ids (§13.3.2)."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from ottla.coordinator.transactions import decisions, end_txn, entry, init_producer_id

SMALL_EPOCH_MAX = 6


@contextmanager
def small_epochs(are_drawn: bool) -> Iterator[None]:
    """While it lasts, and if the world has drawn it."""
    modules = (decisions, end_txn, entry, init_producer_id) if are_drawn else ()
    with ExitStack() as stack:
        for module in modules:
            stack.enter_context(patch.object(module, "EPOCH_MAX", SMALL_EPOCH_MAX))
        yield
