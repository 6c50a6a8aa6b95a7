"""A capture as packets that Wireshark and tshark read: pcapng, with the bytes of each connection as a TCP stream.

A capture has the bytes behind TLS and no packets, so these are made: a handshake where the capture saw the connection
begin, segments with the bytes as they were read and written, FIN or RST where it saw the end. Sequence numbers and
checksums are right, times are those of the machine. A client has its own address and port. Brokers have the port 9092,
by which Wireshark knows Kafka's protocol, and an address that has their id; an interface is named for each listener.
Marks, facts and hits of fault rules are comments of the packet that follows them.

Blocks and options: draft-ietf-opsawg-pcapng; addresses that no client is known for: RFC 5737.
"""

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final

from ottla.broker.server.close_reasons import CloseReason
from ottla.testing.wire_capture.file_format import CaptureRecord, RecordKind

KAFKA_PORT: Final = 9092
"""Wireshark takes what goes to this port for Kafka's protocol."""
SEGMENT_BYTES: Final = 60_000
"""Of data in a packet, which has 65,535 bytes at most."""
COMMENT_BYTES_MAX: Final = 4096
COMMENTS_MAX: Final = 64
"""Of a packet: the last ones."""
UNKNOWN_CLIENT: Final = IPv4Address("192.0.2.1")
WORDS_OF_COMMENTS: Final[dict[int, str]] = {RecordKind.MARK: "mark", RecordKind.FACT: "fact", RecordKind.FAULT: "fault"}
OF_CONNECTIONS: Final = (RecordKind.OPENED, RecordKind.CLOSED, RecordKind.RECEIVED, RecordKind.SENT)
CLIENT, BROKER = 0, 1
FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10
_WINDOW: Final = 65_535
# Segments are as long as that, and the window is the largest there is (RFC 7323): none is beyond it, though few are
# acknowledged soon.
_SYN_OPTIONS: Final = struct.pack(">BBHBBBB", 2, 4, SEGMENT_BYTES, 3, 3, 14, 1)
_TCP: Final = 6
_LINKTYPE_RAW: Final = 101
"""Packets begin with their IP header, of version 4 or 6."""
_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_COMMENT, _SECTION_APPLICATION, _INTERFACE_NAME, _INTERFACE_TIMES = 1, 4, 2, 9
_IN_NANOSECONDS: Final = b"\x09"
_SEQUENCES: Final = 1 << 32
_ISN_STEP: Final = 0x01000193
"""Between the first sequence numbers of two connections: one with the port of an earlier one is another stream."""


@dataclass(slots=True)
class _TcpStream:
    """A connection; what is a pair is of its client and its broker."""

    interface: int
    addresses: tuple[bytes, bytes]
    ports: tuple[int, int]
    sequences: list[int]
    """Those of their next bytes."""


