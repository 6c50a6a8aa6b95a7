import pytest

from ottla.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ottla.protocol.messages.alter_configs import AlterConfigsResourceResponse as WholeResponse
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from tests.cli.fake_broker import FakeBroker
from tests.cli.runner import json_of, output_of, refusal_of, run, run_at


def topic(name: str, partitions: int, *, is_internal: bool = False, leader: int = 0) -> MetadataResponseTopic:
    rows = [
        MetadataResponsePartition(
            partition_index=i, leader_id=leader, leader_epoch=4, replica_nodes=[0, 1], isr_nodes=[0]
        )
        for i in range(partitions)
    ]
    return MetadataResponseTopic(name=name, is_internal=is_internal, partitions=rows)


def created(error_code: int = 0, message: str | None = None) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=error_code, error_message=message)])


def config(name: str, value: str, source: int) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(name=name, value=value, config_source=source)


def has_configs(broker: FakeBroker, *configs: DescribeConfigsResourceResult) -> None:
    result = DescribeConfigsResult(resource_type=2, resource_name="t", configs=list(configs))
    broker.answer(DescribeConfigsRequest, DescribeConfigsResponse(results=[result]))


def offsets_by_timestamp(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
    """Every partition holds the offsets 5 to 20."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=asked.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=row.partition_index, offset=5 if row.timestamp == -2 else 20
                    )
                    for row in asked.partitions
                ],
            )
            for asked in request.topics
        ]
    )


def test_list_shows_topics_by_name_without_internal_ones() -> None:
    with FakeBroker() as broker:
        broker.has_topics(topic("words", 3), topic("__consumer_offsets", 50, is_internal=True), topic("a", 1))

        assert output_of(broker, "topics", "list") == (
            "TOPIC  PARTITIONS  REPLICATION-FACTOR  INTERNAL\n"
            "a               1                   2  no\n"
            "words           3                   2  no\n"
        )
        assert len(json_of(broker, "topics", "list", "--internal")) == 3


def test_describe_shows_partitions_offsets_and_topic_configs() -> None:
    with FakeBroker() as broker:
        broker.has_topics(topic("t", 2))
        broker.answers[ListOffsetsRequest] = offsets_by_timestamp
        has_configs(broker, config("retention.ms", "1000", 1), config("segment.bytes", "99", 5))

        assert output_of(broker, "topics", "describe", "t") == (
            "topic t\n"
            "  replication factor  2\n"
            "  retention.ms        1000\n"
            "PARTITION  LEADER  EPOCH  REPLICAS  ISR  START-OFFSET  END-OFFSET\n"
            "        0       0      4  0,1         0             5          20\n"
            "        1       0      4  0,1         0             5          20\n"
        )
        (described,) = json_of(broker, "topics", "describe", "t")
        assert described["configs"] == {"retention.ms": "1000"}
        assert described["partitions"][1] == {
            "partition": 1,
            "leader": 0,
            "leader_epoch": 4,
            "replicas": [0, 1],
            "isr": [0],
            "log_start_offset": 5,
            "log_end_offset": 20,
        }


def test_a_partition_without_a_leader_has_no_offsets() -> None:
    with FakeBroker() as broker:
        broker.has_topics(topic("t", 1, leader=-1))
        has_configs(broker)

        (described,) = json_of(broker, "topics", "describe", "t")

    assert (described["partitions"][0]["leader"], described["partitions"][0]["log_end_offset"]) == (None, None)


def test_describing_a_topic_that_does_not_exist_is_one_sentence() -> None:
    with FakeBroker() as broker:
        assert refusal_of(broker, "topics", "describe", "nix") == "topic nix: it does not exist"


def test_create_sends_partitions_replication_factor_and_configs() -> None:
    with FakeBroker() as broker:
        broker.answer(CreateTopicsRequest, created())
        options = ("--partitions", "3", "--replication-factor", "1", "--config", "cleanup.policy=compact")

        assert output_of(broker, "topics", "create", "t", *options) == "created topic t\n"

        (request,) = broker.requests(CreateTopicsRequest)
    (asked,) = request.topics
    assert (asked.name, asked.num_partitions, asked.replication_factor) == ("t", 3, 1)
    assert [(c.name, c.value) for c in asked.configs] == [("cleanup.policy", "compact")]


def test_create_places_replicas_by_hand() -> None:
    with FakeBroker() as broker:
        broker.answer(CreateTopicsRequest, created())

        output_of(broker, "topics", "create", "t", "--assignment", "1=2,0", "--assignment", "0=0,1")

        (topic,) = broker.requests(CreateTopicsRequest)[0].topics
        assert (topic.num_partitions, topic.replication_factor) == (-1, -1)
        assert [(row.partition_index, row.broker_ids) for row in topic.assignments] == [(0, [0, 1]), (1, [2, 0])]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ("--assignment", "0=0", "--partitions", "1"),
            "--assignment cannot be combined with --partitions or --replication-factor",
        ),
        (("--assignment", "0=0", "--assignment", "0=1"), "partition 0 is given twice"),
        (("--assignment", "0,1"), "'0,1' is not PARTITION=ID,ID,..."),
        (("--assignment", "0=x"), "'x' are not node ids with commas between them"),
    ],
)
def test_replicas_by_hand_that_make_no_sense_are_refused(options: tuple[str, ...], sentence: str) -> None:
    result = run("topics", "create", "t", *options)

    assert result.exit_code == 2
    assert sentence in result.stderr


def test_a_topic_that_exists_is_an_error_unless_that_is_fine() -> None:
    with FakeBroker() as broker:
        broker.answer(CreateTopicsRequest, created(36, "Topic 't' already exists."))

        refusal = refusal_of(broker, "topics", "create", "t")
        assert refusal == "cannot create topic t: it exists already (Topic 't' already exists)"
        assert json_of(broker, "topics", "create", "t", "--if-not-exists") == {"created": []}


@pytest.mark.parametrize(
    ("code", "message", "said"),
    [
        (44, "too many partitions", "too many partitions (POLICY_VIOLATION)"),
        (44, None, "the broker answered POLICY_VIOLATION"),
        (9999, None, "the broker answered error 9999"),
        (17, "INVALID_TOPIC_EXCEPTION", "the name is not valid"),
    ],
)
def test_what_the_broker_objects_to_is_passed_on(code: int, message: str | None, said: str) -> None:
    with FakeBroker() as broker:
        broker.answer(CreateTopicsRequest, created(code, message))

        assert refusal_of(broker, "topics", "create", "t") == f"cannot create topic t: {said}"


def test_alter_changes_only_the_configs_it_names() -> None:
    with FakeBroker() as broker:
        broker.answer(
            IncrementalAlterConfigsRequest,
            IncrementalAlterConfigsResponse(responses=[AlterConfigsResourceResponse(resource_name="t")]),
        )

        output_of(broker, "topics", "alter", "t", "--config", "retention.ms=5", "--unset", "segment.ms")

        (request,) = broker.requests(IncrementalAlterConfigsRequest)
    changes = [(c.name, c.config_operation, c.value) for c in request.resources[0].configs]
    assert changes == [("retention.ms", 0, "5"), ("segment.ms", 1, None)]


def test_a_broker_before_kafka_2_3_gets_all_configs_again() -> None:
    with FakeBroker() as broker:
        del broker.ranges[IncrementalAlterConfigsRequest.API_KEY]
        has_configs(broker, config("retention.ms", "1", 1), config("segment.ms", "2", 1), config("x", "3", 5))
        broker.answer(AlterConfigsRequest, AlterConfigsResponse(responses=[WholeResponse(resource_name="t")]))

        output_of(broker, "topics", "alter", "t", "--config", "flush.ms=5", "--unset", "segment.ms")

        (request,) = broker.requests(AlterConfigsRequest)
    assert {c.name: c.value for c in request.resources[0].configs} == {"retention.ms": "1", "flush.ms": "5"}


def test_alter_adds_partitions() -> None:
    with FakeBroker() as broker:
        result = CreatePartitionsTopicResult(name="t", error_code=37, error_message="Topic already has 3 partitions.")
        broker.answer(CreatePartitionsRequest, CreatePartitionsResponse(results=[result]))

        assert refusal_of(broker, "topics", "alter", "t", "--partitions", "2") == (
            "cannot add partitions to topic t: the number of partitions is not valid (Topic already has 3 partitions)"
        )


@pytest.mark.parametrize(
    "arguments", [("t",), ("t", "--config", "a"), ("t", "--config", "a=1", "--unset", "a"), ("t", "--partitions", "0")]
)
def test_alter_with_nothing_sensible_to_alter_is_wrong_usage(arguments: tuple[str, ...]) -> None:
    assert run("topics", "alter", *arguments).exit_code == 2


@pytest.mark.parametrize("version", [1, 3, 6])
def test_delete_names_the_topic_in_every_version(version: int) -> None:
    with FakeBroker() as broker:
        broker.ranges[DeleteTopicsRequest.API_KEY] = (0, version)
        broker.answer(DeleteTopicsRequest, DeleteTopicsResponse(responses=[DeletableTopicResult(name="t")]))

        assert output_of(broker, "topics", "delete", "t") == "deleted topic t\n"

        (request,) = broker.requests(DeleteTopicsRequest)
    assert [topic.name for topic in request.topics] + request.topic_names == ["t"]


def test_an_unreachable_broker_is_one_sentence_and_status_1() -> None:
    result = run("topics", "list", "--bootstrap", "127.0.0.1:1")

    assert (result.exit_code, result.stderr) == (1, "Error: cannot reach 127.0.0.1:1: nothing listens there\n")


def test_a_malformed_bootstrap_is_wrong_usage() -> None:
    result = run("topics", "list", "--bootstrap", "localhost")

    assert result.exit_code == 2
    assert "'localhost' is not HOST:PORT" in result.stderr


def test_the_bootstrap_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeBroker() as broker:
        monkeypatch.setenv("OTTLA_BOOTSTRAP", broker.bootstrap)

        assert run("topics", "list").exit_code == 0


def test_ping_answers_for_the_first_broker_that_does() -> None:
    with FakeBroker() as broker:
        result = run("ping", "--bootstrap", f"127.0.0.1:1,{broker.bootstrap}")

    assert result.stdout.startswith(f"{broker.bootstrap} answered in ")
    assert run_at(broker, "ping").exit_code == 1
