"""A reset empties a broker, and what was used once as an identity is not used again."""

import asyncio
import socket
import threading
from random import Random
from statistics import median
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer

from ottla.cluster.client_quotas import quota_key, quota_value
from ottla.cluster.store import Put, Transaction
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.security.quotas import QuotaEntity
from ottla.testing import testbed
from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed
from ottla.testing.views import ConnectionView
from ottla.testing.worlds import describe_leak
from tests.broker.wire import Client
from tests.fakes.frames import build_request_frame
from tests.kit.members import busy_member, consumer, polled, send
from tests.waiting import wait_for

RESETS = 200


def test_nothing_is_left_after_a_reset(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=3, configs={"retention.ms": 1})
    send(handle, "orders", b"a")
    with consumer(handle, "shop", "orders") as shop:
        polled(shop, 1)
        shop.commit(asynchronous=False)

    report = handle.reset()

    assert (report.topics, report.groups, report.leaks) == (1, 1, ())
    assert (handle.topics, handle.groups, handle.connections) == ([], [], [])
    assert handle.group("shop").history == []


def test_topics_of_the_start_are_there_again(tmp_path: Any) -> None:
    bed = Testbed(topics={"orders": 2}, data=tmp_path)
    bed.start()
    try:
        handle = Kafka(bed)
        handle.produce("orders", [b"a"])
        first = handle.topic("orders").describe().topic_id
        handle.reset()
        assert handle.records("orders") == []
        assert handle.topic("orders").describe().topic_id != first
    finally:
        bed.stop()
    assert list(tmp_path.iterdir()) == []


def test_configs_are_as_at_the_start(handle: Kafka) -> None:
    entry = ConfigEntry("log.retention.ms", "7", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "0", incremental_configs=[entry])

    def value() -> str:
        admin = AdminClient({"bootstrap.servers": handle.bootstrap, "log_level": 0})
        (described,) = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "0")]).values()
        shown: str = described.result(20)["log.retention.ms"].value
        return shown

    before = value()
    admin = AdminClient({"bootstrap.servers": handle.bootstrap, "log_level": 0})
    (altered,) = admin.incremental_alter_configs([resource]).values()
    altered.result(20)
    assert value() == "7"

    handle.reset()

    assert value() == before


