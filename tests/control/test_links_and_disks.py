"""Links and disks of three brokers over HTTP."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.testing.control import disk_routes
from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed
from tests.control.asking import Asker, opened_control
from tests.control.test_serving import TestingServe, asker_of
from tests.kit.clusters import Replicated, outcome, three_brokers
from tests.waiting import wait_for
from tests.wire.captures import apis_in


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[tuple[Testbed, Asker]]:
    bed = three_brokers()
    with opened_control(bed) as control:
        yield bed, Asker(control.url)
    bed.stop()


@pytest.fixture
def cluster(shared_cluster: tuple[Testbed, Asker]) -> Iterator[Replicated]:
    bed, _ = shared_cluster
    yield Replicated(Kafka(bed))
    bed.run(bed.reset())


@pytest.fixture
def asker(shared_cluster: tuple[Testbed, Asker]) -> Asker:
    return shared_cluster[1]


def put(asker: Asker, path: str, body: Any) -> Any:
    answer = asker.ask("PUT", path, body)
    assert answer.status == 200, answer
    return answer.json


def ways(asker: Asker) -> set[tuple[Any, Any]]:
    return {(each["from"], each["to"]) for each in asker.get("/v1/links")["links"]}


def test_one_way_cut_leaves_too_few_replicas(cluster: Replicated, asker: Asker) -> None:
    for follower in cluster.followers:
        shown = put(asker, "/v1/links", {"do": "cut", "from": cluster.leader, "to": follower})
    assert [(each["from"], each["is_cut"], each["resets"]) for each in shown["links"]] == [
        (cluster.leader, True, False)
    ] * 2
    cluster.kafka.produce("orders", [b"only here"], acks=1)
    cluster.wait_for_isr(cluster.leader)

    assert outcome(cluster.kafka, b"refused") == "NOT_ENOUGH_REPLICAS"

    assert put(asker, "/v1/links", {"do": "heal"}) == {"links": []}
    asker.post("/v1/wait", {"for": "topic-in-sync", "topic": "orders", "within_ms": 20_000})
    assert outcome(cluster.kafka, b"taken") == "ok"


def test_slow_link_takes_a_follower_out_of_the_isr(cluster: Replicated, asker: Asker) -> None:
    slow = cluster.followers[0]
    shown = put(asker, "/v1/links", {"do": "delay", "from": cluster.leader, "to": slow, "ms": 5000})
    assert [each["delay_ms"] for each in shown["links"]] == [5000]
    cluster.kafka.produce("orders", [b"a"], acks=1)

    cluster.wait_for_isr(cluster.leader, cluster.followers[1])

    assert "links: delay 5000 ms" in str(asker.get("/v1/report"))
    put(asker, "/v1/links", {"do": "heal", "ends": [slow]})
    cluster.kafka.wait_until_in_sync("orders")


def test_ways_are_changed_both_or_one_and_healed(cluster: Replicated, asker: Asker) -> None:
    put(asker, "/v1/links", {"do": "pause", "between": [0, 1]})
    put(asker, "/v1/links", {"do": "bandwidth", "from": 0, "to": 1, "bytes_per_s": 1000})
    put(asker, "/v1/links", {"do": "cut", "from": "clients", "to": 2, "reset": True})
    assert ways(asker) == {(0, 1), (1, 0), ("clients", 2)}
    (both,) = (each for each in asker.get("/v1/links")["links"] if (each["from"], each["to"]) == (0, 1))
    assert (both["is_paused"], both["bytes_per_s"]) == (True, 1000)

    put(asker, "/v1/links", {"do": "heal", "ends": [0, 1]})
    assert ways(asker) == {("clients", 2)}
    put(asker, "/v1/links", {"do": "isolate", "node": 1})
    assert ways(asker) >= {(1, 0), (0, 1), (1, "store"), ("store", 1)}
    asker.post("/v1/reset", {})
    assert ways(asker) == set()
    kinds = [each["kind"] for each in asker.ask("GET", "/v1/events?wait_ms=0").lines]
    assert [each for each in kinds if each.startswith("link_")][-5:] == [
        "link_pause",
        "link_bandwidth",
        "link_cut",
        "link_heal",
        "link_isolate",
    ]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "do: it is missing: one of cut, delay, bandwidth, pause, isolate, heal"),
        ({"do": "cup"}, 'do: "cup", expected one of cut, delay, bandwidth, pause, isolate, heal'),
        ([], "[], expected an object"),
        ({"do": "cut", "from": 1}, "to: it is missing: from and to, or between for both ways"),
        ({"do": "cut", "to": 1}, "from: it is missing: from and to, or between for both ways"),
        ({"do": "cut", "from": 1, "to": 7}, "to: there is no broker 7, only 0, 1, 2"),
        ({"do": "cut", "from": "shop", "to": 1}, "from: there is no broker 'shop', only 0, 1, 2"),
        ({"do": "cut", "from": True, "to": 1}, "from: true, expected a whole number of 64 bits or a text"),
        ({"do": "cut", "from": 0, "to": 1, "between": [0, 1]}, "between: it is for both ways, in the place of"),
        ({"do": "cut", "between": [0]}, "between: expected the two ends of a link"),
        ({"do": "cut", "from": 0, "to": 1, "ms": 5}, "ms: there is no such field"),
        ({"do": "cut", "from": 0, "to": "clients"}, "the way to clients is not held here"),
        ({"do": "cut", "from": 0, "to": 0}, "there is no link from 0 to 0"),
        ({"do": "delay", "from": 0, "to": 1}, "ms: it is missing"),
        ({"do": "delay", "from": 0, "to": 1, "ms": -1}, "ms: -1, expected 0 to 60000"),
        ({"do": "delay", "from": 0, "to": 1, "ms": "1"}, 'ms: "1", expected a number'),
        ({"do": "bandwidth", "from": 0, "to": 1, "bytes_per_s": 0}, "bytes_per_s: 0, expected 1 to"),
        ({"do": "bandwidth", "from": 0, "to": "store", "bytes_per_s": 9}, "a link to the store has no bandwidth"),
        ({"do": "isolate", "node": 7}, "node: there is no broker 7"),
        ({"do": "heal", "ends": [0, 1, 2]}, "ends: a link has two of them"),
    ],
)
def test_link_that_cannot_be_is_refused(cluster: Replicated, asker: Asker, body: Any, says: str) -> None:
    refused = asker.ask("PUT", "/v1/links", body)

    assert refused.problem[0] == 400
    assert refused.json["detail"].startswith(says)
    assert ways(asker) == set()


def test_full_disk_of_the_leader_moves_the_partition(cluster: Replicated, asker: Asker) -> None:
    shown = put(asker, f"/v1/disks/{cluster.leader}", {"do": "full"})
    assert (shown["node"], shown["room_bytes"], shown["is_stalled"]) == (cluster.leader, 0, False)

    assert outcome(cluster.kafka, b"no room") == "KAFKA_STORAGE_ERROR"
    assert cluster.wait_for_another_leader() in cluster.followers

    put(asker, f"/v1/disks/{cluster.leader}", {"do": "heal"})
    assert asker.get("/v1/disks")["disks"][cluster.leader]["room_bytes"] is None


def test_failed_sync_takes_the_log_offline(cluster: Replicated, asker: Asker) -> None:
    cluster.kafka.create_topic("synced", 1, configs={"flush.messages": 1})
    cluster.kafka.partition("synced", 0).move_leader(to=cluster.leader)
    body = {"do": "fail", "operation": "fsync", "match": "synced-0/*"}
    failures = put(asker, f"/v1/disks/{cluster.leader}", body)["failures"]
    assert failures == [{"operation": "fsync", "match": "synced-0/*", "left": 1}]

    assert outcome(cluster.kafka, topic="synced") == "KAFKA_STORAGE_ERROR"

    (failure,) = asker.get(f"/v1/disks/{cluster.leader}")["failures"]
    assert failure["left"] == 0


def test_stalled_and_slow_disks_answer_when_they_are_healed(cluster: Replicated, asker: Asker) -> None:
    cluster.kafka.create_topic("synced", 1, configs={"flush.messages": 1})
    for node_id in cluster.kafka.brokers:
        assert put(asker, f"/v1/disks/{node_id}", {"do": "slow_fsync", "ms": 5})["fsync_ms"] == 5
        assert put(asker, f"/v1/disks/{node_id}", {"do": "stall"})["is_stalled"]
        assert not put(asker, f"/v1/disks/{node_id}", {"do": "heal"})["is_stalled"]

    assert outcome(cluster.kafka, topic="synced") == "ok"


def test_damaged_batch_is_refused(cluster: Replicated, asker: Asker) -> None:
    path = f"/v1/disks/{cluster.leader}"
    put(asker, path, {"do": "corrupt", "topic": "orders", "partition": 0, "offset": 0})
    assert asker.ask("GET", "/v1/topics/orders/records").status >= 400

    for body, problem in (
        ({"topic": "orders", "partition": 0, "offset": 9}, (409, "wrong-disk")),
        ({"topic": "orders", "partition": 7, "offset": 0}, (404, "kafka-error")),
        ({"topic": "bills", "partition": 0, "offset": 0}, (404, "kafka-error")),
        ({"topic": "orders", "partition": -1, "offset": 0}, (404, "kafka-error")),
        ({"topic": "orders", "partition": 0, "offset": -1}, (400, "wrong-value")),
    ):
        assert asker.ask("PUT", path, {"do": "corrupt", **body}).problem == problem, body


def test_end_of_a_log_is_torn_off_a_killed_broker(cluster: Replicated, asker: Asker, tmp_path: Path) -> None:
    torn = cluster.followers[0]
    path = f"/v1/disks/{torn}"
    refused = asker.ask("PUT", path, {"do": "tear_tail", "bytes": 5})
    assert (refused.problem, "runs" in refused.json["detail"]) == ((409, "wrong-disk"), True)
    asker.post(f"/v1/brokers/{torn}/kill", {})
    # Nothing beside the directories of its data is reached.
    for pattern in ("../*", "/*", "..", str(tmp_path)):
        assert asker.ask("PUT", path, {"do": "tear_tail", "bytes": 5, "match": pattern}).problem == (409, "wrong-disk")
    put(asker, path, {"do": "tear_tail", "bytes": 5, "match": "orders-*"})

    asker.post(f"/v1/brokers/{torn}/restart", {})
    asker.post("/v1/wait", {"for": "topic-in-sync", "topic": "orders", "within_ms": 20_000})
    assert cluster.values() == [b"first"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"do": "melt"}, "do"),
        ({"do": "full", "after_bytes": -1}, "after_bytes"),
        ({"do": "slow_fsync"}, "ms"),
        ({"do": "slow_fsync", "ms": 60_001}, "ms"),
        ({"do": "fail", "operation": "sync"}, "operation"),
        ({"do": "fail", "operation": "read", "times": 0}, "times"),
        ({"do": "fail", "operation": "read", "match": ""}, "match"),
        ({"do": "fail", "operation": "read", "match": "*" * 201}, "match"),
        ({"do": "tear_tail", "bytes": 0}, "bytes"),
        ({"do": "stall", "ms": 5}, "ms"),
    ],
)
def test_disk_fault_that_cannot_be_is_refused(cluster: Replicated, asker: Asker, body: Any, field: str) -> None:
    refused = asker.ask("PUT", "/v1/disks/0", body)

    assert (refused.problem, refused.json["field"]) == ((400, "wrong-value"), field)
    assert asker.ask("PUT", "/v1/disks/7", {"do": "heal"}).problem == (404, "no-such-broker")


def test_failures_of_a_disk_are_bounded(cluster: Replicated, asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_routes, "FAILURES_MAX", 2)
    body = {"do": "fail", "operation": "read", "match": "none", "times": None}
    put(asker, "/v1/disks/0", body)
    assert [each["left"] for each in put(asker, "/v1/disks/0", body)["failures"]] == [None, None]

    assert asker.ask("PUT", "/v1/disks/0", body).problem == (409, "wrong-disk")
    assert put(asker, "/v1/disks/0", {"do": "heal"})["failures"] == []
    put(asker, "/v1/disks/0", body)


def test_brokers_of_another_process_are_broken_and_captured(tmp_path: Path) -> None:
    arguments = ("--brokers", "3", "--control", "127.0.0.1:0", "--control-file", str(tmp_path / "control.json"))
    serving = TestingServe(tmp_path, *arguments, "--set", "replica.lag.time.max.ms=500")
    try:
        asker = asker_of(serving)
        asker.post("/v1/wire/start", {})
        topic = {"name": "orders", "partitions": 1, "replication_factor": 3, "configs": {"min.insync.replicas": 2}}
        leader = asker.post("/v1/topics", topic)["partitions"][0]["leader"]
        asker.post("/v1/wait", {"for": "topic-in-sync", "topic": "orders"})
        for follower in {0, 1, 2} - {leader}:
            put(asker, "/v1/links", {"do": "cut", "from": leader, "to": follower})
        assert len(ways(asker)) == 2
        assert produced(serving.bootstrap, b"alone", "acks=1") == "ok"
        wait_for(
            lambda: len(asker.get("/v1/topics/orders")["partitions"][0]["isr"]) == 1,
            20,
            "the followers that are cut off stay in the ISR",
        )
        assert produced(serving.bootstrap, b"refused") == "NOT_ENOUGH_REPLICAS"

        put(asker, "/v1/links", {"do": "heal"})
        asker.post("/v1/wait", {"for": "topic-in-sync", "topic": "orders", "within_ms": 20_000})
        put(asker, f"/v1/disks/{leader}", {"do": "stall"})
        put(asker, f"/v1/disks/{leader}", {"do": "heal"})
        assert produced(serving.bootstrap, b"taken") == "ok"
        asker.post("/v1/wire/stop", {})
        file = tmp_path / "orders.owire"
        file.write_bytes(asker.ask("GET", "/v1/wire/capture").body)
        counted = asker.get("/v1/coverage")
        assert serving.stop() == 0
    finally:
        serving.process.kill()
        serving.process.wait()

    assert apis_in(file).count("Produce") == 3
    assert counted["errors"]["Produce NOT_ENOUGH_REPLICAS"] == 1
    assert not list((tmp_path / "data").glob("*capture*"))


def produced(bootstrap: str, value: bytes, *settings: str) -> str:
    """What a producer that does not try again is answered for one record: an error's name, or ok."""
    answers: list[str] = []
    given = dict(each.split("=") for each in settings)
    producer = Producer({"bootstrap.servers": bootstrap, "retries": 0, "log_level": 0, **given})
    producer.produce("orders", value, on_delivery=lambda error, _: answers.append(error.name() if error else "ok"))
    assert producer.flush(30) == 0
    return answers[0]
