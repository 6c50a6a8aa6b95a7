"""What comes in hundreds is done in steps of an event loop that do not grow with it."""

from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.replicas.alter_partition import AlterPartitionManager
from ottla.cluster.controller import CHANGES_PER_TRANSACTION


def test_isr_changes_commit_one_transaction_per_step(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[Coroutine[Any, Any, None]] = []
    sizes: list[int] = []
    runtime: Any = SimpleNamespace(spawn=lambda coroutine, name: steps.append(coroutine))
    metadata: Any = None
    manager = AlterPartitionManager(runtime, metadata, lambda partition: None)

    async def commit(pending: list[Any]) -> None:
        sizes.append(len(pending))

    monkeypatch.setattr(manager, "_commit", commit)
    partition: Any = None
    change: Any = None
    for _ in range(2 * CHANGES_PER_TRANSACTION + 1):
        manager.submit(partition, change)
    committed_by_step: list[int] = []
    while steps:
        with pytest.raises(StopIteration):
            steps.pop(0).send(None)
        committed_by_step.append(len(sizes))

    assert sizes == [CHANGES_PER_TRANSACTION, CHANGES_PER_TRANSACTION, 1]
    assert committed_by_step == [1, 2, 3]