def test_users_quotas_and_acls_go_with_a_reset(tmp_path: Any) -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    settings = {"authorizer.class.name": authorizer, "super.users": "User:ANONYMOUS"}
    acl = AclBinding(
        ResourceType.TOPIC, "a", ResourcePatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    user = UserScramCredentialUpsertion("a", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret")
    quota = Put(quota_key(QuotaEntity("a")), quota_value({"producer_byte_rate": 1.0}))
    bed = Testbed(settings=settings, data=tmp_path, deadline=20)
    bed.start()
    try:
        (parts,) = bed.hosted.parts().values()
        admin = AdminClient({"bootstrap.servers": bed.hosted.bootstrap, "log_level": 0})
        admin.create_acls([acl])[acl].result(20)
        admin.alter_user_scram_credentials([user])["a"].result(20)
        bed.run(parts.metadata.commit(Transaction((), (quota,))))
        Kafka(bed).wait(lambda _: parts.metadata.image.client_quotas, describe="the quota")
        image = parts.metadata.image
        assert (len(image.acls), len(image.client_quotas), len(image.scram_credentials)) == (1, 1, 1)

        Kafka(bed).reset()

        image = parts.metadata.image
        assert (len(image.acls), len(image.client_quotas), len(image.scram_credentials)) == (0, 0, 0)
    finally:
        bed.stop()


def test_identities_are_not_used_twice(handle: Kafka) -> None:
    """Topic ids, member ids, generations, leader epochs."""
    seen: list[tuple[bytes, str, int, int]] = []
    for _ in range(3):
        handle.create_topic("orders", partitions=1)
        with consumer(handle, "shop", "orders") as shop:
            shop.poll(0.1)
            group = handle.group("shop")
            group.wait_until_stable(members=1)
            topic = handle.topic("orders").describe()
            member = group.members[0].member_id
            seen.append((topic.topic_id, member, group.generation, topic.partitions[0].leader_epoch))
        handle.reset()

    topic_ids, members, generations, epochs = zip(*seen, strict=True)
    assert len({*topic_ids}) == len({*members}) == 3
    assert list(generations) == sorted({*generations})
    assert list(epochs) == sorted({*epochs})


def test_floor_of_generations_is_above_groups_that_were_deleted(handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    with consumer(handle, "short", "orders") as first:
        first.poll(0.1)
        handle.group("short").wait_until_stable(members=1)
        before = handle.group("short").generation
    admin = AdminClient({"bootstrap.servers": handle.bootstrap, "log_level": 0})
    admin.delete_consumer_groups(["short"])["short"].result(20)
    del admin
    handle.reset()
    handle.create_topic("orders", partitions=1)

    with consumer(handle, "short", "orders") as second:
        second.poll(0.1)
        handle.group("short").wait_until_stable(members=1)
        assert handle.group("short").generation > before


def test_old_producer_id_is_refused_and_a_new_one_accepted(handle: Kafka) -> None:
    """An idempotent producer goes on after the reset with the ids it has."""
    old = KafkaProducer(**handle.client_config("producer", "kafka-python"), enable_idempotence=True)
    old.send("orders", b"old").get(20)
    (before,) = handle.records("orders")
    handle.reset()
    handle.create_topic("orders", partitions=1)

    for sequence in (0, 1, 7):
        with pytest.raises(KafkaError) as raised:
            handle.produce("orders", [b"ghost"], as_producer=(before.producer_id, 0, sequence))
        assert raised.value.code is ErrorCode.UNKNOWN_PRODUCER_ID
    send(handle, "orders", b"new", **{"enable.idempotence": True})

    (record,) = handle.records("orders")
    assert (record.value, record.producer_id > before.producer_id) == (b"new", True)
    old.close(timeout=0)


def test_old_librdkafka_producer_writes_nothing_new(handle: Kafka) -> None:
    """It goes on with the id it has, which is refused however often it tries."""
    old = send(handle, "orders", b"old", **{"enable.idempotence": True})
    handle.reset()
    handle.create_topic("orders", partitions=1)

    old.produce("orders", b"ghost")

    assert old.flush(2) == 1
    assert handle.records("orders") == []
    old.purge()


def test_ids_claimed_and_not_given_out_stay_good(handle: Kafka) -> None:
    """A broker claims a thousand ids at once; a reset does not throw them away."""
    ids: list[int] = []
    for _ in range(3):
        send(handle, "orders", b"x", **{"enable.idempotence": True})
        ids.append(handle.records("orders")[0].producer_id)
        handle.reset()

    assert ids == list(range(ids[0], ids[0] + 3))


def test_old_transaction_cannot_go_on(handle: Kafka) -> None:
    till = Producer(handle.client_config("producer") | {"transactional.id": "till", "log_level": 0})
    till.init_transactions(20)
    till.begin_transaction()
    till.produce("orders", b"old")
    till.flush(20)

    handle.reset()
    handle.create_topic("orders", partitions=1)

    till.produce("orders", b"ghost")
    with pytest.raises(KafkaException):
        till.commit_transaction(10)
    assert handle.records("orders", isolation="log") == []


def test_old_member_is_unknown_after_a_reset(handle: Kafka) -> None:
    """Also where its group is there again. A client that still has the connection is named."""
    handle.create_topic("orders", partitions=1)
    made = KafkaConsumer("orders", **handle.client_config("consumer", "kafka-python"), group_id="shop")
    made.poll(timeout_ms=100)

    asked: list[HeartbeatRequest] = []

    def is_known() -> bool:
        """Before the member has heard of the topic it assigns nothing, and joins once more when it has."""
        shop = handle.group("shop")
        shop.wait_until_stable(members=1)
        member_id = shop.members[0].member_id
        asked.append(HeartbeatRequest(group_id="shop", generation_id=shop.generation, member_id=member_id))
        return answered(handle, asked[-1]) == ErrorCode.NONE

    wait_for(is_known, 30, "the member is not known")
    old = asked[-1]

    leak = next(each for each in handle.reset().leaks if each.groups)
    made.close(autocommit=False)
    assert answered(handle, old) == ErrorCode.UNKNOWN_MEMBER_ID
    handle.create_topic("orders", partitions=1)
    with consumer(handle, "shop", "orders"):
        handle.group("shop").wait_until_stable(members=1)
        assert answered(handle, old) == ErrorCode.UNKNOWN_MEMBER_ID
    assert describe_leak(leak).startswith("consumer kafka-python-")
    assert describe_leak(leak).endswith("(group shop) was not closed")


def answered(handle: Kafka, request: HeartbeatRequest) -> int:
    async def ask() -> int:
        host, port = handle.bootstrap.split(":")
        client = Client(*await asyncio.open_connection(host, int(port)))
        response = await client.call(request, HeartbeatResponse, HeartbeatRequest.VERSIONS[1])
        client.close()
        code: int = response.error_code
        return code

    return asyncio.run(ask())


# A client takes its time to join, so that not all wait for that.
MOMENTS = ("now",) * 5 + ("joining",) * 2 + ("stable",)


def wait_until_busy(handle: Kafka, moment: str) -> None:
    """At which moment of its life the group `busy` meets the next reset."""
    if moment == "joining":
        handle.wait(lambda kafka: "busy" in kafka.groups, describe="the group")
    elif moment == "stable":
        handle.group("busy").wait_until_stable(members=1)


def test_resets_under_a_busy_group_leave_no_trace(bed: Testbed, handle: Kafka) -> None:
    """`RESETS` while members join, commit and leave. No error of the broker, and the last world is
    empty."""
    bed.run(bed.writer.ensure_group_coordinators())
    offsets_topic = bed.reader.image.topic("__consumer_offsets")
    generations = bed.histories.generation_max
    moments = list(MOMENTS) * (RESETS // len(MOMENTS))
    Random(14).shuffle(moments)

    handle.create_topic("orders", partitions=1)
    with busy_member(handle, "orders"):
        for moment in moments:
            handle.reset()
            handle.produce("orders", [b"x"])
            wait_until_busy(handle, moment)
            assert len(handle.records("orders")) == 1
    handle.reset()

    (parts,) = bed.hosted.parts().values()
    assert parts.metadata.image.topic("__consumer_offsets") == offsets_topic
    # One in each world in which the group was seen to be stable, however slow the machine.
    assert bed.histories.generation_max >= generations + moments.count("stable"), "the group was not busy"
    assert moments.count("stable") >= 10
    assert parts.runtime.unhandled_errors == 0
    assert [line for line in bed.hosted.log_lines.since(0) if "error" in line.lower()] == []
    # First, for librdkafka's consumer says of a topic that does not exist yet that it is unknown.
    handle.produce("orders", [b"last"])
    with consumer(handle, "busy", "orders", **{"enable.auto.commit": False}) as shop:
        assert polled(shop, 1) == [b"last"]
        assert shop.committed([TopicPartition("orders", 0)], 20)[0].offset == -1001


def test_consumer_of_a_topic_made_again_reads_its_first_record(handle: Kafka) -> None:
    handle.produce("orders", [b"old"] * 3)
    with consumer(handle, "shop", "orders") as shop:
        polled(shop, 3)
        handle.reset()
        handle.produce("orders", [b"new"])
        assert polled(shop, 1) == [b"new"]


def test_cluster_is_whole_again_after_a_reset(tmp_path: Any) -> None:
    settings = {"default.replication.factor": 3, "offsets.topic.replication.factor": 3}
    bed = Testbed(brokers=3, settings=settings, data=tmp_path, deadline=30)
    bed.start()
    try:
        handle = Kafka(bed)
        handle.create_topic("orders", partitions=1)
        handle.produce("orders", [b"a"])
        with consumer(handle, "shop", "orders") as shop:
            polled(shop, 1)
            shop.commit(asynchronous=False)
            # Requests by routes that brokers had used among themselves before are seen too.
            assert {"Fetch", "ApiVersions"} <= {api for each in handle.connections for api in each.apis}
        leader = handle.topic("orders").partitions[0].leader
        assert leader is not None
        handle.brokers[leader].kill()
        handle.wait_until_leader("orders", 0)
        assert leader not in handle.node_ids

        handle.reset()

        assert handle.node_ids == [0, 1, 2]
        assert (handle.topics, handle.groups) == ([], [])
        handle.create_topic("orders", partitions=1)
        handle.wait_until_in_sync("orders")
        for node_id in handle.node_ids:
            handle.brokers[node_id].restart()
            handle.wait_until_in_sync("orders")
        assert handle.groups == []
    finally:
        bed.stop()


def test_reset_of_twenty_topics_takes_milliseconds(handle: Kafka) -> None:
    """The promise is 5 ms on a quiet machine; here it must only not be of another order."""
    taken: list[float] = []
    for _ in range(20):
        for number in range(20):
            handle.produce(f"topic-{number}", [b"x"])
        taken.append(handle.reset().duration_ms)

    assert median(taken) < 50


CLOSED_UNSEEN = 20


def test_clients_that_were_gone_before_are_no_leaks(bed: Testbed, handle: Kafka) -> None:
    """They have connected, asked and closed while the broker did something else: it accepts them afterwards."""
    host, port = handle.bootstrap.split(":")
    frame = build_request_frame(MetadataRequest(topics=[]), 4, 1, "rdkafka")

    async def come_and_go() -> list[ConnectionView]:
        for _ in range(CLOSED_UNSEEN):
            with socket.create_connection((host, int(port))) as client:
                client.sendall(frame)
        return await bed.open_connections()

    assert bed.run(come_and_go()) == []
    assert sum(event.api == "Metadata" for event in bed.wire.since(0)[-CLOSED_UNSEEN:]) == CLOSED_UNSEEN


def test_connections_that_close_a_little_later_are_waited_for(bed: Testbed, handle: Kafka) -> None:
    host, port = handle.bootstrap.split(":")

    async def close_later() -> list[ConnectionView]:
        client = socket.create_connection((host, int(port)))
        assert len(await bed.open_connections()) == 1
        asyncio.get_running_loop().call_later(0.02, client.close)
        return await bed.left_open(bed.wire.test)

    assert bed.run(close_later()) == []


def test_connections_of_other_tests_are_not_waited_for(
    bed: Testbed, handle: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that a module shares, for one, or those of another worker."""
    monkeypatch.setattr(testbed, "LATE_CLOSING_S", 3600)
    host, port = handle.bootstrap.split(":")

    async def keep_open() -> tuple[int, list[ConnectionView]]:
        with socket.create_connection((host, int(port))) as client:
            client.sendall(build_request_frame(MetadataRequest(topics=[]), 4, 1, "shared"))
            opened = await bed.open_connections()
            return len(opened), [*await bed.left_open("test_another"), *await bed.left_open("", "worker-2")]

    assert bed.run(keep_open()) == (1, [])


def test_connections_that_a_test_has_left_open_are_named(bed: Testbed, handle: Kafka) -> None:
    host, port = handle.bootstrap.split(":")

    async def leave_open() -> list[str]:
        with socket.create_connection((host, int(port))) as client:
            client.sendall(build_request_frame(MetadataRequest(topics=[]), 4, 1, "forgotten"))
            return [each.client_id for each in await bed.left_open(bed.wire.test)]

    assert bed.run(leave_open()) == ["forgotten"]


def test_client_that_works_all_the_while_is_a_leak(bed: Testbed, handle: Kafka) -> None:
    handle.create_topic("orders", partitions=1)
    stop = threading.Event()

    def busy() -> None:
        producer = Producer(handle.client_config("producer") | {"log_level": 0, "linger.ms": 0})
        while not stop.is_set():
            producer.produce("orders", b"book")
            producer.flush(20)

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        handle.wait_for_records("orders", 1)
        assert "Produce" in {api for each in bed.run(bed.open_connections()) for api in each.apis}
    finally:
        stop.set()
        thread.join()
