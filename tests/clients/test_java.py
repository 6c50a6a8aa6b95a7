"""Apache Kafka's own Java tools: as clients of our broker, and as readers of our data directory."""

import re
from pathlib import Path

import pytest

from tests.clients.test_confluent_kafka import consumed, consumer, create_topic, produced
from tests.java_tools import run_tool
from tests.served import ServedBroker

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

DUMP_LOG = "kafka.tools.DumpLogSegments"
TOPICS = "org.apache.kafka.tools.TopicCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONFIGS = "kafka.admin.ConfigCommand"


def segments(partition_directory: Path, ending: str) -> str:
    files = sorted(partition_directory.glob(f"*{ending}"))
    assert files, f"no {ending} file in {partition_directory}"
    return ",".join(map(str, files))


def test_console_producer_and_group_of_console_consumers(broker: ServedBroker) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    run_tool(TOPICS, *server, "--create", "--topic", "words", "--partitions", "2")
    run_tool(CONSOLE_PRODUCER, *server, "--topic", "words", stdin="".join(f"word {i}\n" for i in range(20)))

    options = ("--topic", "words", "--group", "java", "--from-beginning", "--max-messages", "20")
    words = run_tool(CONSOLE_CONSUMER, *server, *options)
    described = run_tool(GROUPS, *server, "--describe", "--group", "java")

    assert sorted(words.split("\n")[:20]) == sorted(f"word {i}" for i in range(20))
    rows = [line.split() for line in described.splitlines() if line.startswith("java ")]
    assert sum(int(row[3]) for row in rows) == 20, described
    assert all(row[5] == "0" for row in rows), f"no lag is left: {described}"


def test_topics_and_configs_are_described_as_by_kafka(broker: ServedBroker) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    create_topic(broker, "t", 3, retention_ms="60000")
    run_tool(CONFIGS, *server, "--alter", "--topic", "t", "--add-config", "cleanup.policy=compact")

    topic = run_tool(TOPICS, *server, "--describe", "--topic", "t")
    config = run_tool(CONFIGS, *server, "--describe", "--topic", "t")

    assert "PartitionCount: 3" in topic
    assert "retention.ms=60000" in config
    assert "cleanup.policy=compact" in config


def test_dump_log_reads_segments_indexes_and_snapshots(broker: ServedBroker) -> None:
    """§16.1, §16.2: what Kafka's own reader says of our files."""
    create_topic(broker, "t", 1, segment_bytes="100000", index_interval_bytes="512")
    values = [f"value {i} " + "x" * 200 for i in range(2000)]
    produced(broker, "t", values, enable_idempotence=True, linger_ms=1, batch_num_messages=10)
    assert broker.stop() == 0
    directory = broker.data_dir / "t-0"

    log = run_tool(DUMP_LOG, "--files", segments(directory, ".log"), "--print-data-log", "--deep-iteration")
    indexes = run_tool(DUMP_LOG, "--files", segments(directory, ".index"), "--index-sanity-check")
    verified = run_tool(DUMP_LOG, "--files", segments(directory, ".index") + "," + segments(directory, ".timeindex"))
    snapshot = run_tool(DUMP_LOG, "--files", segments(directory, ".snapshot"))

    assert re.findall(r"payload: (value \d+ )", log) == [f"value {i} " for i in range(2000)]
    assert "isvalid: false" not in log
    assert len(list(directory.glob("*.log"))) > 3
    assert indexes.count("passed sanity check") == len(list(directory.glob("*.index")))
    for complaint in (
        "Mismatches in",
        "out of order",
        "Found timestamp mismatch",
        "Found out of order",
        "Index timestamp",
    ):
        assert complaint not in verified
    assert re.search(r"producerId: \d+ producerEpoch: 0 .* lastSequence: 1999", snapshot)


def test_dump_log_decodes_our_offsets_topic(broker: ServedBroker) -> None:
    """§11: the records of `__consumer_offsets`, decoded by Kafka."""
    create_topic(broker, "t")
    produced(broker, "t", ["a", "b"])
    reader = consumer(broker, "readers", client_id="me", group_instance_id="static")
    reader.subscribe(["t"])
    consumed(reader, 2)
    reader.commit(asynchronous=False)
    reader.close()
    assert broker.stop() == 0
    files = [str(p) for p in broker.data_dir.glob("__consumer_offsets-*/*.log") if p.stat().st_size]

    dump = run_tool(DUMP_LOG, "--files", ",".join(files), "--offsets-decoder")

    assert '"group":"readers","topic":"t","partition":0' in dump
    assert '"groupInstanceId":"static","clientId":"me"' in dump
    assert '"assignedPartitions":[{"topic":"t","partitions":[0]}]' in dump
    assert '"offset":2' in dump
    assert "isvalid: false" not in dump
