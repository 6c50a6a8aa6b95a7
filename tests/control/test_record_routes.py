"""Records over HTTP: as text, by isolation, and waited for, as they come and as consumers get them."""

import threading
import time

from confluent_kafka import Producer

from ottla.testing.testbed import Testbed
from tests.control.asking import Asker, produce


def test_records_are_text_where_they_can_be(asker: Asker, bed: Testbed) -> None:
    produce(bed, "orders", "büch".encode(), b"\xff\x00")
    headers = [{"name": "trace", "value": "1"}, {"name": "none", "value": None}]
    asker.post("/v1/topics/orders/records", {"records": [{"key": "k", "value": None, "headers": headers}]})

    records = asker.get("/v1/topics/orders/records?start=0")["records"]

    assert [each["value"] for each in records] == [{"text": "büch"}, {"base64": "/wA="}, None]
    assert records[2]["headers"] == [{"name": "trace", "value": {"text": "1"}}, {"name": "none", "value": None}]
    assert asker.ask("GET", "/v1/topics/orders/records?limit=2").problem == (409, "wrong-state")
    assert asker.ask("GET", "/v1/topics/orders/records?partition=9").problem == (404, "no-such-partition")
    assert asker.ask("GET", "/v1/topics/orders/records?first=9").problem == (400, "wrong-value")


def test_records_are_waited_for(asker: Asker, bed: Testbed) -> None:
    threading.Timer(0.2, produce, (bed, "orders", b"late")).start()

    records = asker.get("/v1/topics/orders/records?wait_ms=20000")["records"]

    assert [each["value"] for each in records] == [{"text": "late"}]
    assert asker.get("/v1/topics/orders/records?start=1&wait_ms=50") == {"records": []}


def test_markers_are_no_records_that_are_waited_for(asker: Asker, bed: Testbed) -> None:
    produce(bed, "orders", b"a")
    producer = Producer({"bootstrap.servers": bed.hosted.bootstrap, "transactional.id": "x", "log_level": 0})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("orders", b"b")
    producer.flush(20)
    producer.abort_transaction(20)
    began = time.monotonic()

    assert asker.get("/v1/topics/orders/records?start=1&wait_ms=300") == {"records": []}
    assert time.monotonic() - began >= 0.3, "the broker waits as long as it is asked to"
    assert [each["offset"] for each in asker.get("/v1/topics/orders/records?isolation=log&stop=2")["records"]] == [0, 1]


def test_consumption_is_waited_for_by_offset_or_count(asker: Asker, bed: Testbed) -> None:
    produce(bed, "orders", b"a")
    wanted = {"for": "topic-consumed", "topic": "orders", "within_ms": 10}

    late = asker.ask("POST", "/v1/wait", {**wanted, "offsets": {"0": 1}})

    assert late.problem[0] == 408
    assert late.json["missing"] == ["orders-0: delivered up to 0, end 1; 1 wanted"]
    assert asker.ask("POST", "/v1/wait", {**wanted, "offsets": {"0": 0}}).status == 200
    both = asker.ask("POST", "/v1/wait", {**wanted, "offsets": {"0": 1}, "count": 1})
    assert (both.problem, both.json["field"]) == ((400, "wrong-value"), "offsets")
