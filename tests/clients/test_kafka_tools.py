"""Each of Kafka 4.1's `bin/kafka-*.sh` against this broker, by its main class, all in one virtual machine.

What is not served ends in Kafka's own sentence.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import java_tools
from tests.java_tools import Tools, tools
from tests.served import ServedBroker, served_broker

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

TOOLS = "org.apache.kafka.tools."
GROUPS = TOOLS + "consumer.group."
LOGS = "--describe --topic-list t"
FEATURES = TOOLS + "FeatureCommand"
LEVEL = "--feature transaction.version"


class Tool(NamedTuple):
    script: str
    main_class: str
    arguments: str
    """SERVER stands for the broker's address, FILES for a directory with the files of FILES."""
    says: str
    status: int | None = 0
    """None: which comes first, its error or its end, is chance."""


AT = "--bootstrap-server SERVER"
NODE_ID = 0
LOGGERS = f"--entity-type broker-loggers --entity-name {NODE_ID}"
FILES = {
    "move.json": f'{{"version":1,"partitions":[{{"topic":"t","partition":0,"replicas":[{NODE_ID}]}}]}}',
    "delete.json": '{"version":1,"partitions":[{"topic":"t","partition":0,"offset":0}]}',
}
REASSIGN = f"{AT} --reassignment-json-file FILES/move.json"
SERVED = [
    Tool("topics", TOOLS + "TopicCommand", f"{AT} --create --topic t --partitions 2", "Created topic t."),
    Tool("console-producer", TOOLS + "ConsoleProducer", f"{AT} --topic t", ""),
    Tool(
        "console-consumer",
        TOOLS + "consumer.ConsoleConsumer",
        f"{AT} --topic t --from-beginning --max-messages 2 --group g --timeout-ms 20000",
        "Processed a total of 2 messages",
    ),
    Tool("topics describe", TOOLS + "TopicCommand", f"{AT} --describe --topic t", "Configs: min.insync.replicas=1"),
    Tool("get-offsets", TOOLS + "GetOffsetShell", f"{AT} --topic t", "t:0:"),
    Tool("broker-api-versions", TOOLS + "BrokerApiVersionsCommand", AT, "Fetch(1): 4 to 18 [usable: 18]"),
    Tool("consumer-groups", GROUPS + "ConsumerGroupCommand", f"{AT} --describe --group g", "CURRENT-OFFSET"),
    Tool("groups", TOOLS + "GroupsCommand", f"{AT} --list", "Classic"),
    Tool("share-groups", GROUPS + "ShareGroupCommand", f"{AT} --list", ""),
    Tool("configs", "kafka.admin.ConfigCommand", f"{AT} --describe --topic t --all", "compression.zstd.level=3"),
    Tool("configs of groups", "kafka.admin.ConfigCommand", f"{AT} --describe --group g", "for group g are:"),
    Tool(
        "configs of brokers",
        "kafka.admin.ConfigCommand",
        f"{AT} --describe --entity-type brokers --entity-default",
        "DYNAMIC_DEFAULT_BROKER_CONFIG:min.insync.replicas=1",
    ),
    Tool(
        "configs of loggers",
        "kafka.admin.ConfigCommand",
        f"{AT} --alter --add-config ottla.group=DEBUG {LOGGERS}",
        "Completed updating config for broker-logger 0.",
    ),
    Tool(
        "configs of loggers described", "kafka.admin.ConfigCommand", f"{AT} --describe {LOGGERS}", "ottla.group=DEBUG"
    ),
    Tool("log-dirs", TOOLS + "LogDirsCommand", f"{AT} {LOGS}", '"partition":"t-1"'),
    Tool(
        "leader-election",
        TOOLS + "LeaderElectionCommand",
        f"{AT} --election-type preferred --all-topic-partitions",
        "",
    ),
    Tool("cluster", TOOLS + "ClusterTool", f"cluster-id {AT}", "Cluster ID: "),
    Tool(
        "reassign-partitions",
        TOOLS + "reassign.ReassignPartitionsCommand",
        f"{AT} --list",
        "No partition reassignments found.",
    ),
    Tool(
        "reassign-partitions throttled",
        TOOLS + "reassign.ReassignPartitionsCommand",
        f"{REASSIGN} --execute --throttle 1000000",
        "The inter-broker throttle limit was set to 1000000 B/s",
    ),
    Tool(
        "reassign-partitions verify",
        TOOLS + "reassign.ReassignPartitionsCommand",
        f"{REASSIGN} --verify",
        "Clearing topic-level throttles on topic t",
    ),
    Tool(
        "delete-records",
        TOOLS + "DeleteRecordsCommand",
        f"{AT} --offset-json-file FILES/delete.json",
        "low_watermark: 0",
    ),
    Tool(
        "verifiable-producer",
        TOOLS + "VerifiableProducer",
        f"{AT} --topic t --max-messages 5 --acks -1",
        "startup_complete",
    ),
    Tool(
        "verifiable-consumer",
        TOOLS + "VerifiableConsumer",
        f"{AT} --topic t --group-id v --reset-policy earliest --max-messages 2",
        "records_consumed",
    ),
    Tool(
        "streams-application-reset",
        TOOLS + "StreamsResetter",
        f"{AT} --application-id app --input-topics t --dry-run",
        "Following input topics offsets will be reset to",
    ),
    Tool("streams-groups", TOOLS + "streams.StreamsGroupCommand", f"{AT} --list", ""),
    Tool(
        "transactions",
        TOOLS + "TransactionsCommand",
        f"{AT} describe-producers --topic t --partition 0",
        "LastSequence",
    ),
    Tool("transactions list", TOOLS + "TransactionsCommand", f"{AT} list", "TransactionState"),
    Tool("client-metrics", TOOLS + "ClientMetricsCommand", f"{AT} --list", ""),
    Tool("metadata-quorum", TOOLS + "MetadataQuorumCommand", f"{AT} describe --status", "MaxFollowerLag:         0"),
    Tool(
        "metadata-quorum replication",
        TOOLS + "MetadataQuorumCommand",
        f"{AT} describe --replication",
        "LastCaughtUpTimestamp",
    ),
    Tool(
        "features",
        FEATURES,
        f"{AT} describe",
        "Feature: transaction.version\tSupportedMinVersion: 0\tSupportedMaxVersion: 2\tFinalizedVersionLevel: 2",
    ),
    Tool("features downgrade", FEATURES, f"{AT} downgrade {LEVEL}=1 --dry-run", "can be downgraded to 1."),
    Tool("features downgraded", FEATURES, f"{AT} downgrade {LEVEL}=1", "transaction.version was downgraded to 1."),
    Tool("features upgraded", FEATURES, f"{AT} upgrade {LEVEL}=2", "transaction.version was upgraded to 2."),
    Tool("features disabled", FEATURES, f"{AT} disable --feature transaction.version", "was disabled."),
    Tool("features upgrade", FEATURES, f"{AT} upgrade {LEVEL}=2 --dry-run", "can be upgraded to 2."),
    Tool(
        "producer-perf-test",
        TOOLS + "ProducerPerformance",
        "--topic t --num-records 50 --record-size 10 --throughput -1 --producer-props bootstrap.servers=SERVER",
        "50 records sent",
    ),
    Tool("consumer-perf-test", TOOLS + "ConsumerPerformance", f"{AT} --topic t --messages 20", "start.time"),
    Tool("e2e-latency", TOOLS + "EndToEndLatency", "SERVER t 5 all 10", "Avg latency"),
]
NOT_SERVED = [
    # This broker has no authorizer.
    Tool("acls", TOOLS + "AclCommand", f"{AT} --list", "SecurityDisabledException: No Authorizer is configured.", 1),
    Tool(
        "delegation-tokens",
        TOOLS + "DelegationTokenCommand",
        f"{AT} --describe --command-config /dev/null",
        "does not support DESCRIBE_DELEGATION_TOKEN",
        1,
    ),
    Tool(
        "metadata-quorum remove",
        TOOLS + "MetadataQuorumCommand",
        f"{AT} remove-controller --controller-id 1 --controller-directory-id AAAAAAAAAAAAAAAAAAAAAQ",
        "does not support REMOVE_RAFT_VOTER",
        1,
    ),
    Tool(
        "features of others",
        FEATURES,
        f"{AT} upgrade --feature group.version=1",
        "group.version cannot be set to 1: there is no such feature",
        1,
    ),
    Tool(
        "console-share-consumer",
        TOOLS + "consumer.ConsoleShareConsumer",
        f"{AT} --topic t --timeout-ms 3000",
        "",
        None,
    ),
    Tool(
        "replica-verification",
        TOOLS + "ReplicaVerificationTool",
        "--broker-list SERVER --topics-include t --report-interval-ms 500",
        "verification process is started",
    ),
]
Outcome = tuple[int, str]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Outcome]]:
    """Exit status and output of each tool, run in the order of the lists."""
    directory = tmp_path_factory.mktemp("tools")
    for name, text in FILES.items():
        (directory / name).write_text(text)
    with served_broker(directory / "data", group_initial_rebalance_delay_ms="0") as broker:
        wanted = [*SERVED, *NOT_SERVED]
        yield dict(zip((tool.script for tool in wanted), run_all(broker, wanted, directory), strict=True))


