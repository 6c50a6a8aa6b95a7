"""Requests that take long are logged, but not those whose client has asked for the wait (docs/operators.md §17.3)."""

from types import SimpleNamespace
from typing import Any

from ottla.broker.config.server import ServerConfig
from ottla.broker.histogram import SUM_NS, Histogram
from ottla.broker.server.connection_interfaces import ClientIdentity
from ottla.broker.server.dispatch import Dispatcher, Route
from ottla.broker.server.request_times import RequestTimes
from ottla.security.authentication import ANONYMOUS, Principal
from tests.broker.wire import RecordingLog

MS = 1_000_000
ALICE = Principal("User", "alice")
PEER: Any = SimpleNamespace(
    peer_host="10.0.0.1",
    listener_name="PLAINTEXT",
    run_route=None,
    run_count=0,
    client=ClientIdentity("shop", "apache-kafka-java", "4.1.0"),
    principal=ALICE,
)


def times(slow_ms: int = 500, now_ns: int = 0) -> tuple[RequestTimes, RecordingLog]:
    log = RecordingLog()
    runtime: Any = SimpleNamespace(
        log=log,
        config=ServerConfig({"ottla.request.log.slow.ms": str(slow_ms)}),
        clock=SimpleNamespace(now_ns=lambda: now_ns),
    )
    return RequestTimes(runtime), log


def route(key: int, version: int = 4) -> Route:
    found = Dispatcher(lambda name: None).resolve(key << 16 | version)
    assert found is not None
    return found


def parked(key: int) -> Any:
    found = route(key)
    return SimpleNamespace(
        route=found,
        api_key=key,
        api_version=4,
        began_ns=0,
        connection=PEER,
        client_id="c",
        principal=ALICE,
        size_bytes=10,
        response_bytes=20,
    )


def test_event_counts_for_each_of_its_requests() -> None:
    counted, log = times()
    heartbeat, fetch = route(12), route(1)
    counted.runs += [(heartbeat, 3), (fetch, 2), (fetch, -1)]
    counted.count(2 * MS, PEER)

    assert (Histogram(heartbeat.direct).count, heartbeat.direct[SUM_NS]) == (3, 6 * MS)
    assert (Histogram(fetch.direct).count, fetch.direct[SUM_NS]) == (1, 2 * MS)
    assert counted.runs == []
    assert log.events == []


def test_slow_event_is_logged_with_its_apis_and_who_sent_it() -> None:
    counted, log = times()
    counted.runs += [(route(12), 3), (route(1), 1), (route(1), -1)]
    counted.count(700 * MS, PEER)

    ((event, fields),) = log.events
    assert event == "slow requests"
    assert fields["apis"] == ["Fetch v4", "Heartbeat v4"]
    assert (fields["duration_ms"], fields["requests"], fields["peer"]) == (700, 4, "10.0.0.1")
    assert (fields["client_id"], fields["principal"], fields["listener"]) == ("shop", "User:alice", "PLAINTEXT")
    assert (counted.slow_events, counted.slowest_event_ns) == (1, 700 * MS)


def test_last_run_of_a_slow_event_is_counted_in_its_line() -> None:
    counted, log = times()
    counted.runs += [(route(12), 3)]
    counted.count(700 * MS, SimpleNamespace(**{**vars(PEER), "run_route": route(1), "run_count": 2}))  # type: ignore[arg-type]

    ((_, fields),) = log.events
    assert (fields["apis"], fields["requests"]) == (["Fetch v4", "Heartbeat v4"], 5)


def test_who_has_not_logged_in_has_no_principal_in_the_log() -> None:
    counted, log = times(now_ns=700 * MS)
    request = parked(0)
    request.principal = ANONYMOUS
    counted.count_parked(request)

    ((_, fields),) = log.events
    assert fields["principal"] is None
    assert (fields["client_id"], fields["request_bytes"], fields["response_bytes"]) == ("c", 10, 20)


def test_slow_log_can_be_switched_off_or_moved() -> None:
    for slow_ms, lines in ((0, 0), (800, 0), (100, 1)):
        counted, log = times(slow_ms)
        counted.count(700 * MS, PEER)
        assert len(log.events) == lines


def test_parked_request_is_logged_unless_it_is_a_long_poll() -> None:
    for key, lines in ((1, 0), (11, 0), (14, 0), (0, 1), (19, 1)):
        counted, log = times(now_ns=700 * MS)
        request = parked(key)
        counted.count_parked(request)
        assert len(log.events) == lines
        assert request.route.parked.count == 1
