"""OffsetCommit, OffsetFetch and OffsetDelete over the wire: shapes, versions and errors."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.cluster.store import Unavailable
from ottla.protocol.errors import ErrorCode, KafkaStorageError
from tests.broker.asking import running
from tests.broker.test_group_handlers import (
    codes,
    committed,
    describe,
    fetch,
    fetched,
    forget,
    found,
)
from tests.broker.test_topic_admin import creatable, created, deleted


@pytest.mark.parametrize("version", range(2, 10))
async def test_offsets_are_committed_in_every_version(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as broker:
        await found(broker)
        await created(broker, creatable("a", 2))

        answer = await committed(broker, "g", {("a", 0): 5, ("a", 7): 1, ("b", 0): 1}, version)

        assert answer == {("a", 0): 0, ("a", 7): 3, ("b", 0): 3}
        response = await fetched(broker, "g")
        assert [(topic.name, [each.committed_offset for each in topic.partitions]) for topic in response.topics] == [
            ("a", [5])
        ]


async def test_commit_of_unknown_partitions_needs_no_coordinator(tmp_path: Path) -> None:
    """§9.1.1."""
    async with running(tmp_path) as broker:
        assert await committed(broker, "g", {("b", 0): 1}) == {("b", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        await created(broker, creatable("a"))
        assert await committed(broker, "g", {("a", 0): 1}) == {("a", 0): ErrorCode.NOT_COORDINATOR}


@pytest.mark.parametrize("version", range(1, 8))
async def test_offsets_are_fetched_one_group_at_a_time(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as broker:
        await found(broker)
        await created(broker, creatable("a", 2))
        await committed(broker, "g", {("a", 0): 5})

        response = await fetched(broker, "g", version, {"a": [0, 1]})

        (topic,) = response.topics
        values = [(each.committed_offset, each.metadata, each.error_code) for each in topic.partitions]
        assert values == [(5, "note", 0), (-1, "", 0)]
        assert response.error_code == 0
        if version >= 2:
            everything = await fetched(broker, "g", version)
            assert [len(topic.partitions) for topic in everything.topics] == [1]


async def test_offset_fetch_error_is_where_the_version_has_a_field(tmp_path: Path) -> None:
    """§9.4.4; on each partition as well, where aiokafka 0.14 looks for it."""
    async with running(tmp_path) as broker:
        first = await fetched(broker, "g", 1, {"a": [0]})
        second = await fetched(broker, "g", 2, {"a": [0]})
        everything = await fetched(broker, "g", 2)
        eighth = await broker.ask(fetch.OffsetFetchRequest(groups=[fetch.OffsetFetchRequestGroup(group_id="g")]), 8)

        for response in (first, second):
            (partition,) = response.topics[0].partitions
            assert (partition.committed_offset, partition.error_code) == (-1, ErrorCode.NOT_COORDINATOR)
        assert second.error_code == ErrorCode.NOT_COORDINATOR
        assert (everything.error_code, everything.topics) == (ErrorCode.NOT_COORDINATOR, [])
        assert [(group.group_id, group.error_code) for group in eighth.groups] == [("g", ErrorCode.NOT_COORDINATOR)]


@pytest.mark.parametrize("version", [8, 9])
async def test_offsets_of_several_groups_are_fetched_at_once(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as broker:
        await found(broker)
        await created(broker, creatable("a", 2))
        await committed(broker, "g", {("a", 0): 5})
        member = {"member_id": "m", "member_epoch": 3} if version >= 9 else {}
        topics = [fetch.OffsetFetchRequestTopics(name="a", partition_indexes=[1])]
        groups = [
            fetch.OffsetFetchRequestGroup(group_id="h", topics=topics),
            fetch.OffsetFetchRequestGroup(group_id="g", topics=None, **member),
        ]
        response = await broker.ask(fetch.OffsetFetchRequest(groups=groups), version)

        seen = [
            (group.group_id, group.error_code, [p.committed_offset for topic in group.topics for p in topic.partitions])
            for group in response.groups
        ]
        assert seen == [("h", 0, [-1]), ("g", 0, [5])]


async def test_deletion_leaves_out_known_topics_without_partitions(tmp_path: Path) -> None:
    """As Kafka does; of unknown topics the answer has all."""
    async with running(tmp_path) as broker:
        await found(broker)
        await created(broker, creatable("a"))
        await committed(broker, "g", {("a", 0): 5})
        topics = [forget.OffsetDeleteRequestTopic(name=name, partitions=[]) for name in ("a", "nowhere")]

        response = await broker.ask(forget.OffsetDeleteRequest(group_id="g", topics=topics), 0)

        assert [topic.name for topic in response.topics] == ["nowhere"]


async def test_offsets_are_deleted(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await found(broker)
        await created(broker, creatable("a", 2))
        await committed(broker, "g", {("a", 0): 5, ("a", 1): 6})
        partitions = [forget.OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9)]
        topics = [forget.OffsetDeleteRequestTopic(name="a", partitions=partitions)]
        response = await broker.ask(forget.OffsetDeleteRequest(group_id="g", topics=topics), 0)
        unknown = await broker.ask(forget.OffsetDeleteRequest(group_id="h", topics=topics), 0)

        assert codes(response) == {("a", 0): 0, ("a", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert (unknown.error_code, unknown.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
        left = await fetched(broker, "g")
        assert [each.partition_index for each in left.topics[0].partitions] == [1]


async def test_offsets_go_with_their_topic(tmp_path: Path) -> None:
    """§9.7.4."""
    async with running(tmp_path) as broker:
        await found(broker)
        await created(broker, creatable("a"), creatable("b"))
        await committed(broker, "g", {("a", 0): 5, ("b", 0): 6})
        await deleted(broker, "a")

        assert [topic.name for topic in (await fetched(broker, "g")).topics] == ["b"]
    async with running(tmp_path) as broker:
        assert [topic.name for topic in (await fetched(broker, "g")).topics] == ["b"]


async def test_commit_that_cannot_be_stored_gets_an_error(tmp_path: Path) -> None:
    """G16: KAFKA_STORAGE_ERROR on the offsets log is NOT_COORDINATOR to the client (§4.6.1)."""
    async with running(tmp_path) as broker:
        await found(broker)
        await created(broker, creatable("a"))
        replicas = broker.broker.replicas
        append = replicas.append_records
        replicas.append_records = lambda topic, index, records, done, *_: broker.broker.runtime.soon(
            lambda: done(None, KafkaStorageError("no space is left"))
        )
        assert await committed(broker, "g", {("a", 0): 5}) == {("a", 0): ErrorCode.NOT_COORDINATOR}
        replicas.append_records = append
        assert await committed(broker, "g", {("a", 0): 6}) == {("a", 0): 0}


async def test_an_append_that_takes_too_long_times_out(tmp_path: Path) -> None:
    async with running(tmp_path, {"offsets.commit.timeout.ms": "1"}) as broker:
        await found(broker)
        await created(broker, creatable("a"))
        broker.broker.replicas.append_records = lambda *call: None

        answer = await committed(broker, "g", {("a", 0): 5})

        assert answer == {("a", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}


async def test_commit_waits_for_the_sync_that_flush_messages_wants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, {"log.flush.interval.messages": "1"}) as broker:
        await found(broker)
        await created(broker, creatable("a"))
        assert await committed(broker, "g", {("a", 0): 5}) == {("a", 0): 0}
        held: asyncio.Queue[tuple[Any, Any]] = asyncio.Queue()
        flusher = broker.broker.replicas._disk_sync._flusher
        with monkeypatch.context() as patch:
            patch.setattr(flusher, "_submit", lambda work, done: held.put_nowait((work, done)))
            answer = asyncio.ensure_future(committed(broker, "g", {("a", 0): 6}))
            work, done = await held.get()
            # The records are written; one more request is served, and this one has no answer yet.
            await broker.ask(describe.DescribeGroupsRequest(groups=["g"]), 5)
            was_answered = answer.done()
        work()
        done()
        assert await answer == {("a", 0): 0}

    assert not was_answered


async def test_offsets_that_may_be_cut_off_are_not_answered(tmp_path: Path) -> None:
    """§4.4.2: what a new coordinator has loaded counts when the high watermark has passed it."""
    async with running(tmp_path) as broker:
        await found(broker)
        await created(broker, creatable("a"))
        await committed(broker, "g", {("a", 0): 5})
        (replica,) = (each for each in broker.broker.replicas.of_topic("__consumer_offsets") if each.log.log_end_offset)
        began_at, replica.leader_epoch_start = replica.leader_epoch_start, replica.log.log_end_offset + 1

        assert (await fetched(broker, "g")).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

        replica.leader_epoch_start = began_at
        assert (await fetched(broker, "g")).error_code == 0


async def test_broker_that_was_stopped_asks_before_it_answers(tmp_path: Path) -> None:
    """Another coordinator may have stored more (§9.4.5); but for that the metadata store must answer."""
    async with running(tmp_path) as broker:
        await found(broker)
        await created(broker, creatable("a"))
        await committed(broker, "g", {("a", 0): 5})
        registration = broker.broker.parts.lifecycle._registration
        ends_ms = registration._session_ends_ms
        assert registration.session_remaining_ms > 0

        registration._session_ends_ms = 0
        stopped = await fetched(broker, "g", 7, {"a": [0]})
        registration.store_answered(Unavailable("no connection"))
        cut_off = await fetched(broker, "g", 7, {"a": [0]})
        registration.store_answered()
        registration._session_ends_ms = ends_ms

        assert stopped.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert [each.error_code for each in stopped.topics[0].partitions] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        assert (cut_off.error_code, cut_off.topics[0].partitions[0].committed_offset) == (0, 5)
        assert (await fetched(broker, "g")).error_code == 0
