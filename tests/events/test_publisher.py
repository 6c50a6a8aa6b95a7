"""Events in the log of a running broker: all of them in order, or dropped and counted."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.events.schema import EVENTS_TOPIC
from ottla.coordinator.facts import Cause, MemberRemoved, OffsetsCommitted
from ottla.protocol.errors import NotLeaderOrFollower
from ottla.protocol.records.batch import iterate_batches
from ottla.protocol.records.record import iterate_records
from ottla.replication.partition import Partition
from tests.broker.asking import Asking, messages, running
from tests.broker.test_group_handlers import commit_request, found, stable
from tests.broker.test_topic_admin import creatable, created

leave = messages("leave_group")
EVENTS = {"ottla.events.enable": "true", "ottla.events.flush.interval.ms": "5"}


def left(group: str, number: int = 0) -> MemberRemoved:
    return MemberRemoved(
        group_id=group,
        generation=number,
        member_id="m",
        group_instance_id=None,
        client_id="app",
        client_host="/h",
        cause=Cause.MEMBER_LEFT,
        client_reason=None,
        members=0,
    )


def logged(partition: Partition) -> Iterator[dict[str, Any]]:
    log = partition.log
    offset = 0
    while offset < log.log_end_offset:
        chunk = log.read(offset, 1 << 20, upper_bound=log.log_end_offset, min_one_batch=True)
        for position, header in iterate_batches(chunk.records):
            for record in iterate_records(chunk.records[position : position + header.size_bytes]):
                assert record.value is not None
                assert record.key is not None
                event = json.loads(record.value)
                assert event["wall_ms"] == record.timestamp
                assert record.key.decode() == key_of(event)
                yield event
        offset = chunk.end_offset


def key_of(event: dict[str, Any]) -> str:
    if "group_id" in event:
        return str(event["group_id"])
    if "transactional_id" in event:
        return str(event["transactional_id"])
    if "partition" in event:
        return f"{event.get('topic', '__consumer_offsets')}-{event['partition']}"
    return f"broker-{event['broker']}"


def events_of(broker: Asking) -> list[dict[str, Any]]:
    """In the order in which they were published."""
    found = [event for each in broker.broker.replicas if each.topic == EVENTS_TOPIC for event in logged(each)]
    return sorted(found, key=lambda event: event["seq"])


async def flushed(broker: Asking) -> list[dict[str, Any]]:
    """What is in the log once nothing waits any more."""
    publisher = broker.broker.events
    assert publisher is not None
    while publisher._buffer or publisher._unsent or publisher._in_flight or publisher._dropped:
        await a_moment(broker)
    return events_of(broker)


async def a_moment(broker: Asking) -> None:
    passed = broker.broker.runtime.loop.create_future()
    broker.broker.runtime.wheel.schedule(broker.broker.runtime.clock.now_ms() + 5, lambda: passed.set_result(None))
    await passed


def partitions_of(broker: Asking, group: str) -> list[int]:
    """Where each of the group's events is."""
    partitions = [each for each in broker.broker.replicas if each.topic == EVENTS_TOPIC]
    return [each.index for each in partitions for event in logged(each) if event.get("group_id") == group]


async def test_rebalance_is_published_from_its_start_to_its_end(tmp_path: Path) -> None:
    async with running(tmp_path, EVENTS) as broker:
        await found(broker)
        member = await stable(await broker.client())
        events = await flushed(broker)

    assert [event["type"] for event in events if event.get("group_id") == "g"] == [
        "member_id_handed_out",
        "member_joined",
        "state_changed",
        "rebalance_started",
        "state_changed",
        "generation_started",
        "member_synced",
        "state_changed",
        "member_assigned",
        "generation_completed",
    ]
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert len({(event["broker"], event["run"]) for event in events}) == 1
    (started,) = [event for event in events if event["type"] == "rebalance_started"]
    assert (started["cause"], started["member_id"]) == ("member joined", member.member_id)