class PcapBuilder:
    """`header`, and then `blocks` for the records of the capture, or for those that follow."""

    def __init__(self, connections: frozenset[int] | None = None) -> None:
        """`connections`: only these; None: all."""
        self._connections = connections
        self._streams: dict[int, _TcpStream] = {}
        self._interfaces: dict[str, int] = {}
        self._comments: deque[str] = deque(maxlen=COMMENTS_MAX)

    def header(self, header: Mapping[str, Any]) -> bytes:
        """The beginning of the file, with what the header of the capture says as its comment."""
        said = ", ".join(f"{name} {value}" for name, value in header.items())
        options = _option(_COMMENT, said.encode()) + _option(_SECTION_APPLICATION, b"ottla wire show --pcap")
        return _block(_SECTION, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + options + _option(0))

    def blocks(self, records: Iterable[CaptureRecord]) -> Iterator[bytes]:
        """What each record adds to the file, if anything. Raises CaptureError for a record that is not as it must
        be."""
        for record in records:
            if record.kind in WORDS_OF_COMMENTS:
                self._note_comment(record)
            elif record.kind in OF_CONNECTIONS and self._has(record.connection):
                yield from self._of_connection(record)

    def _has(self, connection: int) -> bool:
        return self._connections is None or connection in self._connections

    def _note_comment(self, record: CaptureRecord) -> None:
        fields = record.fields()
        if record.kind == RecordKind.MARK:
            said = ", ".join(map(str, fields.values()))
        else:
            said = " ".join(f"{name}={value}" for name, value in fields.items())
        self._comments.append(f"{WORDS_OF_COMMENTS[record.kind]}: {said}")

    def _of_connection(self, record: CaptureRecord) -> Iterator[bytes]:
        if record.kind == RecordKind.OPENED:
            yield from self._opened(record, record.fields())
            return
        stream = self._streams.get(record.connection)
        if stream is None:
            # Its beginning is missing.
            yield from self._opened(record, {"open_before": True})
            stream = self._streams[record.connection]
        if record.kind == RecordKind.CLOSED:
            del self._streams[record.connection]
            yield from self._closed(stream, record.machine_ns, str(record.fields().get("cause", "")))
            return
        sender = CLIENT if record.kind == RecordKind.RECEIVED else BROKER
        for start in range(0, len(record.payload), SEGMENT_BYTES):
            data = record.payload[start : start + SEGMENT_BYTES]
            yield self._packet(stream, sender, PSH | ACK, record.machine_ns, data)

    def _opened(self, record: CaptureRecord, fields: Mapping[str, Any]) -> Iterator[bytes]:
        node = fields["node"] if isinstance(fields.get("node"), int) else -1
        name = f"broker {node}, {fields.get('listener', '')}" if fields.get("listener") else "listener not known"
        if name not in self._interfaces:
            self._interfaces[name] = len(self._interfaces)
            options = _option(_INTERFACE_NAME, name.encode()) + _option(_INTERFACE_TIMES, _IN_NANOSECONDS)
            yield _block(_INTERFACE, struct.pack("<HHI", _LINKTYPE_RAW, 0, 0) + options + _option(0))
        client, port = _client_address(str(fields.get("peer", "")), record.connection)
        first = record.connection * _ISN_STEP % _SEQUENCES
        addresses = (client.packed, _broker_address(client.version, node))
        stream = _TcpStream(self._interfaces[name], addresses, (port, KAFKA_PORT), [first, first])
        self._streams[record.connection] = stream
        if not fields.get("open_before"):
            yield self._packet(stream, CLIENT, SYN, record.machine_ns, options=_SYN_OPTIONS)
            yield self._packet(stream, BROKER, SYN | ACK, record.machine_ns, options=_SYN_OPTIONS)
            yield self._packet(stream, CLIENT, ACK, record.machine_ns)

    def _closed(self, stream: _TcpStream, at_ns: int, cause: str) -> Iterator[bytes]:
        if cause == CloseReason.LOST:
            yield self._packet(stream, CLIENT, RST | ACK, at_ns)
            return
        first, second = (CLIENT, BROKER) if cause == CloseReason.CLIENT else (BROKER, CLIENT)
        yield self._packet(stream, first, FIN | ACK, at_ns)
        yield self._packet(stream, second, FIN | ACK, at_ns)
        yield self._packet(stream, first, ACK, at_ns)

    def _packet(
        self, stream: _TcpStream, sender: int, flags: int, at_ns: int, data: bytes = b"", options: bytes = b""
    ) -> bytes:
        """From one end to the other; it acknowledges all that the other has sent."""
        receiver, sequences = 1 - sender, stream.sequences
        acknowledged = sequences[receiver] if flags & ACK else 0
        packet = _ip_packet(
            stream.addresses[sender],
            stream.addresses[receiver],
            struct.pack(
                ">HHIIBBHHH",
                *(stream.ports[sender], stream.ports[receiver], sequences[sender], acknowledged),
                *((20 + len(options)) << 2, flags, _WINDOW, 0, 0),
            )
            + options,
            data,
        )
        sequences[sender] = (sequences[sender] + len(data) + bool(flags & (SYN | FIN))) % _SEQUENCES
        head = struct.pack("<IIIII", stream.interface, at_ns >> 32, at_ns & 0xFFFFFFFF, len(packet), len(packet))
        comments = b"".join(_option(_COMMENT, each.encode()) for each in self._comments)
        self._comments.clear()
        return _block(_PACKET, head + _padded(packet) + (comments + _option(0) if comments else b""))


def _ip_packet(source: bytes, target: bytes, tcp: bytes, data: bytes) -> bytes:
    """`tcp`: the header, whose checksum is still 0."""
    size = len(tcp) + len(data)
    checksum = _checksum(source, target, struct.pack(">II", _TCP, size), tcp, data)
    tcp = tcp[:16] + struct.pack(">H", checksum) + tcp[18:]
    if len(source) == 16:
        return struct.pack(">IHBB", 6 << 28, size, _TCP, 64) + source + target + tcp + data
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + size, 0, 0x4000, 64, _TCP, 0) + source + target
    return head[:10] + struct.pack(">H", _checksum(head)) + head[12:] + tcp + data


def _checksum(*parts: bytes) -> int:
    """RFC 1071. The sum of 16-bit words in ones' complement is what the number of all bytes leaves modulo 65,535."""
    total = sum(int.from_bytes(part if len(part) % 2 == 0 else part + b"\0") for part in parts)
    return 0xFFFF - total % 0xFFFF


def _client_address(peer: str, connection: int) -> tuple[IPv4Address | IPv6Address, int]:
    """Of `HOST:PORT`; an address made for it where the capture has none."""
    host, _, port = peer.rpartition(":")
    try:
        return ip_address(host.partition("%")[0]), int(port) & 0xFFFF
    except ValueError:
        return UNKNOWN_CLIENT, 1024 + connection % 64_512


def _broker_address(version: int, node: int) -> bytes:
    """10.0.0.ID, or fd00::ID."""
    return (b"\x0a" if version == 4 else b"\xfd" + bytes(12)) + struct.pack(">I", node & 0xFFFFFF)[1:]


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _option(code: int, value: bytes = b"") -> bytes:
    """Code 0 is the end of the options of a block."""
    value = value[:COMMENT_BYTES_MAX]
    return struct.pack("<HH", code, len(value)) + _padded(value)


def _block(kind: int, content: bytes) -> bytes:
    size = struct.pack("<I", len(content) + 12)
    return struct.pack("<I", kind) + size + content + size
