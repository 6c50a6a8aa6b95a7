"""The life of a capture: what is in it, what a broker is without one, and how it ends."""

import asyncio
import json
import stat
import threading
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import ottla.testing
from ottla.broker.server.connection import Connection
from ottla.testing.handle import Kafka
from ottla.testing.wire_capture.capture import Capture
from ottla.testing.wire_capture.connections import CapturedConnection, CaptureHost
from ottla.testing.wire_capture.exchanges import NotKafka, Opened
from ottla.testing.wire_capture.file_format import PAYLOAD_BYTES_MAX, CaptureError, CaptureFile, RecordKind
from ottla.testing.wire_capture.recording import CaptureWarning
from tests.kit.members import consumer, polled, send
from tests.waiting import wait_for
from tests.wire.captures import apis_in, connections_of, exchanges_in, records_of, said_in, stream

BEGUN_WITHIN_S = 20


async def talk(kafka: Kafka, *pieces: bytes) -> bytes:
    """What a client gets that sends these bytes, and then no more."""
    host, _, port = kafka.bootstrap.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    writer.write_eof()
    received = await reader.read()
    writer.close()
    return received


API_VERSIONS = bytes.fromhex("0000000c 0012 0000 00000007 0002 6b6b")


async def test_capture_has_every_byte_of_both_directions(kafka: Kafka, tmp_path: Path) -> None:
    with kafka.wire.record(tmp_path / "a.owire") as capture:
        received = await talk(kafka, API_VERSIONS[:3], API_VERSIONS[3:], API_VERSIONS * 2)

    records = records_of(capture.path)
    assert stream(records, RecordKind.RECEIVED, 1) == API_VERSIONS * 3
    assert stream(records, RecordKind.SENT, 1) == received
    assert [each.kind for each in records if each.kind in (RecordKind.OPENED, RecordKind.CLOSED)] == [
        RecordKind.OPENED,
        RecordKind.CLOSED,
    ]
    assert records[-1].fields() == {"cause": "stopped"}
    assert all(one.machine_ns <= other.machine_ns for one, other in pairwise(records))


async def test_what_is_no_frame_is_captured_too(kafka: Kafka, tmp_path: Path) -> None:
    with kafka.wire.record(tmp_path / "a.owire") as capture:
        await talk(kafka, b"GET / HTTP/1.1\r\n\r\n")

    records = records_of(capture.path)
    assert stream(records, RecordKind.RECEIVED, 1) == b"GET / HTTP/1.1\r\n\r\n"
    (closed,) = (each.fields() for each in records if each.kind == RecordKind.CLOSED)
    assert closed["cause"] == "not kafka"
    assert "speaks HTTP" in closed["why"]
    assert [each.start[:3] for each in said_in(capture.path) if isinstance(each, NotKafka)] == [b"GET"]


def test_header_says_where_it_is_from(kafka: Kafka, tmp_path: Path) -> None:
    with kafka.wire.record(tmp_path / "a.owire") as capture:
        pass

    with CaptureFile(capture.path) as file:
        assert file.header["cluster_id"] == kafka.cluster_id
        assert file.header["nodes"] == kafka.node_ids
        assert file.header["secrets"] == "left out"
    assert stat.S_IMODE(capture.path.stat().st_mode) == 0o600


def test_without_a_capture_connections_are_plain(kafka: Kafka, tmp_path: Path) -> None:
    producer = send(kafka, "orders", b"before")
    plain = {id(each.transport) for each in connections_of(kafka)}
    assert {type(each) for each in connections_of(kafka)} == {Connection}

    with kafka.wire.record(tmp_path / "a.owire"):
        assert all(isinstance(each, CapturedConnection) for each in connections_of(kafka))
        again(producer)
    assert {type(each) for each in connections_of(kafka)} == {Connection}
    assert {id(each.transport) for each in connections_of(kafka)} >= plain

    again(producer)
    assert [each.value for each in kafka.records("orders")] == [b"before", b"again", b"again"]


def again(producer: Producer) -> None:
    producer.produce("orders", b"again")
    assert producer.flush(20) == 0


def test_connections_that_are_open_already_are_captured(kafka: Kafka, tmp_path: Path) -> None:
    producer = send(kafka, "orders", b"before")

    with kafka.wire.record(tmp_path / "a.owire") as capture:
        again(producer)

    assert "Produce" in apis_in(capture.path)
    opened = [each.peer for each in said_in(capture.path) if isinstance(each, Opened)]
    assert all(each.is_open_before for each in opened)
    assert {each.software.partition(" ")[0] for each in opened} == {"confluent-kafka-python"}, opened