async def test_without_the_property_there_is_no_topic_of_events(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await found(broker)
        await stable(await broker.client())
        assert EVENTS_TOPIC not in broker.broker.image.topics


async def test_what_waits_at_the_stop_is_written(tmp_path: Path) -> None:
    settings = {**EVENTS, "ottla.events.flush.interval.ms": "60000"}
    async with running(tmp_path, EVENTS) as broker:
        await flushed(broker)
    async with running(tmp_path, settings) as broker:
        for number in range(250):
            broker.broker.events.observe(left("g", number), 0)
    async with running(tmp_path) as broker:
        events = [event for event in events_of(broker) if event.get("group_id") == "g"]

    assert sorted(event["generation"] for event in events) == list(range(250))


async def test_more_than_can_wait_is_dropped_and_counted(tmp_path: Path) -> None:
    async with running(tmp_path, {**EVENTS, "ottla.events.buffer.max": "10"}) as broker:
        await flushed(broker)
        for number in range(25):
            broker.broker.events.observe(left("g", number), 0)
        events = await flushed(broker)

    kept = [event["generation"] for event in events if event["type"] == "member_removed"]
    assert kept == list(range(10)), "what came first is kept"
    assert [event["count"] for event in events if event["type"] == "dropped"] == [15]


async def test_events_of_ignored_groups_are_not_published(tmp_path: Path) -> None:
    async with running(tmp_path, {**EVENTS, "ottla.events.ignored.groups": "mine-, yours"}) as broker:
        for group in ("mine-1", "yours", "theirs", "mine"):
            broker.broker.events.observe(left(group), 0)
            broker.broker.events.observe(OffsetsCommitted(group_id=group, member_id="m", partitions=1), 0)
        broker.broker.events._sum_up_commits(0)
        events = await flushed(broker)

    groups = [event["group_id"] for event in events if "group_id" in event]
    assert groups == ["theirs", "mine", "theirs", "mine"]


async def test_lag_and_commits_are_sampled(tmp_path: Path) -> None:
    async with running(tmp_path, {**EVENTS, "ottla.events.sample.interval.ms": "100"}) as broker:
        await found(broker)
        await created(broker, creatable("a"))
        await broker.ask(commit_request("simple", {("a", 0): 5}), 7)
        events: list[dict[str, Any]] = []
        while not any(event["type"] == "lag_sampled" for event in events):
            await a_moment(broker)
            events = await flushed(broker)

    (committed,) = [event for event in events if event["type"] == "offsets_committed"]
    assert (committed["group_id"], committed["commits"], committed["partition_count"]) == ("simple", 1, 1)
    sampled = next(event for event in events if event["type"] == "lag_sampled")
    fields = ("group_id", "topic", "partition", "committed", "end")
    assert [sampled[name] for name in fields] == ["simple", "a", [0], [5], [0]]


async def test_events_of_a_key_stay_in_one_partition(tmp_path: Path) -> None:
    async with running(tmp_path, EVENTS) as broker:
        await flushed(broker)
        for number in range(20):
            broker.broker.events.observe(left(f"g{number % 4}", number), 0)
        await flushed(broker)
        places = {group: partitions_of(broker, group) for group in ("g0", "g1", "g2", "g3")}

    assert all(len(indexes) == 5 and len(set(indexes)) == 1 for indexes in places.values())
    assert len({indexes[0] for indexes in places.values()}) > 1


async def test_a_failing_append_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, EVENTS) as broker:
        await flushed(broker)
        replicas = broker.broker.replicas
        whole = type(replicas).append_records

        def to_nowhere(topic: str, index: int, records: memoryview, done: Any) -> None:
            whole(replicas, topic, index + 99, records, done)

        monkeypatch.setattr(replicas, "append_records", to_nowhere)
        broker.broker.events.observe(left("g"), 0)
        broker.broker.events._flush()
        broker.broker.runtime.end_event()
        monkeypatch.undo()
        broker.broker.events.observe(left("h"), 0)
        events = await flushed(broker)

    assert [event["count"] for event in events if event["type"] == "dropped"] == [1]
    assert [event["group_id"] for event in events if event["type"] == "member_removed"] == ["h"]


async def test_events_that_a_leader_refused_are_written_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, EVENTS) as broker:
        await flushed(broker)
        replicas = broker.broker.replicas
        refused: list[int] = []

        def refuse(topic: str, index: int, records: memoryview, done: Any) -> None:
            refused.append(index)
            broker.broker.runtime.soon(lambda: done(None, NotLeaderOrFollower("another broker leads")))

        monkeypatch.setattr(replicas, "append_records", refuse)
        for number in range(9):
            broker.broker.events.observe(left("g", number), 0)
        while not refused:
            await a_moment(broker)
        monkeypatch.undo()
        events = await flushed(broker)

    assert [event["generation"] for event in events if event["type"] == "member_removed"] == list(range(9))
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert "dropped" not in [event["type"] for event in events]


async def test_events_to_send_again_count_for_the_bound_of_the_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, {**EVENTS, "ottla.events.buffer.max": "5"}) as broker:
        await flushed(broker)
        replicas, publisher = broker.broker.replicas, broker.broker.events

        def refuse(topic: str, index: int, records: memoryview, done: Any) -> None:
            broker.broker.runtime.soon(lambda: done(None, NotLeaderOrFollower("another broker leads")))

        monkeypatch.setattr(replicas, "append_records", refuse)
        for number in range(3):
            publisher.observe(left("g", number), 0)
        while not publisher._unsent:
            await a_moment(broker)
        for number in range(3, 9):
            publisher.observe(left("g", number), 0)
        monkeypatch.undo()
        events = await flushed(broker)

    assert [event["generation"] for event in events if event["type"] == "member_removed"] == [0, 1, 2, 3, 4]
    assert [event["count"] for event in events if event["type"] == "dropped"] == [4]
