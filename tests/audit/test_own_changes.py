"""What the test itself changes while clients are at work: offsets that it commits and configs that come and go are no
loss."""

from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.testing.audit.findings import AuditFinding, Blame
from ottla.testing.audit.judge import judge
from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed
from tests.audit.workload import Client, produce, records
from tests.control.asking import Asker, opened_control
from tests.kit.members import consumer, polled, send


def found(kafka: Kafka) -> list[list[str]]:
    return [each.lines() for each in kafka.audit()]


def of_broker(kafka: Kafka) -> list[AuditFinding]:
    return [each for each in kafka.audit() if each.kind.blame is Blame.BROKER]


def commit_alone(kafka: Kafka, offset: int) -> None:
    """By a client that is no member: its commit is the last request that comes."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="orders", partitions=[partition])
    client = Client(kafka.bootstrap, "plain")
    request = OffsetCommitRequest(group_id="shop", generation_id_or_member_epoch=-1, member_id="", topics=[topic])
    assert client.call(request).topics[0].partitions[0].error_code == 0
    client.close()


def alter_default(kafka: Kafka, name: str, value: str | None) -> None:
    """Of the broker, for all topics without a value of their own."""
    how = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(name, value, incremental_operation=how)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for altered in admin.incremental_alter_configs(
        [ConfigResource("broker", "0", incremental_configs=[entry])]
    ).values():
        altered.result(20)


def by_handle(kafka: Kafka, bed: Testbed, offset: int) -> None:
    del bed
    kafka.group("shop").set_offsets("orders", {0: offset})


def by_seed(kafka: Kafka, bed: Testbed, offset: int) -> None:
    del bed
    kafka.load({"groups": {"shop": {"offsets": {"orders": {"0": offset}}}}})


def over_http(kafka: Kafka, bed: Testbed, offset: int) -> None:
    del kafka
    with opened_control(bed) as control:
        body = {"topic": "orders", "offsets": {"0": offset}}
        assert Asker(control.url).ask("POST", "/v1/groups/shop/offsets", body).status == 200


@pytest.mark.parametrize("commit", [by_handle, by_seed, over_http])
def test_offsets_that_the_test_sets_are_no_loss(
    handle: Kafka, shared_bed: Testbed, commit: Callable[[Kafka, Testbed, int], None]
) -> None:
    handle.create_topic("orders", 1)
    send(handle, "orders", *(b"%d" % number for number in range(5)))
    with consumer(handle, "shop", "orders", **{"enable.auto.commit": False}) as made:
        polled(made, 5)
        made.commit(asynchronous=False)

    commit(handle, shared_bed, 2)

    assert found(handle) == []
    with consumer(handle, "shop", "orders", **{"enable.auto.commit": False}) as made:
        # It goes on where the test has set it: below its earlier commit.
        assert polled(made, 1) == [b"2"]
        made.commit(offsets=[TopicPartition("orders", 0, 3)], asynchronous=False)
    assert found(handle) == []


def test_offset_set_right_after_a_commit_is_no_loss(handle: Kafka) -> None:
    handle.create_topic("orders", 1)
    send(handle, "orders", b"a", b"b", b"c")
    commit_alone(handle, 3)

    handle.group("shop").set_offsets("orders", {0: 1})

    assert of_broker(handle) == []


def test_group_deleted_right_after_a_commit_is_no_loss(handle: Kafka) -> None:
    handle.create_topic("orders", 1)
    send(handle, "orders", b"a", b"b", b"c")
    commit_alone(handle, 3)

    handle.group("shop").delete()

    assert of_broker(handle) == []


def test_commit_after_the_test_set_an_offset_is_judged(handle: Kafka, shared_bed: Testbed) -> None:
    handle.create_topic("orders", 1)
    send(handle, "orders", b"a", b"b", b"c")
    handle.group("shop").set_offsets("orders", {0: 1})
    commit_alone(handle, 3)

    recorder = shared_bed.auditor.recorder
    assert recorder is not None
    history = shared_bed.call(shared_bed.auditor.history, recorder)
    history.offsets = {}

    assert [each.what for each in judge(history) if each.kind.name == "B1"] == [
        "the commit of 3 is acknowledged, and nothing is committed"
    ]


ALTERED: Mapping[str, Mapping[str, object]] = {
    "gzip": {"compression.type": "gzip"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
}


@pytest.mark.parametrize("configs", ALTERED.values(), ids=list(ALTERED))
def test_batches_that_a_former_config_changed_are_no_loss(handle: Kafka, configs: Mapping[str, object]) -> None:
    handle.create_topic("orders", 1, configs=configs)
    client = Client(handle.bootstrap, "plain")
    client.call(produce("orders", 0, records([b"book" * 100])))

    handle.topic("orders").alter(dict.fromkeys(configs))

    assert found(handle) == []
    client.close()


def test_batches_written_under_a_passing_config_are_no_loss(handle: Kafka) -> None:
    """It began after the first request to the topic, and was over before the verdict."""
    handle.create_topic("orders", 1)
    client = Client(handle.bootstrap, "plain")
    client.call(produce("orders", 0, records([b"pen" * 100])))
    handle.topic("orders").alter({"compression.type": "gzip"})
    client.call(produce("orders", 0, records([b"book" * 100])))
    handle.topic("orders").alter({"compression.type": None})

    assert found(handle) == []
    client.close()


def test_compaction_under_a_former_config_loses_nothing(handle: Kafka) -> None:
    handle.create_topic("orders", 1, configs={"cleanup.policy": "compact"})
    producer = Producer(handle.client_config("producer") | {"log_level": 0})
    for number in range(5):
        producer.produce("orders", b"%d" % number, key=b"k")
        assert producer.flush(20) == 0
    orders = handle.topic("orders")
    orders.roll()
    orders.compact()
    assert len(handle.records("orders")) < 5

    orders.alter({"cleanup.policy": None})

    assert found(handle) == []


def test_default_that_was_in_force_for_a_time_loses_nothing(handle: Kafka) -> None:
    handle.create_topic("orders", 1)
    client = Client(handle.bootstrap, "plain")
    client.call(produce("orders", 0, records([b"pen" * 100])))
    alter_default(handle, "compression.type", "gzip")
    client.call(produce("orders", 0, records([b"book" * 100])))
    alter_default(handle, "compression.type", None)

    assert found(handle) == []
    client.close()


def begin_offsets(bed: Testbed) -> dict[str, int]:
    """From which on a partition is judged, by its name."""
    recorder = bed.auditor.recorder
    assert recorder is not None
    return {str(each): each.begin_offset for each in bed.call(bed.auditor.history, recorder).partitions}


@pytest.mark.parametrize("is_seen", [True, False], ids=["seen before", "not seen before"])
def test_records_of_before_stay_so_when_a_topic_goes(handle: Kafka, shared_bed: Testbed, is_seen: bool) -> None:
    """A test does not answer for what others left in a topic, whatever it does to another one."""
    for topic in ("kept", "orders"):
        handle.produce(topic, [b"a", b"b"])
    shared_bed.call(shared_bed.auditor.begin)
    client = Client(handle.bootstrap, "plain")
    if is_seen:
        client.call(produce("orders", 0, records([b"book"])))

    handle.topic("orders").delete()
    client.call(produce("kept", 0, records([b"pen"])))

    assert begin_offsets(shared_bed)["kept-0"] == 2
    client.close()


@pytest.mark.parametrize("is_seen", [True, False], ids=["seen before", "not seen before"])
def test_topic_made_again_is_judged_from_its_begin(handle: Kafka, shared_bed: Testbed, is_seen: bool) -> None:
    handle.produce("orders", [b"a", b"b"])
    shared_bed.call(shared_bed.auditor.begin)
    client = Client(handle.bootstrap, "plain")
    if is_seen:
        client.call(produce("orders", 0, records([b"book"])))
    handle.topic("orders").delete()
    handle.create_topic("orders", 1)

    client.call(produce("orders", 0, records([b"pen"])))

    assert begin_offsets(shared_bed)["orders-0"] == 0
    client.close()
