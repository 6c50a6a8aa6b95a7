"""What comes in hundreds is done in steps of an event loop that do not grow with it."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.replicas.isr_changes import IsrChanges
from ottla.cluster.controller import CHANGES_PER_TRANSACTION


def test_isr_changes_commit_one_transaction_per_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[Callable[[], None]] = []
    sizes: list[int] = []
    runtime: Any = SimpleNamespace(soon=steps.append)
    metadata: Any = None
    changes = IsrChanges(runtime, metadata, lambda partition: None)
    monkeypatch.setattr(changes, "_commit", lambda wishes: sizes.append(len(wishes)))
    partition: Any = None
    change: Any = None
    for _ in range(2 * CHANGES_PER_TRANSACTION + 1):
        changes.propose(partition, change)
    committed_by_step: list[int] = []
    while steps:
        steps.pop(0)()
        committed_by_step.append(len(sizes))

    assert sizes == [CHANGES_PER_TRANSACTION, CHANGES_PER_TRANSACTION, 1]
    assert committed_by_step == [1, 2, 3]
