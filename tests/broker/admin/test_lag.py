"""Lag over time: how old the oldest unread record is, what was deleted unread, and the verdict on a group."""

from pathlib import Path

import pytest

from ottla.broker.admin.metrics.lag_history import RING_ENTRIES, SAMPLES, CommitSample, EndRing, Verdict, judge
from ottla.broker.broker import Broker
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.produce import ProduceResponse
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.admin.test_metrics import committed, observed, scraped, value
from tests.broker.clusters import ask, create_topic, until
from tests.broker.test_transactional_produce import in_transaction
from tests.broker.transaction_requests import TransactionalProducer
from tests.broker.wire import client_of, produce


def samples(*lags: int, step: int = 10, commits: bool = True) -> list[CommitSample]:
    """One a second; each commits `step` records more."""
    return [
        CommitSample(second * 1000, 100 + second * step, lag, second * 1000 if commits else -5000)
        for second, lag in enumerate(lags)
    ]


GROWING = range(5, 5 + SAMPLES)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (samples(*GROWING), Verdict.SLOW),
        (samples(*GROWING, step=0), Verdict.STALLED),
        (samples(*GROWING, step=0, commits=False), Verdict.STOPPED),
        (samples(*GROWING, step=-10), Verdict.REWOUND),
        (samples(*reversed(GROWING)), Verdict.OK),
        (samples(*[5] * (SAMPLES - 1), 0), Verdict.OK),
        (samples(0), Verdict.OK),
        (samples(5), Verdict.UNKNOWN),
    ],
)
def test_verdict_is_by_what_commits_do(found: list[CommitSample], verdict: Verdict) -> None:
    assert judge(found, has_members=True) is verdict


def test_group_with_lag_and_without_members_is_said_to_be_so() -> None:
    assert judge(samples(*GROWING), has_members=False) is Verdict.NO_MEMBERS
    assert judge(samples(0), has_members=False) is Verdict.OK


def test_ring_knows_when_a_record_came_and_does_not_guess() -> None:
    ring = EndRing()
    for at_ms, end in ((0, 10), (1000, 10), (2000, 15), (3000, 20)):
        ring.add(at_ms, end)

    assert [ring.unread_since_ms(offset) for offset in (9, 10, 14, 15, 19, 20)] == [None, 2000, 2000, 3000, 3000, None]


def test_ring_is_bounded_and_forgets_another_log() -> None:
    ring = EndRing()
    for end in range(2 * RING_ENTRIES):
        ring.add(end, end)
    assert ring.unread_since_ms(RING_ENTRIES - 2) is None
    assert ring.unread_since_ms(RING_ENTRIES) == RING_ENTRIES + 1

    ring.add(500, 3)

    assert ring.unread_since_ms(3) is None


async def test_age_of_lag_is_read_from_the_log_at_first(tmp_path: Path) -> None:
    """The records are older than the first scrape: a thread looks for the time of the batch."""
    async with observed(tmp_path, ottla_events_sample_interval_ms=100) as broker:
        await create_topic(broker, "t", [0])
        async with client_of(broker) as client:
            await produce(client, "t", b"one", b"two")
        assert await committed(broker, "g", 1) == 0

        async def is_known() -> bool:
            return value(await scraped(broker.admin_url), "group_lag_seconds", group="g", topic="t") is not None

        while not await is_known():
            pass
        assert await committed(broker, "g", 2) == 0
        while value(await scraped(broker.admin_url), "group_lag_seconds", group="g", topic="t") != 0:
            pass
        found = await scraped(broker.admin_url)

    assert value(found, "group_verdict", group="g", verdict="ok") == 1
    assert value(found, "group_records_lost_total", group="g", topic="t") is None


async def test_records_deleted_before_they_were_committed_are_lost(tmp_path: Path) -> None:
    async with observed(tmp_path, ottla_events_sample_interval_ms=100) as broker:
        await create_topic(broker, "t", [0])
        async with client_of(broker) as client:
            await produce(client, "t", b"one", b"two", b"three", b"four")
        assert await committed(broker, "g", 1) == 0
        await scraped(broker.admin_url)
        rows = [DeleteRecordsPartition(partition_index=0, offset=3)]
        await ask(broker, DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=rows)], timeout_ms=5000))
        partition = broker.replicas.partition("t", 0)
        await until(lambda: partition.log.log_start_offset == 3)

        async def lost() -> float | None:
            return value(await scraped(broker.admin_url), "group_records_lost_total", group="g", topic="t")

        while await lost() is None:
            pass
        assert await lost() == 2


async def commit_in_transaction(broker: Broker, producer: TransactionalProducer, group: str, offset: int) -> None:
    """A transaction of nothing else, from its beginning to its end."""
    assert await producer.add_offsets(group) is ErrorCode.NONE
    rows = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=rows)],
    )
    assert (await ask(broker, request, 3)).topics[0].partitions[0].error_code == 0
    assert await producer.end(commit=True) is ErrorCode.NONE


async def test_lag_of_a_transactional_group_ends_before_open_ones(tmp_path: Path) -> None:
    """docs/operators.md §5.6"""
    async with observed(tmp_path, transaction_state_log_num_partitions=1) as broker:
        await create_topic(broker, "t", [0])
        processor, writer = (TransactionalProducer({0: broker}, name) for name in ("processor", "tx"))
        for producer in (processor, writer):
            assert await producer.initialize() is ErrorCode.NONE
        async with client_of(broker) as client:
            await produce(client, "t", b"one", b"two", b"three")
            assert await writer.add("t", [0]) == [ErrorCode.NONE]
            request = in_transaction(0, producer=writer.producer_id, epoch=writer.producer_epoch)
            await client.call(request, ProduceResponse, 12)
        assert await committed(broker, "plain", 1) == 0
        await commit_in_transaction(broker, processor, "processor", 3)

        async def lag(group: str) -> float | None:
            return value(await scraped(broker.admin_url), "group_lag_records", group=group, topic="t", partition=0)

        while await lag("processor") is None:
            pass
        assert (await lag("processor"), await lag("plain")) == (0, 3)
        assert value(await scraped(broker.admin_url), "group_verdict", group="processor", verdict="ok") == 1

        assert await writer.end(commit=True) is ErrorCode.NONE
        # The record and the marker.
        while await lag("processor") == 0:
            pass
        assert (await lag("processor"), await lag("plain")) == (2, 4)


async def test_samples_are_of_as_many_lags_as_have_series(tmp_path: Path) -> None:
    """Each takes three kilobytes, and as long as twenty requests: a cluster may have a hundred thousand."""
    async with observed(tmp_path, ottla_metrics_lag_max=2) as broker:
        await create_topic(broker, "t", [0])
        for number in range(5):
            assert await committed(broker, f"g{number}", 0) == 0
        found = await scraped(broker.admin_url)

    assert len([name for name, _ in found if name == "ottla_group_verdict"]) == 2
    assert len([name for name, _ in found if name == "ottla_group_lag_seconds"]) == 2
    assert value(found, "metrics_overflow", kind="lags") == 3
