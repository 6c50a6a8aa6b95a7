"""`ottla wire show --pcap`: what a capture has, as packets, and as tshark reads them (TK30)."""

import shutil
import struct
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.testing.handle import Kafka
from ottla.testing.wire_capture.file_format import CaptureRecord, RecordKind, build_header, build_json
from ottla.testing.wire_capture.pcap import ACK, FIN, KAFKA_PORT, PSH, RST, SEGMENT_BYTES, SYN, PcapBuilder
from tests.cli.runner import run
from tests.kit.members import consumer, polled, send
from tests.wire.captures import exchanges_in, records_of, stream
from tests.wire.test_file_format import block

PEER = "127.0.0.1:40000"
needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")


class Packet(NamedTuple):
    source: tuple[str, int]
    target: tuple[str, int]
    flags: int
    sequence: int
    acknowledged: int
    data: bytes
    at_ns: int
    comments: list[str]
    interface: int


def blocks(content: bytes) -> Iterator[tuple[int, bytes]]:
    while content:
        kind, size = struct.unpack_from("<II", content)
        assert content[size - 4 : size] == struct.pack("<I", size)
        assert size % 4 == 0
        yield kind, content[8 : size - 4]
        content = content[size:]


def options(content: bytes) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while content:
        code, size = struct.unpack_from("<HH", content)
        found.append((code, content[4 : 4 + size]))
        content = content[4 + size + -size % 4 :]
    assert not found or found[-1] == (0, b"")
    return found[:-1]


def words(data: bytes) -> int:
    """The sum that a checksum is made of (RFC 1071), word by word."""
    total = 0
    for high, low in zip(data[::2], [*data[1::2], 0], strict=False):
        total += high << 8 | low
        total = (total & 0xFFFF) + (total >> 16)
    return total


def packet(content: bytes) -> Packet:
    interface, high, low, size, _ = struct.unpack_from("<IIIII", content)
    ip, rest = content[20 : 20 + size], content[20 + size + -size % 4 :]
    if ip[0] >> 4 == 4:
        assert (words(ip[:20]), len(ip)) == (0xFFFF, struct.unpack_from(">H", ip, 2)[0])
        source, target, tcp = ip[12:16], ip[16:20], ip[20:]
    else:
        assert len(ip) - 40 == struct.unpack_from(">H", ip, 4)[0]
        source, target, tcp = ip[8:24], ip[24:40], ip[40:]
    assert words(source + target + struct.pack(">II", 6, len(tcp)) + tcp) == 0xFFFF
    ports, (sequence, acknowledged, size, flags) = struct.unpack_from(">HH", tcp), struct.unpack_from(">IIBB", tcp, 4)
    ends = [(str(ip_address(address)), port) for address, port in zip((source, target), ports, strict=True)]
    comments = [value.decode() for code, value in options(rest) if code == 1]
    data = tcp[size >> 2 :]
    return Packet(*ends, flags, sequence, acknowledged, data, high << 32 | low, comments, interface)


def packets(content: bytes) -> list[Packet]:
    return [packet(each) for kind, each in blocks(content) if kind == 6]


def built(*records: CaptureRecord, connections: frozenset[int] | None = None) -> list[Packet]:
    builder = PcapBuilder(connections)
    return packets(builder.header({"seed": 7}) + b"".join(builder.blocks(records)))


def record(kind: RecordKind, payload: bytes | dict[str, Any], connection: int = 1, at_ns: int = 5) -> CaptureRecord:
    data = payload if isinstance(payload, bytes) else build_json(payload)
    return CaptureRecord(kind, at_ns, 6, connection, data)


def opened(connection: int = 1, **fields: Any) -> CaptureRecord:
    given = {"node": 2, "listener": "PLAINTEXT", "peer": PEER, "open_before": False, **fields}
    return record(RecordKind.OPENED, given, connection)


@pytest.fixture
def shop(kafka: Kafka, tmp_path: Path) -> Path:
    """A producer, and a consumer of a group."""
    kafka.create_topic("orders")
    with kafka.wire.record(tmp_path / "shop.owire") as capture:
        kafka.wire.mark("begin")
        send(kafka, "orders", b"book")
        with consumer(kafka, "shop", "orders", **{"auto.offset.reset": "earliest", "client.id": "till"}) as made:
            assert polled(made, 1) == [b"book"]
    return capture.path