async def test_frame_that_has_begun_is_whole_in_the_capture(kafka: Kafka, tmp_path: Path) -> None:
    host, _, port = kafka.bootstrap.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(API_VERSIONS[:10])
    has_begun = partial(
        kafka._bed.call, lambda: any(each._kept for each in kafka._bed.hosted.first().server.connections)
    )
    await asyncio.to_thread(wait_for, has_begun, BEGUN_WITHIN_S, "the broker has not read the begin of the frame")

    with kafka.wire.record(tmp_path / "a.owire") as capture:
        writer.write(API_VERSIONS[10:])
        size = int.from_bytes(await reader.readexactly(4), "big")
        await reader.readexactly(size)

    writer.close()
    assert stream(records_of(capture.path), RecordKind.RECEIVED, 1) == API_VERSIONS
    assert [(each.api, each.error) for each in exchanges_in(capture.path)] == [("ApiVersions", 0)]


def test_facts_faults_and_marks_stand_in_it(kafka: Kafka, tmp_path: Path) -> None:
    kafka.create_topic("orders")
    with kafka.wire.record(tmp_path / "a.owire") as capture:
        kafka.wire.mark("the consumer comes")
        with kafka.fault(api="Produce", do={"error": "NOT_LEADER_OR_FOLLOWER"}, id="once"):
            send(kafka, "orders", b"a")
        with consumer(kafka, "shop", "orders", **{"auto.offset.reset": "earliest"}) as made:
            assert polled(made, 1) == [b"a"]

    records = records_of(capture.path)
    marks = [each.fields() for each in records if each.kind == RecordKind.MARK]
    facts = [each.fields() for each in records if each.kind == RecordKind.FACT]
    faults = [each.fields() for each in records if each.kind == RecordKind.FAULT]
    assert marks == [{"text": "the consumer comes"}]
    assert {each["to_state"] for each in facts if each["fact"] == "StateChanged"} >= {"PreparingRebalance", "Stable"}
    assert [(each["rule"], each["api"], each["action"]) for each in faults] == [("once", "Produce", "error")]
    errors = [each.error for each in exchanges_in(capture.path) if each.api == "Produce"]
    assert errors == [6, 0]


def test_hit_stands_between_its_request_and_its_answer(kafka: Kafka, tmp_path: Path) -> None:
    """Also where the rule is gone before the capture ends."""
    kafka.create_topic("orders")
    with kafka.wire.record(tmp_path / "a.owire") as capture:
        kafka.fault(api="Produce", id="once", times=1, do={"error": "NOT_LEADER_OR_FOLLOWER"})
        send(kafka, "orders", b"a")
        kafka.faults.clear()

    records = records_of(capture.path)
    ((at, hit),) = [(at, each) for at, each in enumerate(records) if each.kind == RecordKind.FAULT]
    request, answer = (records[position] for position in (at - 1, at + 1))
    assert (request.kind, answer.kind) == (RecordKind.RECEIVED, RecordKind.SENT)
    assert request.connection == answer.connection
    assert int.from_bytes(answer.payload[4:8]) == hit.fields()["correlation_id"]
    assert request.broker_ms <= hit.broker_ms < request.broker_ms + 60_000, "the time of the day, as that of the others"


def test_only_one_capture_at_a_time(kafka: Kafka, tmp_path: Path) -> None:
    with (
        kafka.wire.record(tmp_path / "a.owire"),
        pytest.raises(CaptureError, match=r"a\.owire is not over: there is one at a time"),
    ):
        kafka.wire.record(tmp_path / "b.owire")
    with kafka.wire.record(tmp_path / "b.owire"):
        pass


