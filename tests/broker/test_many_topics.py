"""Requests of hundreds of topics: several transactions, one answer, and each topic for itself."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from ottla.broker.metadata.topic_plans import MorePartitions, NewTopic, Outcome
from ottla.cluster.embedded import EmbeddedSession, EmbeddedStore
from ottla.cluster.etcd import EtcdStore
from ottla.cluster.image import TopicInfo
from ottla.cluster.store import Change, CommitResult, Expect, MetadataStore, Put, TooLarge, Unavailable
from ottla.cluster.topic_changes import TOPICS_PER_TRANSACTION
from ottla.cluster.topics import TopicSpec
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.broker.wire import RecordingLog, running_broker
from tests.cluster.etcd_server import EtcdServer

MANY = 5 * TOPICS_PER_TRANSACTION


async def create(broker: Broker, *topics: tuple[str, int], validate_only: bool = False) -> list[Outcome]:
    wanted = [NewTopic(TopicSpec(name, partitions), {}) for name, partitions in topics]
    return await broker.runtime.spawn(broker.topics.create(wanted, validate_only=validate_only), "test")


async def grow(broker: Broker, *topics: tuple[str, int]) -> list[Outcome]:
    wanted = [MorePartitions(name, count, None) for name, count in topics]
    return await broker.runtime.spawn(broker.topics.create_partitions(wanted), "test")


async def delete(broker: Broker, *names: str) -> list[Outcome]:
    topics = [broker.image.topic(name) for name in names]
    return await broker.runtime.spawn(broker.topics.delete(topics), "test")


def errors(outcomes: Sequence[Outcome]) -> list[ErrorCode]:
    return [outcome.code for outcome in outcomes if isinstance(outcome, KafkaError)]


@asynccontextmanager
async def broker_with(store: MetadataStore, data_dir: Path) -> AsyncIterator[Broker]:
    broker = Broker(ServerConfig(), data_dir=data_dir, port=0, store=store, log=RecordingLog())
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


class SmallStore(EmbeddedSession):
    """Refuses transactions that write the keys it is to refuse."""

    def __init__(self) -> None:
        super().__init__(EmbeddedStore())
        self.refused = ""
        self.refusal = Unavailable("the store is away")

    def commit(
        self, expected: Sequence[Expect], changes: Sequence[Change], done: Callable[[CommitResult], None]
    ) -> None:
        if self.refused and any(isinstance(change, Put) and change.key == self.refused for change in changes):
            done(self.refusal)
        else:
            super().commit(expected, changes, done)


@pytest.fixture
def etcd(tmp_path: Path) -> Any:
    server = EtcdServer(tmp_path)
    server.start()
    yield server
    server.kill()


async def test_hundreds_of_topics_are_created_and_deleted_on_etcd(etcd: EtcdServer, tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(MANY)]
    async with broker_with(EtcdStore([("127.0.0.1", etcd.port)], timeout_ms=30_000), tmp_path / "broker") as broker:
        created = await create(broker, *((name, 1) for name in names))
        assert created == [broker.image.topic(name) for name in names]
        assert all(broker.replicas.partition(name, 0).is_leader for name in names)

        assert errors(await grow(broker, *((name, 2) for name in names))) == []
        assert all(broker.replicas.partition(name, 1).is_leader for name in names)

        assert errors(await delete(broker, *names)) == []
        assert not broker.image.topics


async def test_topic_of_1000_partitions_is_created_on_etcd(etcd: EtcdServer, tmp_path: Path) -> None:
    async with broker_with(EtcdStore([("127.0.0.1", etcd.port)], timeout_ms=30_000), tmp_path / "broker") as broker:
        assert errors(await create(broker, ("t", 1000))) == []
        assert len(broker.image.topics["t"].partitions) == 1000

        assert errors(await delete(broker, "t")) == []
        assert not broker.image.topics


async def test_a_topic_that_cannot_be_created_keeps_no_other_from_it(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        wanted = [(f"t{number}", 1) for number in range(MANY)]
        wanted[MANY // 2] = ("not a name", 1)
        outcomes = await create(broker, *wanted)

        assert errors(outcomes) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert isinstance(outcomes[MANY // 2], KafkaError)
        assert [each.name for each in outcomes if isinstance(each, TopicInfo)] == list(broker.image.topics)
        assert len(broker.image.topics) == MANY - 1


async def test_names_that_collide_across_transactions_are_found(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        others = [(f"t{number}", 1) for number in range(TOPICS_PER_TRANSACTION)]
        outcomes = await create(broker, ("a.b", 1), *others, ("a_b", 1))

        assert errors(outcomes) == errors(outcomes[-1:]) == [ErrorCode.INVALID_TOPIC_EXCEPTION]


async def test_a_request_of_too_many_partitions_creates_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        assert set(errors(await create(broker, ("a", 5000), ("b", 5001)))) == {ErrorCode.POLICY_VIOLATION}
        assert not broker.image.topics


async def test_what_was_created_before_the_store_went_away_stays(tmp_path: Path) -> None:
    store = SmallStore()
    async with broker_with(store, tmp_path) as broker:
        store.refused = f"topics/t{TOPICS_PER_TRANSACTION}"
        outcomes = await create(broker, *((f"t{number}", 1) for number in range(MANY)))

        first = outcomes[:TOPICS_PER_TRANSACTION]
        assert first == list(broker.image.topics.values())
        refused = MANY - TOPICS_PER_TRANSACTION
        assert (
            errors(outcomes) == errors(outcomes[TOPICS_PER_TRANSACTION:]) == [ErrorCode.KAFKA_STORAGE_ERROR] * refused
        )


async def test_a_topic_too_large_for_the_store_is_not_asked_for_again(tmp_path: Path) -> None:
    store = SmallStore()
    async with broker_with(store, tmp_path) as broker:
        store.refused, store.refusal = "topics/t", TooLarge("etcd does not take 9 changes of 9 bytes")
        (outcome,) = await create(broker, ("t", 3))

        assert errors([outcome]) == [ErrorCode.POLICY_VIOLATION]
        assert str(outcome).endswith("create it with fewer partitions, and add the others later")
