"""What comes in hundreds is done in steps of an event loop that do not grow with it."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.handlers import delete_topics
from ottla.broker.replicas.alter_partition import AlterPartitionManager
from ottla.cluster.controller import CHANGES_PER_TRANSACTION
from ottla.protocol.errors import UnknownTopicOrPartition
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState


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


def test_topics_to_delete_are_not_compared_with_each_other() -> None:
    """A request may name thousands: a comparison of each with all others would hold up the loop."""

    class Topic(SimpleNamespace):
        def __eq__(self, other: object) -> bool:
            raise AssertionError("two topics were compared")

    async def delete(topics: list[Any], *, says_disabled: bool) -> list[Any]:
        return [UnknownTopicOrPartition("it has gone") for _ in topics]

    known = {name: Topic(name=name, topic_id=name.encode().ljust(16)) for name in ("a", "b", "c")}
    service: Any = SimpleNamespace(delete=delete)
    metadata: Any = SimpleNamespace(image=SimpleNamespace(topic=known.get))
    context: Any = SimpleNamespace(api_version=6)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in ("a", "b", "c", "b")])

    response = asyncio.run(delete_topics.handle(service, metadata, context, request))

    assert [str(each.error_message) for each in response.responses] == [
        "it has gone",
        "topic 'b' is named twice",
        "it has gone",
        "topic 'b' is named twice",
    ]