def run_all(broker: ServedBroker, wanted: list[Tool], directory: Path) -> list[Outcome]:
    outcomes = []
    for tool in wanted:
        arguments = tool.arguments.replace("SERVER", broker.bootstrap).replace("FILES", str(directory)).split()
        ended = tools().run(tool.main_class, *arguments, stdin="a\nb\n")
        outcomes.append((ended.status, ended.printed + ended.complained))
    return outcomes


@pytest.mark.parametrize("tool", [*SERVED, *NOT_SERVED], ids=lambda tool: tool.script)
def test_tool_of_kafka_ends_as_expected(outcomes: dict[str, Outcome], tool: Tool) -> None:
    status, printed = outcomes[tool.script]

    assert tool.says in printed, printed[-2000:]
    assert tool.status in (None, status), printed[-2000:]


def test_a_tool_leaves_no_thread_behind(tmp_path: Path) -> None:
    """One that goes on fetching from a broker that has gone takes as much of a processor as it gets."""
    its_own = Tools()
    its_own.run(TOOLS + "TopicCommand", "--version")
    before = its_own.threads()
    with served_broker(tmp_path / "data") as broker:
        its_own.run(TOOLS + "TopicCommand", "--bootstrap-server", broker.bootstrap, "--create", "--topic", "t")
        options = ("--broker-list", broker.bootstrap, "--topics-include", "t", "--report-interval-ms", "500")
        verified = its_own.run(TOOLS + "ReplicaVerificationTool", *options)
        left = its_own.threads() - before
    its_own.close()

    assert "verification process is started" in verified.printed
    assert [name for name in left if name.startswith(("ReplicaFetcher", "kafka-admin"))] == []


def test_a_tool_that_does_not_end_in_time_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    its_own = Tools()
    listed = its_own.run(TOOLS + "TopicCommand", "--version")
    monkeypatch.setattr(java_tools, "TOOL_WITHIN_S", 0.5)
    with served_broker(tmp_path / "data") as broker, pytest.raises(TimeoutError, match="ConsoleConsumer has not ended"):
        its_own.run(TOOLS + "consumer.ConsoleConsumer", "--bootstrap-server", broker.bootstrap, "--topic", "t")

    assert (listed.status, listed.printed.strip()) == (0, "4.1.0")
    assert not its_own.is_running
