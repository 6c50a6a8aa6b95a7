"""What a failing test shows: the requests of clients, and of brokers only those that failed."""

from confluent_kafka import Producer

from ottla.testing.handle import Kafka
from ottla.testing.report import ReportMark, failure_sections
from ottla.testing.testbed import Testbed
from ottla.testing.wire import EVENTS_KEPT
from tests.kit.clusters import Replicated
from tests.kit.members import consumer, send

BEGIN = ReportMark(0, 0)
WIRE = "ottla: wire, last "


def wire_lines(bed: Testbed) -> list[str]:
    sections = bed.call(failure_sections, bed, BEGIN)
    return next(text for title, text in sections if title.startswith(WIRE)).splitlines()


def test_fetches_of_followers_are_not_in_the_report(cluster: Replicated, shared_cluster: Testbed) -> None:
    producer = send(cluster.kafka, "orders", *(b"%d" % number for number in range(30)))

    lines = wire_lines(shared_cluster)

    assert len([line for line in lines if "  Produce v" in line]) >= 1
    assert [line for line in lines if "broker-" in line and " ok " in line] == []
    del producer


def test_fetches_that_followers_were_refused_are_shown(cluster: Replicated, shared_cluster: Testbed) -> None:
    rule = cluster.kafka.fault(
        api="Fetch", peer="broker", topic="orders", times=2, do={"error": "UNKNOWN_SERVER_ERROR"}
    )
    producer = send(cluster.kafka, "orders", b"a")
    rule.wait(hits=2)
    with cluster.kafka.fault(api="Produce", times=1, do={"error": "NOT_LEADER_OR_FOLLOWER"}):
        producer.produce("orders", b"b")
        assert producer.flush(20) == 0

    sections = dict(shared_cluster.call(failure_sections, shared_cluster, BEGIN))

    failed = [line for line in wire_lines(shared_cluster) if "broker-" in line]
    assert len([line for line in failed if "UNKNOWN_SERVER_ERROR" in line]) == 2
    hints = sections["ottla: why it may have failed"].splitlines()
    assert hints[0].startswith("Produce of rdkafka#"), "clients come first"
    assert any(hint.startswith("Fetch of broker-") for hint in hints[1:])
    del producer


def test_brokers_leave_the_room_to_clients(cluster: Replicated, shared_cluster: Testbed) -> None:
    producer = Producer(cluster.kafka.client_config("producer") | {"log_level": 0})
    cluster.kafka.produce("orders", [b"x"])
    kept = shared_cluster.call(shared_cluster.wire.since, 0)

    assert shared_cluster.wire.count > len(kept)
    assert all(each.error for each in kept if each.connection.is_of_broker)
    assert [each.number for each in kept] == sorted(each.number for each in kept)
    assert len(kept) <= EVENTS_KEPT
    del producer


def test_group_without_members_waits_for_none(handle: Kafka, bed: Testbed) -> None:
    handle.create_topic("orders", 1)
    with consumer(handle, "shop", "orders") as member:
        while handle.group("shop").state != "Stable":
            member.poll(0.05)
    handle.group("shop").wait_until_empty()

    groups = dict(bed.call(failure_sections, bed, BEGIN))["ottla: groups"].splitlines()

    assert groups[0].startswith("shop: Empty, generation ")
    assert not any("members are waited for" in line for line in groups)
