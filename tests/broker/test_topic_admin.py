"""Topics over the wire: created, grown, deleted, described, and what a restart or a crash makes of them."""

from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from ottla.cluster.embedded import EmbeddedStore
from ottla.cluster.image import TopicInfo
from ottla.cluster.store import Unavailable
from ottla.protocol.errors import ErrorCode, KafkaStorageError
from tests.broker.asking import Asking, messages, running
from tests.broker.wire import auto_created, until

create = messages("create_topics")
delete = messages("delete_topics")
grow = messages("create_partitions")
describe = messages("describe_topic_partitions")


def creatable(name: str, partitions: int = -1, factor: int = -1, **configs: str | None) -> Any:
    pairs = [create.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return create.CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, configs=pairs)


async def created(broker: Asking, *topics: Any, version: int = 7, validate_only: bool = False) -> list[Any]:
    request = create.CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return (await broker.ask(request, version)).topics


async def deleted(broker: Asking, *names: str, version: int = 5) -> list[Any]:
    return (await broker.ask(delete.DeleteTopicsRequest(topic_names=list(names)), version)).responses


def log_directories(data_dir: Path) -> set[str]:
    return {path.name for path in data_dir.iterdir() if path.is_dir() and not path.name.endswith("-delete")}


@pytest.mark.parametrize("version", range(2, 8))
async def test_a_topic_is_created_in_every_version(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as broker:
        (result,) = await created(broker, creatable("a", 2, 1, retention_ms="5"), version=version)

        assert (result.name, result.error_code) == ("a", 0)
        topic = broker.broker.image.topic("a")
        assert topic is not None
        assert (len(topic.partitions), topic.configs) == (2, {"retention.ms": "5"})
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (2, 1)
            echoed = {config.name: (config.value, config.config_source) for config in result.configs}
            assert echoed["retention.ms"] == ("5", 1)
            assert echoed["segment.bytes"] == ("1073741824", 5)
        if version >= 7:
            assert result.topic_id == topic.topic_id
        assert log_directories(tmp_path) == {"a-0", "a-1"}
        assert broker.broker.replicas.partition("a", 1).log.config.retention_ms == 5


async def test_each_topic_of_a_request_has_an_outcome_of_its_own(tmp_path: Path) -> None:
    async with running(tmp_path, {"num.partitions": "3"}) as broker:
        results = await created(
            broker,
            creatable("good"),
            creatable("bad name"),
            creatable("twice"),
            creatable("twice"),
            creatable("factor", 1, 2),
            creatable("config", 1, 1, retention_m="1"),
            creatable("value", 1, 1, retention_ms="x"),
            creatable("null", 1, 1, retention_ms=None),
            creatable("__consumer_offsets"),
        )

        assert {result.name: ErrorCode(result.error_code) for result in results} == {
            "good": ErrorCode.NONE,
            "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "twice": ErrorCode.INVALID_REQUEST,
            "factor": ErrorCode.INVALID_REPLICATION_FACTOR,
            "config": ErrorCode.INVALID_CONFIG,
            "value": ErrorCode.INVALID_CONFIG,
            "null": ErrorCode.INVALID_CONFIG,
            "__consumer_offsets": ErrorCode.INVALID_REQUEST,
        }
        assert all(result.error_message for result in results if result.error_code)
        assert set(broker.broker.image.topics) == {"good"}
        assert len(broker.broker.image.topics["good"].partitions) == 3


async def test_validating_creates_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        (result,) = await created(broker, creatable("a", 2), validate_only=True)

        assert (result.error_code, result.num_partitions) == (0, 2)
        assert broker.broker.image.topics == {}
        assert log_directories(tmp_path) == set()


async def test_a_topic_that_exists_is_not_created_again(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await created(broker, creatable("a"))
        (result,) = await created(broker, creatable("a"))

        assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_topics_and_configs_survive_a_restart_and_a_crash(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await created(broker, creatable("a", 2, 1, retention_ms="5"))
        before = broker.broker.image.topics
    async with running(tmp_path, crash=True) as broker:
        assert broker.broker.image.topics == before
        assert broker.broker.replicas.partition("a", 1).log.config.retention_ms == 5
        await created(broker, creatable("b"))
    async with running(tmp_path) as broker:
        assert set(broker.broker.image.topics) == {"a", "b"}


async def test_logs_not_created_before_a_crash_are_created_at_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, crash=True) as broker:
        broker.broker.topic_logs._make = lambda missing: None
        monkeypatch.setattr(broker.broker.topics, "_logs_made", AsyncMock())
        await created(broker, creatable("a", 2))
        assert log_directories(tmp_path) == set()
    async with running(tmp_path) as broker:
        assert log_directories(tmp_path) == {"a-0", "a-1"}
        assert broker.broker.replicas.partition("a", 1).is_leader


async def test_logs_not_deleted_before_a_crash_are_deleted_at_start(tmp_path: Path) -> None:
    async with running(tmp_path, crash=True) as broker:
        await created(broker, creatable("a"), creatable("b"))
        broker.broker.topic_logs._forget = lambda topic: None
        await deleted(broker, "a")
        assert log_directories(tmp_path) == {"a-0", "b-0"}
    async with running(tmp_path) as broker:
        assert log_directories(tmp_path) == {"b-0"}
        (result,) = await created(broker, creatable("a"))
        assert result.error_code == 0


async def test_logs_of_unknown_topics_are_left_alone(tmp_path: Path) -> None:
    """A user who lost the metadata file wants to keep the records."""
    async with running(tmp_path) as broker:
        await created(broker, creatable("a"))
    (tmp_path / "ottla-metadata.sqlite").unlink()
    async with running(tmp_path) as broker:
        assert broker.broker.image.topics == {}
        assert log_directories(tmp_path) == {"a-0"}
        (result,) = await created(broker, creatable("a"))
        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.broker.image.topics == {}
        assert log_directories(tmp_path) == {"a-0"}


async def test_topic_is_created_though_its_log_cannot_be_made(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        replicas = broker.broker.replicas
        host = replicas.apply_partition_state

        def full(topic: TopicInfo, index: int) -> None:
            if topic.name == "a" and index == 1:
                raise KafkaStorageError("no space is left on the device")
            host(topic, index)

        replicas.apply_partition_state = full
        results = await created(broker, creatable("a", 2), creatable("b"))

        assert [result.error_code for result in results] == [0, 0]
        assert set(broker.broker.image.topics) == {"a", "b"}
        assert log_directories(tmp_path) == {"a-0", "b-0"}
        with pytest.raises(KafkaStorageError, match="no space is left"):
            broker.broker.replicas.partition("a", 1)


async def test_a_store_that_cannot_write_leaves_everything_as_it_was(tmp_path: Path) -> None:
    class Broken(EmbeddedStore):
        broken = False

        def commit(self, expected: Any, changes: Any, done: Any) -> None:
            if self.broken:
                done(Unavailable("the disk is full"))
            else:
                super().commit(expected, changes, done)

    store = Broken()
    async with running(tmp_path, store=store) as broker:
        await created(broker, creatable("a"))
        store.broken = True
        (creation,) = await created(broker, creatable("b"))
        (deletion,) = await deleted(broker, "a")
        (growth,) = await grown(broker, "a", 2)

        codes = {creation.error_code, deletion.error_code, growth.error_code}
        assert codes == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert set(broker.broker.image.topics) == {"a"}
        assert log_directories(tmp_path) == {"a-0"}


async def grown(broker: Asking, name: str, count: int, version: int = 3, **fields: Any) -> list[Any]:
    topic = grow.CreatePartitionsTopic(name=name, count=count, assignments=None)
    return (await broker.ask(grow.CreatePartitionsRequest(topics=[topic], **fields), version)).results


@pytest.mark.parametrize("version", range(4))
async def test_a_topic_grows(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as broker:
        await created(broker, creatable("a"))
        (validated,) = await grown(broker, "a", 3, version, validate_only=True)
        assert (validated.error_code, len(broker.broker.image.topics["a"].partitions)) == (0, 1)

        (result,) = await grown(broker, "a", 3, version)
        (again,) = await grown(broker, "a", 3, version)
        (unknown,) = await grown(broker, "b", 3, version)

        assert result.error_code == 0
        assert again.error_code == ErrorCode.INVALID_PARTITIONS
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert log_directories(tmp_path) == {"a-0", "a-1", "a-2"}


@pytest.mark.parametrize(("timeout_ms", "code"), [(-1, ErrorCode.REQUEST_TIMED_OUT), (0, ErrorCode.NONE)])
async def test_partitions_for_which_there_is_no_time(tmp_path: Path, timeout_ms: int, code: ErrorCode) -> None:
    async with running(tmp_path) as broker:
        await created(broker, creatable("a"))
        (result,) = await grown(broker, "a", 2, timeout_ms=timeout_ms)

        assert result.error_code == code
        assert len(broker.broker.image.topics["a"].partitions) == (2 if code is ErrorCode.NONE else 1)


@pytest.mark.parametrize("version", range(1, 6))
async def test_topics_are_deleted_by_name(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as broker:
        await created(broker, creatable("a"), creatable("b"))
        results = await deleted(broker, "a", "c", version=version)

        assert [(result.name, result.error_code) for result in results] == [("a", 0), ("c", 3)]
        assert set(broker.broker.image.topics) == {"b"}
        assert log_directories(tmp_path) == {"b-0"}
        assert broker.broker.replicas.find("a", 0) is None


async def test_topics_are_deleted_by_id(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        (topic, _) = await created(broker, creatable("a"), creatable("b"))
        states = [
            delete.DeleteTopicState(name=None, topic_id=topic.topic_id),
            delete.DeleteTopicState(name=None, topic_id=b"x" * 16),
            delete.DeleteTopicState(name=None),
            delete.DeleteTopicState(name="b", topic_id=topic.topic_id),
        ]
        results = (await broker.ask(delete.DeleteTopicsRequest(topics=states), 6)).responses

        assert [(result.name, ErrorCode(result.error_code)) for result in results] == [
            ("a", ErrorCode.NONE),
            (None, ErrorCode.UNKNOWN_TOPIC_ID),
            (None, ErrorCode.INVALID_REQUEST),
            ("b", ErrorCode.INVALID_REQUEST),
        ]
        assert set(broker.broker.image.topics) == {"b"}


async def test_entry_with_name_and_id_asks_for_no_topic(tmp_path: Path) -> None:
    """Beside it, the topic that it names can be deleted by id, as in Kafka."""
    async with running(tmp_path) as broker:
        (topic,) = await created(broker, creatable("a"))
        states = [
            delete.DeleteTopicState(name="a", topic_id=b"x" * 16),
            delete.DeleteTopicState(name=None, topic_id=topic.topic_id),
            delete.DeleteTopicState(name=None),
        ]
        results = (await broker.ask(delete.DeleteTopicsRequest(topics=states), 6)).responses

        assert [(result.name, bytes(result.topic_id), result.error_code) for result in results] == [
            ("a", b"x" * 16, ErrorCode.INVALID_REQUEST),
            ("a", topic.topic_id, ErrorCode.NONE),
            (None, bytes(16), ErrorCode.INVALID_REQUEST),
        ]
        assert [result.error_message for result in results] == [
            "You may not specify both topic name and topic id.",
            None,
            "Neither topic name nor id were specified.",
        ]
        assert not broker.broker.image.topics


async def test_a_topic_named_twice_in_a_deletion_stays(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await created(broker, creatable("a"))
        results = await deleted(broker, "a", "a")

        assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 2
        assert set(broker.broker.image.topics) == {"a"}


@pytest.mark.parametrize(("version", "code"), [(2, 42), (3, 73), (5, 73)])
async def test_deletion_can_be_disabled(tmp_path: Path, version: int, code: int) -> None:
    async with running(tmp_path, {"delete.topic.enable": "false"}) as broker:
        await created(broker, creatable("a"))
        (result,) = await deleted(broker, "a", version=version)

        assert result.error_code == code
        assert set(broker.broker.image.topics) == {"a"}


async def test_a_topic_that_comes_again_is_another_topic(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        (first,) = await created(broker, creatable("a"))
        await deleted(broker, "a")
        (second,) = await created(broker, creatable("a"))

        assert second.error_code == 0
        assert first.topic_id != second.topic_id
    async with running(tmp_path) as broker:
        assert broker.broker.image.topics["a"].topic_id == second.topic_id
        assert broker.broker.replicas.partition("a", 0).is_leader


async def test_topics_come_by_themselves_as_the_configuration_says(tmp_path: Path) -> None:
    async with running(tmp_path, {"num.partitions": "2"}) as broker:
        topics = broker.broker.topics
        assert await auto_created(broker.broker, "a", "not good", "__transaction_state") == {
            "a": ErrorCode.NONE,
            "not good": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "__transaction_state": ErrorCode.LEADER_NOT_AVAILABLE,
        }
        assert len(topics.image.topics["a"].partitions) == 2
        assert await auto_created(broker.broker, "a") == {"a": ErrorCode.NONE}
        assert await auto_created(broker.broker, "__consumer_offsets") == {
            "__consumer_offsets": ErrorCode.LEADER_NOT_AVAILABLE
        }
        await until(broker.broker, lambda: "__consumer_offsets" in topics.image.topics)
        assert topics.image.topics["__consumer_offsets"].configs["cleanup.policy"] == "compact"


async def test_offsets_topic_waits_for_its_configured_replicas(tmp_path: Path) -> None:
    """§4.1.4: a group that came while the cluster was coming up would otherwise be on one broker for ever."""
    for factor in ("2", "1"):
        settings = {"offsets.topic.replication.factor": factor}
        async with running(tmp_path / factor, settings) as broker:
            codes = await auto_created(broker.broker, "__consumer_offsets")
            assert codes == {"__consumer_offsets": ErrorCode.LEADER_NOT_AVAILABLE}
            # Commits are made in order: by then the other one has been.
            await auto_created(broker.broker, "other")
            assert ("__consumer_offsets" in broker.broker.image.topics) is (factor == "1")


async def test_topics_do_not_come_by_themselves_when_that_is_off(tmp_path: Path) -> None:
    async with running(tmp_path, {"auto.create.topics.enable": "false"}) as broker:
        assert await auto_created(broker.broker, "a") == {"a": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert broker.broker.image.topics == {}


async def page(broker: Asking, *names: str, limit: int = 2000, cursor: Any = None) -> Any:
    topics = [describe.TopicRequest(name=name) for name in names]
    request = describe.DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)
    return await broker.ask(request, 0)


async def test_partitions_are_described_in_pages(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await created(broker, creatable("a", 2), creatable("b", 3))
        seen: list[tuple[str, int]] = []
        cursor = None
        pages = 0
        while pages == 0 or cursor is not None:
            response = await page(broker, limit=2, cursor=cursor)
            seen += [(topic.name, each.partition_index) for topic in response.topics for each in topic.partitions]
            cursor = response.next_cursor
            pages += 1

        assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2)]
        assert pages == 3


async def test_unknown_topics_are_described_as_such(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await created(broker, creatable("b"))
        response = await page(broker, "b", "a", "not good")

        assert [(topic.name, topic.error_code) for topic in response.topics] == [("a", 3), ("b", 0), ("not good", 17)]
        (partition,) = response.topics[1].partitions
        assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, [1], [1])
        assert response.next_cursor is None


async def test_the_brokers_own_limit_bounds_a_page(tmp_path: Path) -> None:
    async with running(tmp_path, {"max.request.partition.size.limit": "1"}) as broker:
        await created(broker, creatable("a", 2))
        response = await page(broker, "a")

        assert len(response.topics[0].partitions) == 1
        assert (response.next_cursor.topic_name, response.next_cursor.partition_index) == ("a", 1)
