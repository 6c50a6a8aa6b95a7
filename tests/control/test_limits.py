"""What the control address refuses and bounds, while the broker serves its clients."""

import json
import re
import select
import socket
import threading

import pytest
from confluent_kafka import Producer

from ottla.testing.control.listener import CONNECTIONS_MAX, LIMITS, ControlListener
from ottla.testing.control.service import WAITING_MAX
from ottla.testing.testbed import Testbed
from tests.control.asking import TOKEN, Asker
from tests.waiting import wait_for

REQUEST = f"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
# How long a test waits for what has to come.
WAITED_S = 30
STRANGERS = (
    ({"Authorization": "Bearer wrong"}, (401, "wrong-token")),
    ({"Origin": "http://localhost:3000"}, (403, "foreign-origin")),
    ({"Host": "evil.example"}, (403, "foreign-host")),
    ({"Content-Type": "application/x-www-form-urlencoded"}, (415, "not-json")),
)


def received(asking: socket.socket) -> tuple[int, bytes]:
    """The status of one answer, and its body; 0 where the connection was closed without one."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = asking.recv(65536)
        if not piece:
            return 0, data
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += asking.recv(65536)
    return int(head.split()[1]), body


def waiting(bed: Testbed, control: ControlListener) -> int:
    router = bed.call(lambda: control._router)
    return 0 if router is None else router.service.waiting


def wait_until_waiting(bed: Testbed, control: ControlListener, count: int) -> None:
    wait_for(lambda: waiting(bed, control) == count, WAITED_S, lambda: f"{waiting(bed, control)} wait, {count} should")


@pytest.mark.parametrize(("headers", "problem"), STRANGERS)
def test_request_of_a_stranger_changes_nothing(asker: Asker, headers: dict[str, str], problem: tuple[int, str]) -> None:
    refused = asker.ask("POST", "/v1/topics", {"name": "orders"}, **headers)

    assert refused.problem == problem
    assert not [name for name in refused.headers if name.startswith("access-control")]
    assert asker.get("/v1/topics") == {"topics": []}


@pytest.mark.parametrize("mebibytes", [2, 8])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_body_of_more_than_a_mebibyte_is_refused(asker: Asker, mebibytes: int, is_chunked: bool) -> None:
    pieces = [b" " * 65536] * (mebibytes << 4)

    # http.client sends what it iterates over in chunks.
    refused = asker.ask("POST", "/v1/topics", pieces if is_chunked else b"".join(pieces))

    assert refused.problem == (413, "refused")


def test_body_of_a_mebibyte_is_read(asker: Asker) -> None:
    body = json.dumps({"name": "orders"}).encode()

    assert asker.ask("POST", "/v1/topics", body + b" " * (LIMITS.body_bytes_max - len(body))).status == 201


def test_body_that_waits_for_leave_gets_it_or_is_refused(asker: Asker) -> None:
    for length, expected in ((len('{"name": "orders"}'), b"HTTP/1.1 100"), (2 << 20, b"HTTP/1.1 413")):
        with socket.create_connection((asker.host, asker.port), timeout=30) as asking:
            head = REQUEST.replace(b"GET", b"POST").rstrip() + b"\r\nContent-Type: application/json\r\n"
            asking.sendall(head + f"Content-Length: {length}\r\nExpect: 100-continue\r\n\r\n".encode())
            assert asking.recv(65536).startswith(expected)


def test_wait_ends_when_its_caller_goes(asker: Asker, bed: Testbed, control: ControlListener) -> None:
    asking = asker.begin("/v1/wait", {"for": "topic-records", "topic": "orders", "count": 1, "within_ms": 60_000})
    wait_until_waiting(bed, control, 1)

    asking.close()

    wait_until_waiting(bed, control, 0)


def test_what_changes_something_is_done_though_its_caller_goes(asker: Asker) -> None:
    asker.begin("/v1/topics", {"name": "orders", "partitions": 50}).close()

    assert asker.post("/v1/wait", {"for": "topic-in-sync", "topic": "orders"})["topic"]["name"] == "orders"


def test_requests_behind_one_that_waits_are_answered_in_order(asker: Asker) -> None:
    with asker.begin("/v1/wait", {"for": "topic-records", "topic": "orders", "count": 1, "within_ms": 200}) as asking:
        asking.sendall(REQUEST + REQUEST)
        answers = b""
        while answers.count(b'{"topics": []}') < 2:
            answers += asking.recv(65536)

    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"408", b"200", b"200"]


def test_three_hundred_waits_are_bounded_and_the_broker_serves(
    asker: Asker, bed: Testbed, control: ControlListener
) -> None:
    asker.post("/v1/topics", {"name": "orders"})
    body = {"for": "topic-records", "topic": "orders", "count": 1, "within_ms": 60_000}
    callers = [asker.begin("/v1/wait", body) for _ in range(300)]
    wait_until_waiting(bed, control, WAITING_MAX)
    refused = []
    while len(refused) < 300 - WAITING_MAX:
        ready, _, _ = select.select(callers, [], [], 30)
        assert ready, f"{len(refused)} were refused"
        for each in ready:
            refused.append(received(each))
            callers.remove(each)
            each.close()

    # Others are served beside those that wait, clients of the broker first of all.
    assert asker.get("/v1/topics") == {"topics": ["orders"]}
    producer = Producer({"bootstrap.servers": bed.hosted.bootstrap})
    producer.produce("orders", b"a")
    assert producer.flush(20) == 0
    answers = [received(each)[0] for each in callers]
    for each in callers:
        each.close()

    assert {status for status, _ in refused} == {503}
    assert {json.loads(body)["type"].rpartition(":")[2] for _, body in refused} <= {
        "too-many-waits",
        "too-many-connections",
    }
    assert answers == [200] * WAITING_MAX


def test_connections_beyond_sixty_four_are_answered_503(asker: Asker, bed: Testbed, control: ControlListener) -> None:
    idle = [socket.create_connection((asker.host, asker.port), timeout=30) for _ in range(CONNECTIONS_MAX)]
    for each in idle:
        each.sendall(REQUEST)
        assert received(each)[0] == 200

    with socket.create_connection((asker.host, asker.port), timeout=30) as one_more:
        one_more.sendall(REQUEST)
        status, body = received(one_more)
    idle.pop().close()
    wait_for(lambda: bed.call(lambda: len(control._served)) < CONNECTIONS_MAX, WAITED_S, "no connection is closed")

    assert (status, json.loads(body)["type"]) == (503, "urn:ottla:problem:too-many-connections")
    assert asker.get("/v1/topics") == {"topics": []}
    for each in idle:
        each.close()


def test_changes_are_made_one_after_the_other(asker: Asker) -> None:
    statuses: list[int] = []

    def make(number: int) -> None:
        statuses.append(asker.ask("POST", "/v1/topics", {"name": f"t{number % 4}"}).status)
        statuses.append(asker.ask("POST", "/v1/reset", {}).status)

    threads = [threading.Thread(target=make, args=(number,)) for number in range(12)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)

    assert set(statuses) <= {200, 201, 409}
    assert asker.post("/v1/reset", {})["groups"] == 0
    assert asker.get("/v1/topics") == {"topics": []}
