"""The longest step of a broker's event loop about very many transactions, or a wide one: `python -m benchmarks
transaction_steps`.

The records of the coordinator are put into its log, and then loaded.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure
from benchmarks.raw_client import RawClient
from benchmarks.steps import QUIET, Steps, call, create_topics, figures_of, in_broker, until
from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from ottla.broker.coordinators.hosted_partition import HostedPartition
from ottla.broker.local_cluster import LocalCluster
from ottla.cluster.image import TRANSACTION_STATE
from ottla.coordinator.transactions.entry import TransactionMetadata, TransactionState
from ottla.coordinator.transactions.events import AbortTimedOutTransactions
from ottla.coordinator.transactions.participants import Participants
from ottla.coordinator.transactions.records import build_transaction_key, build_transaction_value
from ottla.coordinator.transactions.shard import TransactionShard
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.records.record import Record, build_batch

DECIDED = 10_000
OVERDUE = RETRIED = 1_000
PARTICIPANTS = 10_000
RECORDS_PER_BATCH = 100
TOPIC = "t"
WIDE = "wide"
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
}
PREPARE_COMMIT, ONGOING = TransactionState.PREPARE_COMMIT, TransactionState.ONGOING
Story = Callable[[Broker, Steps], Awaitable[None]]


def figures() -> list[Figure]:
    return [figure for name, measure in STORIES.items() for figure in figures_of(name, measure)]


def _loading() -> Steps:
    async def story(broker: Broker, steps: Steps) -> None:
        await create_topics(broker, [TOPIC], {})
        await _write(broker, _ids(DECIDED, PREPARE_COMMIT, (TOPIC, 0)))
        with steps.of_loop():
            await _load(broker)
            await _until_all(broker, TransactionState.COMPLETE_COMMIT)

    return in_broker(story, SETTINGS)


def _timeouts() -> Steps:
    async def story(broker: Broker, steps: Steps) -> None:
        await create_topics(broker, [TOPIC], {})
        await _write(broker, _ids(OVERDUE, ONGOING, (TOPIC, 0)))
        await _load(broker)
        with steps.of_loop():
            broker.runtime.soon(lambda: _hosted(broker).handle(AbortTimedOutTransactions()))
            await _until_all(broker, TransactionState.COMPLETE_ABORT)

    return in_broker(story, SETTINGS)


def _retries() -> Steps:
    """The broker that leads the partition has gone."""
    steps = Steps()

    async def story(data_dir: Path) -> None:
        cluster = LocalCluster(ServerConfig(SETTINGS), data_dir=data_dir, brokers=2, port=0, log=QUIET)
        await cluster.start()
        await until(lambda: len(cluster.brokers[0].image.brokers) == len(cluster.brokers))
        await _make_wide(cluster.brokers[0], 2)
        coordinator = await _coordinator(list(cluster.brokers.values()))
        (gone,) = (node_id for node_id in cluster.brokers if node_id != coordinator.node_id)
        await until(lambda: gone in _leaders(coordinator))
        index = _leaders(coordinator).index(gone)
        await _write(coordinator, _ids(RETRIED, PREPARE_COMMIT, (WIDE, index)))
        await cluster.stop_broker(gone)
        markers = coordinator.parts.transactions.markers
        with steps.of_loop():
            await _load(coordinator)
            await until(lambda: markers.waiting_again == RETRIED)
            await asyncio.sleep(3)
        await cluster.stop()

    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name:
        asyncio.run(story(Path(name)))
    return steps


def _wide_end() -> Steps:
    """And what comes before it: one more partition."""

    def ask(client: RawClient, count: int) -> None:
        topic = AddPartitionsToTxnTopic(name=WIDE, partitions=list(range(count)))
        pair: dict[str, Any] = {"producer_id": 0, "producer_epoch": 1}
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="id-0",
            v3_and_below_topics=[topic],
            **{f"v3_and_below_{name}": value for name, value in pair.items()},
        )
        added: Any = client.call(request, AddPartitionsToTxnResponse, 3)
        results = added.results_by_topic_v3_and_below[0].results_by_partition
        assert not any(each.partition_error_code for each in results)

    def end(client: RawClient) -> None:
        request = EndTxnRequest(transactional_id="id-0", producer_id=0, producer_epoch=1, committed=True)
        ended: Any = client.call(request, EndTxnResponse, 4)
        assert not ended.error_code

    async def story(broker: Broker, steps: Steps) -> None:
        await _make_wide(broker, PARTICIPANTS)
        await _write(broker, _ids(1, ONGOING, (WIDE, 0)))
        await _load(broker)
        # The first request compiles the codecs.
        await call(broker, lambda client: ask(client, 1))
        with steps.of_loop():
            await call(broker, lambda client: ask(client, PARTICIPANTS))
            await call(broker, end)
            await _until_all(broker, TransactionState.COMPLETE_COMMIT)

    return in_broker(story, SETTINGS)


STORIES: dict[str, Callable[[], Steps]] = {
    f"{DECIDED:,} decided transactions are loaded and completed": _loading,
    f"{OVERDUE:,} transactions are aborted after their timeouts": _timeouts,
    f"the markers of {RETRIED:,} transactions are sent again": _retries,
    f"{PARTICIPANTS:,} partitions are added to a transaction, which is committed": _wide_end,
}


def _leaders(broker: Broker) -> list[int]:
    """Of the wide topic's partitions."""
    return [state.leader for topic, _, state in broker.image.partitions() if topic.name == WIDE]


