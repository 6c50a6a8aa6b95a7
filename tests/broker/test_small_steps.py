"""What comes in hundreds is done in steps of an event loop that do not grow with it."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.config.server import ServerConfig
from ottla.broker.handlers import create_topics, delete_topics
from ottla.broker.metadata.cluster_metadata import ClusterMetadata
from ottla.broker.replicas.alter_partition import AlterPartitionManager
from ottla.broker.runtime import ITEMS_PER_SLICE, in_slices
from ottla.broker.server.connection import Connection
from ottla.cluster import encoding
from ottla.cluster.controller import CHANGES_PER_TRANSACTION
from ottla.cluster.encoding import ENTRIES_PER_SLICE, TOPICS, topic_values
from ottla.cluster.image import PartitionInfo, TopicInfo
from ottla.cluster.store import Changes, Entry, Snapshot
from ottla.protocol.errors import UnknownTopicOrPartition
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tests.broker.test_connection import FakeTransport, feed
from tests.broker.wire import client_of, create_topic, fetch, produce, running_broker, until
from tests.cluster.stores import Clock
from tests.fakes.frames import build_request_frame

PARTITION = PartitionInfo(leader=0, leader_epoch=0, partition_epoch=0, replicas=(0,), isr=(0,))


def most_in_a_step(coroutine: Coroutine[Any, Any, Any], count: Callable[[], int]) -> int:
    """Runs it to its end, and says by how much `count` rose in one of its steps, at most."""
    most, before = 0, count()
    while True:
        try:
            coroutine.send(None)
        except StopIteration:
            return max(most, count() - before)
        most, before = max(most, count() - before), count()


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

    async def delete(topics: list[Any], *, says_disabled: bool, changes: None) -> list[Any]:
        return [UnknownTopicOrPartition("it has gone") for _ in topics]

    known = {name: Topic(name=name, topic_id=name.encode().ljust(16)) for name in ("a", "b", "c")}
    service: Any = SimpleNamespace(delete=delete)
    metadata: Any = SimpleNamespace(image=SimpleNamespace(topic=known.get))
    context: Any = SimpleNamespace(api_version=6, quotas=None)
    runtime: Any = None
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in ("a", "b", "c", "b")])

    response = asyncio.run(delete_topics.handle(service, metadata, runtime, context, request))

    assert [str(each.error_message) for each in response.responses] == [
        "it has gone",
        "topic 'b' is named twice",
        "it has gone",
        "topic 'b' is named twice",
    ]


def test_a_slice_has_so_many_items_at_most() -> None:
    done: list[int] = []

    most = most_in_a_step(in_slices(done.append, range(3 * ITEMS_PER_SLICE)), lambda: len(done))

    assert done == list(range(3 * ITEMS_PER_SLICE))
    assert most == ITEMS_PER_SLICE


def test_topics_of_a_request_are_created_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    worked: list[str] = []

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            worked.append(function.__name__)
            return function(*arguments)

        return counted

    for name in ("_new_topic", "_result"):
        monkeypatch.setattr(create_topics, name, counting(getattr(create_topics, name)))

    async def create(topics: list[Any], *, validate_only: bool, changes: None) -> list[Any]:
        return [TopicInfo(topic.spec.name, bytes(16), (PARTITION,)) for topic in topics]

    service: Any = SimpleNamespace(create=create)
    runtime: Any = SimpleNamespace(config=ServerConfig())
    context: Any = SimpleNamespace(quotas=None)
    names = [f"t{number}" for number in range(4 * ITEMS_PER_SLICE)]
    request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1) for name in names])

    most = most_in_a_step(create_topics.handle(service, runtime, context, request), lambda: len(worked))

    assert len(worked) == 2 * len(names)
    assert most <= 2 * ITEMS_PER_SLICE


# A long snapshot of the metadata.


def snapshot(count: int) -> Snapshot:
    topics = [TopicInfo(f"t{number}", number.to_bytes(16), (PARTITION,)) for number in range(count)]
    entries = [Entry(key, value, 1) for topic in topics for key, value in topic_values(topic).items()]
    return Snapshot(tuple(entries), 1)


def metadata_that_has(first: Snapshot, later: Changes) -> tuple[ClusterMetadata, list[Coroutine[Any, Any, None]]]:
    """Which has got both from its store; and the coroutines that it has spawned."""
    spawned: list[Coroutine[Any, Any, None]] = []
    runtime: Any = SimpleNamespace(
        config=ServerConfig(),
        spawn=lambda coroutine, name: spawned.append(coroutine) or SimpleNamespace(),
        guard=lambda action, *arguments: action(*arguments),
        end_event=lambda: None,
        clock=Clock(),
    )
    store: Any = SimpleNamespace(
        read=lambda prefix, done: done(first), watch=lambda prefix, revision, deliver: deliver(later)
    )
    metadata = ClusterMetadata(runtime, store, "cluster")
    metadata.start()
    return metadata, spawned


def test_a_long_snapshot_is_parsed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    topic_of = encoding.topic_of

    def counting(name: str, entries: Any) -> TopicInfo:
        parsed.append(name)
        return topic_of(name, entries)

    monkeypatch.setattr(encoding, "topic_of", counting)
    _, (taking,) = metadata_that_has(snapshot(2 * ENTRIES_PER_SLICE), Changes(2, (), ()))

    most = most_in_a_step(taking, lambda: len(parsed))

    assert len(parsed) == 2 * ENTRIES_PER_SLICE
    assert most <= ENTRIES_PER_SLICE // 2


def test_changes_wait_for_the_long_snapshot_before_them() -> None:
    gone = Changes(2, (), (f"{TOPICS}t0", "partitions/t0/0", "configs/topics/t0"))
    metadata, (taking,) = metadata_that_has(snapshot(ENTRIES_PER_SLICE), gone)

    seen: list[tuple[int, int]] = []

    def see() -> int:
        seen.append((metadata.image.revision, len(metadata.image.topics)))
        return 0

    most_in_a_step(taking, see)

    assert list(dict.fromkeys(seen)) == [(0, 0), (1, ENTRIES_PER_SLICE), (2, ENTRIES_PER_SLICE - 1)]


def test_a_short_snapshot_is_the_image_at_once() -> None:
    metadata, spawned = metadata_that_has(snapshot(3), Changes(2, (), ()))

    assert not spawned
    assert len(metadata.image.topics) == 3


# The garbage collector looks through all that is old in one step. What refers to itself would make it do so.


async def test_a_closed_connection_leaves_no_garbage(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        connection = Connection(broker.server, "PLAINTEXT")
        connection.connection_made(FakeTransport())  # type: ignore[arg-type]
        feed(connection, build_request_frame(ApiVersionsRequest(), 0, 1, "c"))
        gc.collect()
        connection.connection_lost(None)
        gc.disable()
        try:
            known = id(connection)
            del connection
            left = [each for each in gc.get_objects() if id(each) == known and isinstance(each, Connection)]
        finally:
            gc.enable()

    assert left == []


async def test_a_deleted_partition_leaves_no_garbage(tmp_path: Path) -> None:
    async with running_broker(tmp_path, log_segment_delete_delay_ms=0) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await produce(client, "t", b"value")
        await fetch(client, "t")
        replica = broker.replicas.find("t", 0)
        assert replica is not None
        left = [weakref.ref(part) for part in (replica.log, replica.log.durability)]
        gc.collect()
        gc.disable()
        try:
            del replica
            await client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), DeleteTopicsResponse, 5)
            await until(broker, lambda: all(part() is None for part in left))
        finally:
            gc.enable()
