"""Captures and coverage over HTTP."""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import coverage
from ottla.testing.control import served_capture
from ottla.testing.handle import Kafka
from ottla.testing.testbed import CAPTURE, Testbed
from ottla.testing.wire_capture import recording
from ottla.testing.wire_capture.file_format import CaptureFile, RecordKind
from tests.control.asking import Asker, opened_control, produce
from tests.kit.members import consumer
from tests.waiting import wait_for
from tests.wire.captures import apis_in, records_of

WAITED_S = 30


@pytest.fixture
def asker(bed: Testbed) -> Iterator[Asker]:
    """Of a control address that has captured and counted nothing yet."""
    bed.wire.coverage = None
    with opened_control(bed) as control:
        yield Asker(control.url)


def fetched(asker: Asker, directory: Path) -> Path:
    answer = asker.ask("GET", "/v1/wire/capture")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/octet-stream"), answer
    path = directory / "fetched.owire"
    path.write_bytes(answer.body)
    return path


def test_capture_is_begun_ended_and_fetched(asker: Asker, bed: Testbed, tmp_path: Path) -> None:
    assert asker.ask("GET", "/v1/wire/capture").problem == (404, "no-such-capture")
    assert asker.ask("POST", "/v1/wire/stop", {}).problem == (404, "no-such-capture")
    assert asker.post("/v1/wire/mark", {"text": "nothing is captured"}) == {"is_captured": False}
    begun = asker.post("/v1/wire/start", {})
    assert (begun["is_over"], begun["ended_early"]) == (False, None)
    assert asker.ask("POST", "/v1/wire/start", {}).problem == (409, "wrong-state")
    assert asker.ask("GET", "/v1/wire/capture").problem == (409, "wrong-state")

    asker.post("/v1/tests", {"name": "test_orders", "phase": "begin"})
    assert asker.post("/v1/wire/mark", {"text": "the order comes"}) == {"is_captured": True}
    produce(bed, "orders", b"book")
    over = asker.post("/v1/wire/stop", {})
    produce(bed, "orders", b"pens")

    path = fetched(asker, tmp_path)
    assert (over["is_over"], over["bytes"], over["ended_early"]) == (True, path.stat().st_size, None)
    records = records_of(path)
    assert [each.fields() for each in records if each.kind == RecordKind.MARK] == [
        {"test": "test_orders"},
        {"text": "the order comes"},
    ]
    assert records[-1].fields() == {"cause": "stopped"}
    assert apis_in(path).count("Produce") == 1
    with CaptureFile(path) as file:
        assert file.header["secrets"] == "left out"
    assert asker.post("/v1/wire/stop", {}) == over


def test_next_capture_takes_the_place_of_the_one_before(asker: Asker, bed: Testbed, tmp_path: Path) -> None:
    for topic in ("orders", "bills"):
        asker.post("/v1/wire/start", {})
        produce(bed, topic, b"book")
        asker.post("/v1/reset", {})
        asker.post("/v1/wire/stop", {})

    data = fetched(asker, tmp_path).read_bytes()

    assert (b"bills" in data, b"orders" in data) == (True, False)


def test_no_file_is_left_of_a_capture(bed: Testbed) -> None:
    with opened_control(bed) as control:
        asker = Asker(control.url)
        asker.post("/v1/wire/start", {})
        produce(bed, "orders", b"book")
        assert not bed.capture_path.exists()
        # What writes it, and what it is read by.
        assert open_captures() == 2

    assert bed.hosted.capture_host.capture is None
    assert open_captures() == 0
    with opened_control(bed) as control:
        assert Asker(control.url).ask("GET", "/v1/wire/capture").problem == (404, "no-such-capture")