# The coordinator.


async def _coordinator(brokers: Sequence[Broker]) -> Broker:
    """The one that leads the partition of `__transaction_state`, which is made now."""
    brokers[0].parts.transactions.coordinator_of("id-0")

    def found() -> list[Broker]:
        return [each for each in brokers if each.parts.transactions.topic.partition_at(0) is not None]

    await until(lambda: bool(found()))
    return found()[0]


def _hosted(broker: Broker) -> HostedPartition[TransactionShard]:
    hosted = broker.parts.transactions.topic.partition_at(0)
    assert hosted is not None
    return hosted


def _ids(count: int, state: TransactionState, participant: tuple[str, int]) -> list[Record]:
    """Of transactions that began in 1970."""
    metadata = TransactionMetadata(
        producer_id=0,
        producer_epoch=1,
        timeout_ms=60_000,
        state=state,
        partitions=Participants.of([participant]),
        last_update_ms=1,
        start_ms=1,
        client_version=0,
    )
    return [
        Record(
            timestamp=0,
            key=build_transaction_key(f"id-{number}"),
            value=build_transaction_value(metadata._replace(producer_id=number), 1),
        )
        for number in range(count)
    ]


async def _write(broker: Broker, records: list[Record]) -> None:
    """Committed records of an earlier coordinator."""
    await _coordinator([broker])
    partition = broker.replicas.partition(TRANSACTION_STATE, 0)
    for first in range(0, len(records), RECORDS_PER_BATCH):
        batch = build_batch(records[first : first + RECORDS_PER_BATCH])
        partition.log.append_as_leader(memoryview(batch), partition.leader_epoch, broker.runtime.clock.wall_ms())
        partition.log.write_pending(0)
    partition.high_watermark = partition.log.log_end_offset


async def _load(broker: Broker) -> None:
    broker.runtime.soon(lambda: broker.parts.transactions.topic.load_again(0))
    await until(lambda: bool(_hosted(broker).coordinator.shard.entries) and not _hosted(broker).is_loading)


async def _until_all(broker: Broker, state: TransactionState) -> None:
    entries = _hosted(broker).coordinator.shard.entries
    # To look at all of them takes long as well.
    last = entries[f"id-{len(entries) - 1}"]
    await until(lambda: last.metadata.state is state)
    await until(lambda: all(entry.metadata.state is state for entry in entries.values()))


async def _make_wide(broker: Broker, partitions: int) -> None:
    def ask(client: RawClient) -> None:
        topic = CreatableTopic(name=WIDE, num_partitions=partitions, replication_factor=1)
        response: Any = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=120_000), CreateTopicsResponse, 5)
        assert not response.topics[0].error_code, response.topics[0].error_message

    await call(broker, ask)
