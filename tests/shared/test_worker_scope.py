"""Control addresses of two workers at one broker: what is one's is not the other's."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.testing.audit.findings import FindingKind
from ottla.testing.remote.asking import RemoteControl
from ottla.testing.remote.handle import RemoteKafka
from ottla.testing.shared.shared_broker import SharedBroker
from tests.control.asking import Asker
from tests.shared.test_same_handle import OPTIONS


@pytest.fixture(scope="module")
def broker() -> Iterator[SharedBroker]:
    broker = SharedBroker(OPTIONS, None)
    yield broker
    broker.close()


class Worker:
    """With a test that runs."""

    def __init__(self, broker: SharedBroker, worker_id: str) -> None:
        given = broker.open_for(worker_id)
        self.control = RemoteControl(given["url"], given["token"], prefix=given["prefix"], deadline_s=20)
        self.kafka = RemoteKafka(self.control)
        self.asker = Asker(given["url"], given["token"])
        self.begin()

    def begin(self) -> None:
        self.asker.post("/v1/tests", {"name": "test_it", "phase": "begin", "audit": "errors"})

    def end(self, **more: Any) -> Any:
        return self.asker.post("/v1/tests", {"name": "test_it", "phase": "end", "clear_faults": True, **more})

    def send_twice(self, topic: str, client_id: str = "rdkafka") -> None:
        """Without idempotence, and with an answer that is lost."""
        rule = self.kafka.fault(api="Produce", topic=topic, do={"disconnect": "after"}, optional=True)
        config = {"bootstrap.servers": self.kafka.bootstrap, "client.id": client_id, "log_level": 0}
        producer = Producer(config | {"retry.backoff.ms": 10, "enable.idempotence": False})
        producer.produce(topic, b"book")
        assert producer.flush(20) == 0
        rule.wait(hits=1)


@pytest.fixture
def workers(broker: SharedBroker) -> Iterator[tuple[Worker, Worker]]:
    """Of which one's name begins as the other's does."""
    both = Worker(broker, "gw1"), Worker(broker, "gw10")
    yield both
    for each in both:
        each.end()
        for topic in each.kafka.topics:
            each.kafka.topic(topic).delete()


def test_topics_and_rules_of_another_worker_are_not_seen(workers: tuple[Worker, Worker]) -> None:
    one, ten = workers
    one.kafka.create_topic("gw1-orders", partitions=1)
    ten.kafka.create_topic("gw10-orders", partitions=1)
    rule = one.kafka.fault(topic="gw1-orders", api="Produce", id="mine", do={"delay": 1}, optional=True)

    assert (one.kafka.topics, ten.kafka.topics) == (["gw1-orders"], ["gw10-orders"])
    assert ([each.id for each in one.kafka.faults], len(ten.kafka.faults)) == (["mine"], 0)
    assert ten.asker.ask("DELETE", "/v1/faults/gw1-mine").problem == (404, "no-such-fault")
    assert ten.asker.ask("DELETE", "/v1/topics/gw1-orders").problem == (403, "shared")
    assert ten.kafka.topic("gw1-orders").exists
    assert rule.rule.id == "mine"


def test_end_of_a_test_removes_its_own_rules_alone(workers: tuple[Worker, Worker]) -> None:
    one, ten = workers
    for each in workers:
        name = f"{each.kafka.prefix}orders"
        each.kafka.create_topic(name, partitions=1)
        each.kafka.fault(topic=name, api="Produce", do={"error": "INVALID_RECORD"})

    ended = one.end()

    (unused,) = ended["unused_faults"]
    assert unused.startswith("'gw1-fault-1' (")
    assert (len(one.kafka.faults), [each.id for each in ten.kafka.faults]) == (0, ["fault-1"])
    assert one.end()["unused_faults"] == []


def test_findings_are_of_the_worker_whose_names_they_have(workers: tuple[Worker, Worker]) -> None:
    """Though its client has the id of the other's, and connected before it named a topic."""
    one, ten = workers
    for each in workers:
        each.kafka.create_topic(f"{each.kafka.prefix}orders", partitions=1)
    one.send_twice("gw1-orders")

    (found,) = one.kafka.audit()
    assert (found.kind, found.where, found.explained_by) == (FindingKind.P1, "gw1-orders-0", "fault rule 'gw1-fault-1'")
    assert ten.kafka.audit() == []
    assert [each["kind"] for each in one.end()["findings"]] == ["P1"]

    one.begin()
    assert one.kafka.audit() == []


def test_client_id_makes_a_connection_a_workers(workers: tuple[Worker, Worker]) -> None:
    one, ten = workers
    config = {"bootstrap.servers": one.kafka.bootstrap, "client.id": "gw10-idle", "log_level": 0}
    producer = Producer(config)
    producer.produce("anyones", b"book")
    assert producer.flush(20) == 0

    assert {each.client_id for each in ten.kafka.connections} == {"gw10-idle"}
    assert {each.opened_in for each in ten.kafka.connections} == {"test_it"}
    assert one.kafka.connections == []
    assert [each.startswith("producer gw10-idle#") for each in ten.end()["leaks"]] == [True]


def test_requests_of_another_worker_are_in_no_report(workers: tuple[Worker, Worker]) -> None:
    one, ten = workers
    one.kafka.create_topic("gw1-orders", partitions=1)
    one.send_twice("gw1-orders")

    assert "gw1-orders" in str(one.asker.get("/v1/report"))
    assert "gw1-orders" not in str(ten.asker.get("/v1/report"))
    assert "gw1-orders" not in str(ten.asker.get("/v1/wire"))


def test_token_of_another_worker_is_refused(workers: tuple[Worker, Worker]) -> None:
    one, ten = workers
    stranger = Asker(one.asker.host + f":{one.asker.port}", ten.asker.token)

    assert stranger.ask("GET", "/v1").problem == (401, "wrong-token")