def pcap(path: Path, *arguments: str) -> bytes:
    result = run("wire", "show", "--pcap", str(path), *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout_bytes


def test_connection_is_a_whole_tcp_stream() -> None:
    found = built(
        opened(),
        record(RecordKind.RECEIVED, b"question", at_ns=1_700_000_000_123_456_789),
        record(RecordKind.SENT, b"odd"),
        record(RecordKind.CLOSED, {"cause": "client"}),
    )

    client, broker = ("127.0.0.1", 40000), ("10.0.0.2", 9092)
    first = found[0].sequence
    seen = [(each.source, each.flags, each.sequence - first, each.acknowledged - first, each.data) for each in found]
    assert seen == [
        (client, SYN, 0, -first, b""),
        (broker, SYN | ACK, 0, 1, b""),
        (client, ACK, 1, 1, b""),
        (client, PSH | ACK, 1, 1, b"question"),
        (broker, PSH | ACK, 1, 9, b"odd"),
        (client, FIN | ACK, 9, 4, b""),
        (broker, FIN | ACK, 4, 10, b""),
        (client, ACK, 10, 5, b""),
    ]
    assert all({each.source, each.target} == {client, broker} for each in found)
    assert found[3].at_ns == 1_700_000_000_123_456_789


@pytest.mark.parametrize(
    ("cause", "flags"),
    [("lost", [(True, RST | ACK)]), ("idle", [(False, FIN | ACK), (True, FIN | ACK), (False, ACK)])],
)
def test_end_shows_who_has_ended_it(cause: str, flags: list[tuple[bool, int]]) -> None:
    found = built(opened(), record(RecordKind.CLOSED, {"cause": cause}))[3:]

    assert [(each.source[1] == 40000, each.flags) for each in found] == flags


def test_long_payload_is_cut_into_segments() -> None:
    payload = bytes(range(256)) * 600
    found = built(opened(open_before=True), record(RecordKind.RECEIVED, payload), record(RecordKind.RECEIVED, b"x"))

    assert [len(each.data) for each in found] == [SEGMENT_BYTES, SEGMENT_BYTES, len(payload) - 2 * SEGMENT_BYTES, 1]
    assert b"".join(each.data for each in found) == payload + b"x"
    starts = [each.sequence - found[0].sequence for each in found]
    assert starts == [0, SEGMENT_BYTES, 2 * SEGMENT_BYTES, len(payload)]


@pytest.mark.parametrize(
    ("peer", "client", "broker"),
    [
        ("::1:40000", ("::1", 40000), "fd00::2"),
        ("fe80::1%eth0:40000", ("fe80::1", 40000), "fd00::2"),
        ("10.1.2.3:7", ("10.1.2.3", 7), "10.0.0.2"),
        ("replay", ("192.0.2.1", 1025), "10.0.0.2"),
        ("", ("192.0.2.1", 1025), "10.0.0.2"),
    ],
)
def test_addresses_of_clients_are_kept(peer: str, client: tuple[str, int], broker: str) -> None:
    (found,) = built(opened(peer=peer, open_before=True), record(RecordKind.RECEIVED, b"x"))

    assert (found.source, found.target) == (client, (broker, 9092))


def test_bytes_without_a_beginning_are_kept() -> None:
    (found,) = built(record(RecordKind.SENT, b"x", connection=9))

    assert (found.source[1], found.data) == (9092, b"x")


def test_connections_with_one_port_are_told_apart() -> None:
    found = built(opened(1), opened(2), record(RecordKind.RECEIVED, b"x", 1), record(RecordKind.RECEIVED, b"y", 2))

    assert len({each.sequence for each in found if each.data}) == 2


def test_listeners_are_interfaces_and_header_is_kept() -> None:
    builder = PcapBuilder()
    records = [opened(1), opened(2, listener="SSL"), opened(3), opened(4, listener="")]

    found = list(blocks(builder.header({"seed": 7}) + b"".join(builder.blocks(records))))

    assert [options(each[8:])[0] for kind, each in found if kind == 1] == [
        (2, b"broker 2, PLAINTEXT"),
        (2, b"broker 2, SSL"),
        (2, b"listener not known"),
    ]
    assert [packet(each).interface for kind, each in found if kind == 6] == [0] * 3 + [1] * 3 + [0] * 3 + [2] * 3
    assert options(found[0][1][16:])[0] == (1, b"seed 7")


def test_marks_and_facts_are_comments_of_the_next_packet() -> None:
    found = built(
        opened(open_before=True),
        record(RecordKind.MARK, {"text": "begin"}, 0),
        record(RecordKind.FACT, {"fact": "Rebalanced", "node": 1}, 0),
        record(RecordKind.RECEIVED, b"x"),
        record(RecordKind.RECEIVED, b"y"),
    )

    assert [each.comments for each in found] == [["mark: begin", "fact: fact=Rebalanced node=1"], []]


def test_hit_of_a_rule_is_a_comment_of_the_answer(kafka: Kafka, tmp_path: Path) -> None:
    kafka.create_topic("orders")
    with kafka.wire.record(tmp_path / "a.owire"):
        kafka.fault(api="Produce", id="once", times=1, do={"error": "NOT_LEADER_OR_FOLLOWER"})
        send(kafka, "orders", b"book")

    found = packets(pcap(tmp_path / "a.owire"))

    (hit,) = [(each, said) for each in found for said in each.comments if said.startswith("fault: ")]
    answer, said = hit
    assert "rule=once" in said
    assert "api=Produce" in said
    assert "action=error" in said
    assert answer.source[1] == KAFKA_PORT
    correlation_id = int.from_bytes(answer.data[4:8])
    assert f"correlation_id={correlation_id}" in said


def test_all_bytes_of_a_capture_are_in_its_packets(shop: Path) -> None:
    sent: dict[tuple[int, bool], bytes] = defaultdict(bytes)
    for each in packets(pcap(shop)):
        is_client = each.target[1] == 9092
        sent[(each.source if is_client else each.target)[1], is_client] += each.data

    records = records_of(shop)
    peers = {each.connection: each.fields() for each in records if each.kind == RecordKind.OPENED}
    ports = {number: int(fields["peer"].rpartition(":")[2]) for number, fields in peers.items()}
    expected = {(port, True): stream(records, RecordKind.RECEIVED, number) for number, port in ports.items()}
    expected |= {(port, False): stream(records, RecordKind.SENT, number) for number, port in ports.items()}
    assert {key: data for key, data in sent.items() if data} == {key: data for key, data in expected.items() if data}


def test_filter_chooses_whole_connections(shop: Path) -> None:
    chosen = {each.peer.peer for each in exchanges_in(shop) if each.api == "JoinGroup"}

    found = packets(pcap(shop, "--api", "JoinGroup"))

    assert {f"{host}:{port}" for each in found for host, port in (each.source, each.target) if port != 9092} == chosen
    assert len(chosen) < len({each.peer.peer for each in exchanges_in(shop)})


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--json"], "--pcap and --json exclude each other"),
        (["-v"], "--pcap and -v exclude each other: Wireshark shows the fields"),
        (["--follow", "--errors"], "--pcap with --follow has all connections: leave out --api, --client, --group"),
    ],
)
def test_options_that_exclude_each_other_are_wrong_usage(shop: Path, arguments: list[str], why: str) -> None:
    result = run("wire", "show", str(shop), "--pcap", *arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert why in " ".join(result.stderr.split())


def test_damaged_capture_is_written_up_to_the_damage(shop: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.owire"
    damaged.write_bytes(build_header({}) + b"".join(map(block, records_of(shop)[:8])) + b"xx")

    result = run("wire", "show", "--pcap", str(damaged))

    assert result.exit_code == 1
    assert packets(result.stdout_bytes)
    assert result.stderr.endswith("is cut off; what was before that was read\n")


def tshark(content: bytes, *arguments: str) -> str:
    command = ["tshark", "-r", "-", *arguments]
    done = subprocess.run(command, input=content, capture_output=True, timeout=60, check=True)
    return done.stdout.decode()


@needs_tshark
def test_tshark_reads_requests_and_answers(shop: Path) -> None:
    content, exchanges = pcap(shop), exchanges_in(shop)

    requests = tshark(content, "-Y", "kafka && tcp.dstport == 9092", *fields("kafka.api_key"))
    assert sorted(keys(requests)) == sorted(each.api_key for each in exchanges)

    # An answer has no API key: tshark looks for the request with its correlation id.
    answers = tshark(content, "-Y", "kafka && tcp.srcport == 9092", *fields("kafka.correlation_id", "kafka.error"))
    ids, errors = zip(*(line.split("\t") for line in answers.splitlines()), strict=True)
    assert sorted(keys("\n".join(ids))) == sorted(each.correlation_id for each in exchanges if each.answer is not None)
    assert {"0", "79"} <= {code for each in errors for code in each.split(",")}


def fields(*names: str) -> list[str]:
    return ["-T", "fields", *(word for name in names for word in ("-e", name))]


def keys(column: str) -> list[int]:
    return [int(key) for line in column.splitlines() for key in line.split(",") if key]


@needs_tshark
def test_tshark_finds_nothing_wrong_with_tcp(shop: Path) -> None:
    content = pcap(shop)

    assert (
        tshark(content, "-o", "tcp.check_checksum:TRUE", "-Y", "tcp.analysis.flags || tcp.checksum.status == 0") == ""
    )
    assert "mark: begin" in tshark(content, "-Y", "frame.comment", *fields("frame.comment"))
