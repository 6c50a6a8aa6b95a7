"""A new cluster keeps its `min.insync.replicas`, as Kafka's with eligible leader replicas do (KIP-966)."""

from pathlib import Path

from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from tests.broker.asking import running
from tests.broker.requests import describe_configs
from tests.broker.wire import RecordingLog

BROKER = 4
OF_ALL_BROKERS = 3
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