@pytest.mark.parametrize(("name", "why"), [("none/a.owire", "it does not exist"), ("", "Is a directory")])
def test_path_that_cannot_be_written_is_refused(kafka: Kafka, tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(CaptureError) as refused:
        kafka.wire.record(tmp_path / name)

    assert str(refused.value) == f"cannot write the capture {tmp_path / name}: {why}"


def test_full_disk_ends_the_capture_and_not_the_broker(kafka: Kafka, tmp_path: Path) -> None:
    capture = kafka.wire.record(tmp_path / "a.owire")
    # The disk is full when it has begun.
    capture._capture._file.close()
    capture._capture._file = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115 - the capture closes it
    send(kafka, "orders", b"a")
    send(kafka, "orders", b"b")

    with pytest.warns(CaptureWarning, match=r"a\.owire ended early: no space is left on the device"):
        capture.stop()

    assert len(kafka.records("orders")) == 2
    assert {type(each) for each in connections_of(kafka)} <= {Connection}


def test_slow_disk_ends_the_capture_when_too_much_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_write = threading.Event()
    write_some = Capture._write_some
    monkeypatch.setattr(Capture, "_write_some", lambda self: may_write.wait(20) and write_some(self))
    ended: list[str | None] = []
    capture = Capture(tmp_path / "a.owire", {}, with_secrets=True, waiting_bytes_max=3 << 20)
    capture.on_end = lambda: ended.append(capture.ended)

    for _ in range(100):
        capture.note(RecordKind.SENT, 1, 0, bytes(1 << 20))
    may_write.set()
    capture.end()
    capture.wait()

    assert ended == [f"the capture {tmp_path / 'a.owire'} ended early: more than 3 MiB waited to be written"]
    records = records_of(capture.path)
    assert [each.kind for each in records] == [RecordKind.SENT] * 2 + [RecordKind.END]
    assert records[-1].fields()["cause"] == "more than 3 MiB waited to be written"


def test_end_does_not_wait_for_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in each test of a run with `--ottla-artifacts`."""
    monkeypatch.setattr("ottla.testing.wire_capture.capture.GATHER_S", 3600)
    capture = Capture(tmp_path / "a.owire", {}, with_secrets=True)
    capture.note(RecordKind.RECEIVED, 1, 0, b"bytes")
    wait_for(lambda: capture._is_awake, BEGUN_WITHIN_S, "the thread does not wake")

    capture.end()
    capture.wait()

    assert [each.kind for each in records_of(capture.path)] == [RecordKind.RECEIVED, RecordKind.END]


def test_long_payload_is_several_records(tmp_path: Path) -> None:
    payload = bytes(range(256)) * (PAYLOAD_BYTES_MAX // 100)
    capture = Capture(tmp_path / "a.owire", {}, with_secrets=True)
    capture.note(RecordKind.SENT, 3, 2, payload)
    capture.end()
    capture.wait()

    *records, _ = records_of(capture.path)
    assert b"".join(each.payload for each in records) == payload
    assert {(each.kind, each.broker_ms, each.connection) for each in records} == {(RecordKind.SENT, 2, 3)}
    assert max(len(each.payload) for each in records) == PAYLOAD_BYTES_MAX


def test_early_end_makes_connections_plain(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = kafka.wire.record(tmp_path / "a.owire")
    monkeypatch.setattr(capture._capture, "_waiting_bytes_max", -1)
    producer = send(kafka, "orders", b"a")

    assert {type(each) for each in connections_of(kafka)} == {Connection}
    again(producer)
    with pytest.warns(CaptureWarning, match="ended early"):
        capture.stop()
    assert [each.value for each in kafka.records("orders")] == [b"a", b"again"]


async def test_handle_of_coroutines_captures(tmp_path: Path) -> None:
    async with ottla.testing.broker() as kafka:
        async with kafka.wire.record(tmp_path / "a.owire") as capture:
            await kafka.wire.mark("here")
        second = await kafka.wire.record(tmp_path / "b.owire")
        await second.stop()

    assert (capture.ended_early, second.ended_early) == (None, None)
    assert [each.kind for each in records_of(tmp_path / "a.owire")] == [RecordKind.MARK, RecordKind.END]
    assert [each.kind for each in records_of(tmp_path / "b.owire")] == [RecordKind.END]


def test_brokers_that_stop_end_the_capture(tmp_path: Path) -> None:
    with ottla.testing.broker() as kafka:
        kafka.wire.record(tmp_path / "a.owire")
        send(kafka, "orders", b"a")

    assert records_of(tmp_path / "a.owire")[-1].fields() == {"cause": "stopped"}


def test_nothing_is_looked_up_for_a_plain_connection() -> None:
    """The host gives the class itself: what a broker calls without a capture is what it calls without the kit."""
    host = CaptureHost()
    given: list[Any] = []

    class Owner:
        def __getattr__(self, name: str) -> Any:
            given.append(name)
            raise LookupError

    with pytest.raises(LookupError):
        host.new_connection(Owner(), "L")  # type: ignore[arg-type]
    assert json.dumps(given) == '["inter_broker_listener"]'
    assert "buffer_updated" not in vars(Connection)["__slots__"]