def open_captures() -> int:
    """Descriptors of files of captures."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        # The one by which they are listed is gone.
        with suppress(OSError):
            found += CAPTURE in str(each.readlink())
    return found


def test_large_capture_comes_whole(asker: Asker, bed: Testbed, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(served_capture, "PIECE_BYTES", 1000)
    asker.post("/v1/wire/start", {})
    produce(bed, "orders", *[os.urandom(100_000) for _ in range(30)])
    over = asker.post("/v1/wire/stop", {})

    assert over["bytes"] > 3_000_000
    assert fetched(asker, tmp_path).stat().st_size == over["bytes"]
    assert apis_in(fetched(asker, tmp_path))[-1] == "Produce"


def test_client_that_goes_while_it_fetches_holds_no_file(asker: Asker, bed: Testbed) -> None:
    asker.post("/v1/wire/start", {})
    produce(bed, "orders", *[os.urandom(100_000) for _ in range(100)])
    asker.post("/v1/wire/stop", {})
    request = f"GET /v1/wire/capture HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {asker.token}\r\n\r\n"
    with socket.create_connection((asker.host, asker.port), timeout=30) as asking:
        asking.sendall(request.encode())
        assert asking.recv(12) == b"HTTP/1.1 200"
        assert open_captures() == 2

    wait_for(lambda: open_captures() == 1, WAITED_S, "a file is held")


def test_capture_that_is_too_large_ends_and_says_so(
    asker: Asker, bed: Testbed, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(served_capture, "CAPTURE_BYTES_MAX", 1 << 20)
    asker.post("/v1/wire/start", {})
    produce(bed, "orders", *[bytes(100_000) for _ in range(30)])
    over = asker.post("/v1/wire/stop", {})

    assert over["ended_early"] == "it would have more than 1 MiB"
    assert over["bytes"] < 1 << 20
    assert records_of(fetched(asker, tmp_path))[-1].fields() == {"cause": "it would have more than 1 MiB"}


def test_capture_of_another_is_not_ended(asker: Asker, bed: Testbed, tmp_path: Path) -> None:
    """That of `ottla run --capture`."""
    other = bed.call(recording.begin_capture, bed, tmp_path / "run.owire", False)
    refused = asker.ask("POST", "/v1/wire/start", {})
    assert (refused.problem, "is not over: there is one at a time" in refused.json["detail"]) == (
        (409, "wrong-state"),
        True,
    )
    assert asker.ask("POST", "/v1/wire/stop", {}).problem == (404, "no-such-capture")
    assert asker.post("/v1/wire/mark", {"text": "a"}) == {"is_captured": True}
    bed.call(recording.end_capture, bed, other)
    other.wait()
    assert other.ended is None


@pytest.mark.parametrize("text", ["", "x" * 1001])
def test_marks_are_bounded(asker: Asker, text: str) -> None:
    refused = asker.ask("POST", "/v1/wire/mark", {"text": text})

    assert (refused.problem, refused.json["field"]) == ((400, "wrong-value"), "text")


# Coverage.


def test_coverage_says_what_was_used_and_what_never(asker: Asker, bed: Testbed) -> None:
    asker.post("/v1/faults", "api=Produce,topic=orders,error=NOT_LEADER_OR_FOLLOWER,times=2")
    produce(bed, "orders", b"book")
    for _ in range(2):
        counted = asker.get("/v1/coverage")
        assert counted["injected"] == {"Produce NOT_LEADER_OR_FOLLOWER": 2}
        assert counted["errors"]["Produce NOT_LEADER_OR_FOLLOWER"] == 2

    assert any(key.startswith("Produce v") and "rdkafka" in key for key in counted["apis"])
    assert "NOT_LEADER_OR_FOLLOWER" not in counted["never"]["Produce"]
    assert "CORRUPT_MESSAGE" in counted["never"]["Produce"]
    assert len(counted["text"]) == 3
    asker.post("/v1/reset", {})
    assert asker.get("/v1/coverage")["injected"] == {"Produce NOT_LEADER_OR_FOLLOWER": 2}


def test_coverage_has_what_groups_went_through(asker: Asker, bed: Testbed) -> None:
    bed.run(bed.writer.create_topic("orders", 1, None, {}))
    bed.run(bed.writer.produce("orders", [b"book"]))
    with consumer(Kafka(bed), "shop", "orders") as made:
        assert made.poll(20) is not None

    counted = asker.get("/v1/coverage")

    assert {"Empty to PreparingRebalance", "CompletingRebalance to Stable"} <= set(counted["transitions"])
    assert "member joined" in counted["causes"]


def test_coverage_is_forgotten_with_the_hits_until_then(asker: Asker, bed: Testbed) -> None:
    asker.post("/v1/faults", "api=Produce,topic=orders,error=NOT_LEADER_OR_FOLLOWER,times=1")
    produce(bed, "orders", b"book")

    forgotten = asker.ask("DELETE", "/v1/coverage")

    assert (forgotten.status, forgotten.json["apis"], forgotten.json["injected"]) == (200, {}, {})
    produce(bed, "orders", b"book")
    counted = asker.get("/v1/coverage")
    assert (counted["injected"], "Produce" in counted["never"]) == ({}, True)


def test_names_of_client_software_are_bounded(asker: Asker, bed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "COUNTED_MAX", 0)
    produce(bed, "orders", b"book")

    assert {key.rpartition(" by ")[2] for key in asker.get("/v1/coverage")["apis"]} == {"others"}
