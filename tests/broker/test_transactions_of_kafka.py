"""A broker goes on with logs of Apache Kafka 4.1 in which transactions are open, against what Kafka said of them.

Kafka's metadata cannot be taken over: the topics are made here, and have Kafka's logs from the second start on.
"""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.broker.handlers.find_coordinator import GROUP, TRANSACTION
from ottla.cluster.topic_changes import new_terms
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from ottla.protocol.messages.produce import ProduceResponse
from ottla.protocol.records.batch import iterate_batches
from ottla.storage.checkpoints import PARTITION_METADATA
from tests.broker.clusters import LOOK_EVERY_S, ask, state_of, until
from tests.broker.transaction_requests import TransactionalProducer
from tests.broker.wire import Client, batch, client_of, create_topic, fetch, produce_request, running_broker
from tests.differential.transactional_answers import answers_about
from tests.storage.transactional import visible

GOLDEN = Path(__file__).parents[1] / "golden" / "kafka_4_1_transactions"
SAID: dict[str, Any] = json.loads((GOLDEN / "answers.json").read_text())
SETTINGS = {
    "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 1,
    "log_retention_ms": -1,
    # Kafka's transactions have begun long ago.
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 86_400_000,
}

LOGS = [path for path in GOLDEN.iterdir() if path.is_dir()]
TERMS = 3
"""Leaders and coordinators of Kafka have had epochs up to 2."""
OPEN = [("tx-open-older", (1003, 0), 4), ("tx-open-newer", (1004, 0), 5)]
"""Transactional id, its producer, and the version of EndTxn by which that ends its transactions."""
WITHOUT_OPEN = {
    "tx-t-0": [
        b"gone",
        b"older True",
        b"and more",
        b"newer True",
        b"newer, inside the other's",
        b"newer True, behind open ones",
        b"older True, behind open ones",
    ],
    "tx-t-1": [b"older True"],
    "tx-cut-0": [b"committed"],
    "tx-cut-1": [],
}
WITH_OPEN = {
    "tx-t-0": [
        *WITHOUT_OPEN["tx-t-0"][:5],
        *[b"open", b"and more"] * 2,
        *WITHOUT_OPEN["tx-t-0"][5:],
        b"open, in the next segment",
    ],
    "tx-t-1": [b"older True", b"open"],
    "tx-cut-0": [b"committed"],
    "tx-cut-1": [b"and half deleted"],
}


