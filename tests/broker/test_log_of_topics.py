"""Topics that come, grow and go, and configs that change, have a line each in the log of the broker that was asked."""

from pathlib import Path
from typing import Any

from ottla.broker.metadata.topic_plans import MorePartitions
from ottla.protocol.errors import KafkaError
from tests.broker.asking import Asking, running
from tests.broker.clusters import create_topic
from tests.broker.requests import metadata
from tests.broker.wire import RecordingLog

EVENTS = ("topic created", "partitions created", "topic deleted", "topic configs altered", "broker configs altered")


def lines(log: RecordingLog) -> list[tuple[str, dict[str, Any]]]:
    return [(event, fields) for event, fields in log.events if event in EVENTS]


async def altered(world: Asking, name: str, configs: dict[str, str], *, only: bool = False) -> None:
    await world.broker.parts.config_admin.alter_topic(name, lambda: configs, validate_only=only)


async def test_life_of_a_topic_is_in_the_log(tmp_path: Path) -> None:
    log = RecordingLog()
    async with running(tmp_path, log=log) as world:
        broker = world.broker
        await create_topic(broker, "t")
        image = broker.parts.metadata.image
        await broker.parts.topics.create_partitions([MorePartitions("t", 3, None)])
        await altered(world, "t", {"retention.ms": "5000", "cleanup.policy": "compact"})
        await altered(world, "t", {"retention.ms": "6000"})
        await broker.parts.topics.delete([image.topic("t")])

    size = {"topic": "t", "replication_factor": 1}
    assert lines(log) == [
        ("topic created", {**size, "partitions": 1}),
        ("partitions created", {**size, "partitions": 3}),
        ("topic configs altered", {"topic": "t", "set": {"cleanup.policy": "compact", "retention.ms": "5000"},
                                   "unset": None}),
        ("topic configs altered", {"topic": "t", "set": {"retention.ms": "6000"}, "unset": ["cleanup.policy"]}),
        ("topic deleted", {**size, "partitions": 3}),
    ]  # fmt: skip


async def test_topic_that_a_client_makes_by_asking_is_logged(tmp_path: Path) -> None:
    log = RecordingLog()
    async with running(tmp_path, {"num.partitions": "2"}, log=log) as world:
        await world.ask(metadata("made", create=True), 12)

    assert lines(log) == [("topic created", {"topic": "made", "partitions": 2, "replication_factor": 1})]


async def test_what_is_refused_or_only_validated_is_not_logged(tmp_path: Path) -> None:
    log = RecordingLog()
    async with running(tmp_path, log=log) as world:
        broker = world.broker
        await create_topic(broker, "t")
        log.events.clear()
        (outcome,) = await broker.parts.topics.create_partitions([MorePartitions("t", 1, None)])
        await broker.parts.topics.create_partitions([MorePartitions("t", 2, None)], validate_only=True)
        await altered(world, "t", {"retention.ms": "5000"}, only=True)
        await altered(world, "t", {})

    assert isinstance(outcome, KafkaError)
    assert lines(log) == []


async def test_altered_properties_of_brokers_are_logged(tmp_path: Path) -> None:
    log = RecordingLog()
    async with running(tmp_path, log=log) as world:
        alter = world.broker.parts.config_admin.alter_broker
        await alter(lambda: {"message.max.bytes": "1000"}, of_all_brokers=False)
        await alter(lambda: {"min.insync.replicas": "1", "log.retention.ms": "7"}, of_all_brokers=True)

    own, of_all = (fields for _, fields in lines(log))
    assert own == {"of": f"broker {world.broker.runtime.node_id}", "set": {"message.max.bytes": "1000"}, "unset": None}
    assert (of_all["of"], of_all["set"], of_all["unset"]) == ("all brokers", {"log.retention.ms": "7"}, None)
