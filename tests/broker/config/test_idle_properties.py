"""Kafka's sample configuration starts a broker, and a warning lists what has no effect."""

from pathlib import Path

from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from tests.broker.wire import RecordingLog

# config/server.properties of Apache Kafka 4.1.0 without its comments.
SAMPLE = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def test_kafkas_sample_server_properties_are_accepted() -> None:
    config = ServerConfig.parse(SAMPLE)

    assert [listener.name for listener in config.listeners] == ["PLAINTEXT"]
    assert [str(listener) for listener in config.advertised_listeners] == ["PLAINTEXT://localhost:9092"]
    assert config.log_retention_hours == 168
    assert set(config.without_effect) >= {
        "process.roles",
        "num.io.threads",
        "log.dirs",
        "share.coordinator.state.topic.min.isr",
    }
    assert "num.partitions" not in config.without_effect


async def test_start_lists_properties_without_effect_once(tmp_path: Path) -> None:
    log = RecordingLog()
    config = ServerConfig({"num.io.threads": "8", "background.threads": "2"})
    broker = Broker(config, data_dir=tmp_path, port=0, log=log)
    await broker.start()
    await broker.stop()

    warnings = [fields for event, fields in log.events if event == "properties without effect"]
    assert warnings == [{"names": ["num.io.threads", "background.threads"]}]


async def test_options_in_place_of_id_and_directory_are_named(tmp_path: Path) -> None:
    log = RecordingLog()
    broker = Broker(ServerConfig({"node.id": "7", "log.dirs": "/logs"}), data_dir=tmp_path, port=0, log=log)
    await broker.start()
    await broker.stop()

    warnings = [fields for event, fields in log.events if event == "properties without effect"]
    assert warnings == [
        {"names": ["node.id", "log.dirs"], "instead": ["--node-id for node.id", "--data-dir for log.dirs"]}
    ]


async def test_start_without_idle_properties_warns_of_nothing(tmp_path: Path) -> None:
    log = RecordingLog()
    broker = Broker(ServerConfig(), data_dir=tmp_path, port=0, log=log)
    await broker.start()
    await broker.stop()

    assert "properties without effect" not in [event for event, _ in log.events]


def test_two_phase_commit_may_be_switched_off() -> None:
    """It is not supported, and files that spell defaults out ask for none."""
    config = ServerConfig({"transaction.two.phase.commit.enable": "false", "request.timeout.ms": "5000"})

    assert config.without_effect == ("transaction.two.phase.commit.enable",)
    assert config.request_timeout_ms == 5000