async def with_kafkas_logs(path: Path) -> None:
    """A data directory with Ottla's metadata and Kafka's logs."""
    async with running_broker(path, **SETTINGS) as broker:
        async with client_of(broker) as client:
            for topic in ("tx-t", "tx-cut"):
                await create_topic(client, topic, 2)
        for key_type in (GROUP, TRANSACTION):
            await ask(broker, FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"]), 4)
        await until(lambda: len(broker.image.topics) == 4)
        while (term := state_of(broker, "tx-t").leader_epoch) < TERMS:
            for transaction in new_terms(broker.image.topics.values(), leader=broker.node_id):
                await broker.metadata.commit(transaction)
            await until(lambda term=term: state_of(broker, "tx-t").leader_epoch > term)  # type: ignore[misc]
    for log in LOGS:
        for file in (path / log.name).iterdir():
            if file.name != PARTITION_METADATA:
                file.unlink()
        shutil.copytree(log, path / log.name, ignore=shutil.ignore_patterns(PARTITION_METADATA), dirs_exist_ok=True)
    for checkpoint in GOLDEN.glob("*checkpoint"):
        shutil.copy(checkpoint, path)


@asynccontextmanager
async def taken_on(path: Path) -> AsyncIterator[tuple[Broker, Client]]:
    """A broker whose coordinators have loaded what Kafka's have stored."""
    await with_kafkas_logs(path)
    async with running_broker(path, **SETTINGS) as broker, client_of(broker) as client:
        await producer_of(broker, *OPEN[0][:2]).described()
        await offsets(client, stable=False)
        yield broker, client


def producer_of(broker: Broker, transactional_id: str, pair: tuple[int, int]) -> TransactionalProducer:
    producer = TransactionalProducer({broker.node_id: broker}, transactional_id)
    producer.producer_id, producer.producer_epoch = pair
    return producer


async def offsets(client: Client, *, stable: bool = True) -> list[tuple[int, ErrorCode]]:
    """Of both partitions, when the coordinator has loaded the group."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="tx-g", topics=None)], require_stable=stable)
    while True:
        (group,) = (await client.call(request, OffsetFetchResponse, 8)).groups
        if group.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            (topic,) = group.topics
            found = sorted(topic.partitions, key=lambda each: each.partition_index)
            return [(each.committed_offset, ErrorCode(each.error_code)) for each in found]
        await asyncio.sleep(LOOK_EVERY_S)


async def until_over(producer: TransactionalProducer) -> None:
    """Until its markers are written everywhere."""
    while (await producer.described()).transaction_state.startswith("Prepare"):  # noqa: ASYNC110 - none notifies it.
        await asyncio.sleep(LOOK_EVERY_S)


async def committed(broker: Broker, client: Client) -> dict[str, list[bytes | None]]:
    """What readers of committed records see of each partition when no transaction is open."""
    found = {}
    for topic, index in (("tx-t", 0), ("tx-t", 1), ("tx-cut", 0), ("tx-cut", 1)):
        log = broker.replicas.partition(topic, index).log
        found[f"{topic}-{index}"] = await values(client, topic, index, log.log_start_offset)
    return found


async def values(client: Client, topic: str, index: int, offset: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while True:
        answer = await fetch(client, topic, offset, index=index, isolation_level=1)
        records = memoryview(bytes(answer.records))
        aborted = {(each.producer_id, each.first_offset) for each in answer.aborted_transactions}
        found += [value for at, value in visible(records, aborted) if at >= offset]
        offset = end_of(records, offset)
        if offset == answer.high_watermark:
            return found


def end_of(records: memoryview, offset: int) -> int:
    return max((header.last_offset + 1 for _, header in iterate_batches(records)), default=offset)


async def test_broker_answers_about_them_as_kafka_did(tmp_path: Path) -> None:
    async with taken_on(tmp_path) as (broker, _):
        host, _, port = broker.bootstrap.rpartition(":")
        found = await asyncio.to_thread(answers_about, (host, int(port)), "tx")

    said = {name: part for name, part in SAID.items() if name != "asked"}
    for log in (*said["logs"].values(), *found["logs"].values()):
        # A read may go on in the next segment here. Kafka's stable offset is the beginning of a batch that was cut.
        log.pop("reads_of_a_segment", None)
        log["last_stable_offset"] = max(log["last_stable_offset"], log["log_start_offset"])
    assert found == said


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
async def test_producers_of_kafka_end_their_open_transactions(tmp_path: Path, commit: bool) -> None:
    async with taken_on(tmp_path) as (broker, client):
        for transactional_id, pair, version in OPEN:
            producer = producer_of(broker, transactional_id, pair)
            assert await producer.end(commit=commit, version=version) is ErrorCode.NONE

            await until_over(producer)

        assert await committed(broker, client) == (WITH_OPEN if commit else WITHOUT_OPEN)
        assert await offsets(client) == [(each, ErrorCode.NONE) for each in ((32, 33) if commit else (11, 21))]


@pytest.mark.parametrize("version", [4, 5])
async def test_next_producers_of_the_ids_abort_what_was_open(tmp_path: Path, version: int) -> None:
    async with taken_on(tmp_path) as (broker, client):
        for transactional_id, pair, _ in OPEN:
            producer = producer_of(broker, transactional_id, pair)
            assert await producer.initialize(version=version) is ErrorCode.NONE
            assert producer.producer_epoch > 0

        assert await committed(broker, client) == WITHOUT_OPEN
        assert await offsets(client) == [(11, ErrorCode.NONE), (21, ErrorCode.NONE)]


async def test_producers_of_kafka_go_on_where_they_were(tmp_path: Path) -> None:
    """Their markers come from a coordinator of a later epoch than those that Kafka has written."""
    async with taken_on(tmp_path) as (broker, client):
        older, newer = producer_of(broker, "tx-older", (2, 3)), producer_of(broker, "tx-newer", (3, 8))
        assert await older.add("tx-t", [0]) == [ErrorCode.NONE]

        assert await sent(client, older, "following", sequence=2, version=11) == 35
        assert await sent(client, newer, "following", sequence=0, version=12) == 36
        for producer, version in ((older, 4), (newer, 5)):
            assert await producer.end(commit=True, version=version) is ErrorCode.NONE
            await until_over(producer)

        assert set(broker.replicas.partition("tx-t", 0).log.producers.open_transactions) == {1003, 1004}


async def test_batches_that_kafka_has_are_known_again(tmp_path: Path) -> None:
    """The last one is in Kafka's snapshot, the one before it in the log alone."""
    async with taken_on(tmp_path) as (broker, client):
        producer = producer_of(broker, *OPEN[1][:2])

        assert await sent(client, producer, "again", sequence=2, version=12) == 34
        assert await sent(client, producer, "again", "and again", sequence=0, version=12) == 24
        assert broker.replicas.partition("tx-t", 0).log.log_end_offset == 35


async def sent(client: Client, producer: TransactionalProducer, *values: str, sequence: int, version: int) -> int:
    """The offset that it has got."""
    records = batch(
        *(value.encode() for value in values),
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        transactional=True,
    )
    request = produce_request("tx-t", records)
    request.transactional_id = producer.transactional_id
    (answer,) = (await client.call(request, ProduceResponse, version)).responses[0].partition_responses
    assert answer.error_code == ErrorCode.NONE
    return int(answer.base_offset)
