"""A new cluster keeps its `min.insync.replicas`, as Kafka's with eligible leader replicas do (KIP-966)."""

from pathlib import Path

from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.asking import running
from tests.broker.requests import describe_configs
from tests.broker.wire import RecordingLog

BROKER = 4
OF_ALL_BROKERS = 3
SET, DELETE = 0, 1
WARNING = "min.insync.replicas of this start has no effect: the cluster's value holds, and can be altered"


async def test_new_cluster_stores_the_value_for_all_brokers(tmp_path: Path) -> None:
    async with running(tmp_path, {"min.insync.replicas": "2"}) as broker:
        (result,) = (await broker.ask(describe_configs(BROKER, "1"), 4)).results

    found = {config.name: (config.value, config.config_source) for config in result.configs}
    assert found["min.insync.replicas"] == ("2", OF_ALL_BROKERS)


async def test_later_start_with_another_value_warns_and_keeps_it(tmp_path: Path) -> None:
    async with running(tmp_path):
        pass
    log = RecordingLog()
    broker = Broker(ServerConfig({"min.insync.replicas": "2"}), data_dir=tmp_path, port=0, node_id=1, log=log)
    await broker.start()
    value = broker.runtime.config.min_insync_replicas
    await broker.stop()

    assert value == 1
    assert [fields for event, fields in log.events if event == WARNING] == [{"given": "2", "holds": "1"}]


async def test_start_with_the_same_value_warns_of_nothing(tmp_path: Path) -> None:
    log = RecordingLog()
    broker = Broker(ServerConfig({"min.insync.replicas": "2"}), data_dir=tmp_path, port=0, node_id=1, log=log)
    await broker.start()
    await broker.stop()

    assert WARNING not in [event for event, _ in log.events]


async def test_value_of_the_cluster_cannot_be_removed(tmp_path: Path) -> None:
    """As in Kafka 4.1; another one can be set."""
    async with running(tmp_path, {"min.insync.replicas": "2"}) as broker:
        answers = []
        for operation, value in ((DELETE, None), (SET, "3"), (DELETE, None)):
            config = AlterableConfig(name="min.insync.replicas", config_operation=operation, value=value)
            resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[config])
            answers += (await broker.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)).responses

        refused = ErrorCode.INVALID_CONFIG
        assert [answer.error_code for answer in answers] == [refused, ErrorCode.NONE, refused]
        assert answers[0].error_message == "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
        assert broker.broker.runtime.config.min_insync_replicas == 3
