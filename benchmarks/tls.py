"""Bulk produce and consume over TLS 1.3: against a raw socket with the same library's TLS, and against Apache Kafka."""

import socket
import ssl
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import processes
from benchmarks.apache_kafka import ApacheKafka
from benchmarks.bulk import BATCH_BYTES, TOPIC_SETTINGS, WINDOW
from benchmarks.figure import Figure, NotMeasured, interleave
from benchmarks.processes import Server
from benchmarks.raw_client import (
    RawClient,
    batch,
    batch_of_size,
    create_topic,
    fetch_frame,
    produce_frame,
    produced,
)
from tests.tls.certificates import Authority

ROUNDS = 5
BATCHES = 256
# A virtual machine has to compile what it runs first.
KAFKA_ROUNDS, WARM_UP_ROUNDS = 5, 3
SERVING_WITHIN_S = 60
FETCHES_MAX = 100


def figures() -> list[Figure]:
    processes.pin_client()
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name:
        directory = Path(name)
        authority = Authority()
        authority.write(directory / "ca.pem")
        authority.issue("broker").write(directory / "broker.pem")
        found = _beside_raw_sockets(directory)
        processes.unpin()
        return [*found, *_beside_kafka(directory)]


def _context(directory: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


class TlsClient(RawClient):
    """The same over TLS."""

    def __init__(self, port: int, directory: Path) -> None:
        super().__init__(port)
        self.socket = _context(directory).wrap_socket(self.socket, server_hostname="127.0.0.1")

    def receive(self) -> memoryview:
        head = memoryview(bytearray(4))
        self._fill(head)
        view = self._room(struct.unpack(">i", head)[0])
        self._fill(view)
        return view

    def _fill(self, view: memoryview) -> None:
        count = 0
        while count < len(view):
            received = self.socket.recv_into(view[count:])
            if not received:
                raise ConnectionError("the broker has closed the connection")
            count += received


@contextmanager
def _ottla(directory: Path) -> Iterator[Server]:
    settings = {"listener.security.protocol.map": "PLAINTEXT:SSL", "ssl.keystore.location": directory / "broker.pem"}
    settings |= {"ssl.truststore.location": directory / "ca.pem"}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    words += [word for key, value in TOPIC_SETTINGS.items() for word in ("--set", f"{key.replace('_', '.')}={value}")]
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as data,
        processes.running(processes.broker_command(data, *words)) as server,
    ):
        yield server


class Load:
    """What goes through one broker, and the processor seconds that it cost the broker for each GB."""

    def __init__(self, server: Server, client: RawClient) -> None:
        self._server = server
        self._client = client
        self._records = batch_of_size(BATCH_BYTES, 1024)
        self._topics = 0
        self.size = len(self._records) * BATCHES
        self.costs: list[float] = []

    def produce(self) -> float:
        """The seconds, with acks=all, to a topic of its own."""
        self._topics += 1
        create_topic(self._client, self._topic)
        # Apache Kafka answers before the new topic has its leader.
        while not produced(self._client, self._topic, batch(1, 100)):
            time.sleep(0.005)
        frame = produce_frame(self._topic, self._records)
        return self._timed(lambda: self._client.pipeline(frame, BATCHES, WINDOW))

    def consume(self) -> float:
        """Of what was produced last; two fetches are on their way at a time."""
        count = struct.unpack_from(">i", self._records, 57)[0]
        frames = [fetch_frame(self._topic, 1 + number * count, BATCH_BYTES) for number in range(BATCHES)]
        return self._timed(lambda: self._fetch(frames))

    @property
    def _topic(self) -> str:
        return f"tls-{self._topics}"

    def _fetch(self, frames: list[bytes]) -> None:
        again: list[bytes] = []
        self._client.socket.sendall(frames[0])
        for frame, following in zip(frames, [*frames[1:], b""], strict=True):
            if following:
                self._client.socket.sendall(following)
            if not self._has_batch():
                again.append(frame)
        # Apache Kafka sometimes says of an offset that it has acknowledged that it is out of range, and then has it.
        for frame in again:
            for _ in range(FETCHES_MAX):
                self._client.socket.sendall(frame)
                if self._has_batch():
                    break
            else:
                raise NotMeasured(f"the broker at port {self._server.port} does not give what it has taken")

    def _has_batch(self) -> bool:
        return len(self._client.receive()) > BATCH_BYTES // 2

    def _timed(self, work: Callable[[], None]) -> float:
        before, started = self._server.cpu_seconds(), time.perf_counter()
        work()
        seconds = time.perf_counter() - started
        self.costs.append((self._server.cpu_seconds() - before) / self.size * 1e9)
        return seconds


def _beside_raw_sockets(directory: Path) -> list[Figure]:
    pem = str(directory / "broker.pem")
    records = batch_of_size(BATCH_BYTES, 1024)
    (directory / "source").write_bytes(records * BATCHES)
    with ExitStack() as stack:
        ours = stack.enter_context(_ottla(directory))
        sink = stack.enter_context(processes.baseline("sink", str(directory / "sink"), "--tls", pem))
        source = stack.enter_context(processes.baseline("source", str(directory / "source"), "--tls", pem))
        load = Load(ours, TlsClient(ours.port, directory))
        rounds = [
            (interleave(ROUNDS, load.produce, lambda: _through(sink, directory, records)), "produce"),
            (interleave(ROUNDS, load.consume, lambda: _drained(source, directory, load.size)), "consume"),
        ]
    raw = "raw socket + TLS by the same library"
    return [
        Figure(f"bulk {what} over TLS 1.3, 1 KiB records", raw, "MB/s", _speeds(load.size, seconds), at_least=0.75)
        for seconds, what in rounds
    ]


def _speeds(size: int, pairs: list[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(size / ours / 1e6, size / theirs / 1e6) for ours, theirs in pairs]


def _connected(server: Server, directory: Path) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", server.port))
    return _context(directory).wrap_socket(plain, server_hostname="127.0.0.1")


def _through(sink: Server, directory: Path, records: bytes) -> float:
    """Seconds for what a round produces, through a pipe that takes a CRC and writes."""
    with _connected(sink, directory) as connection:
        started = time.perf_counter()
        connection.sendall(struct.pack(">q", len(records) * BATCHES))
        for _ in range(BATCHES):
            connection.sendall(records)
        connection.recv(1)
        return time.perf_counter() - started


def _drained(source: Server, directory: Path, size: int) -> float:
    """Seconds for what a round consumes, from a pipe that reads a file."""
    buffer = memoryview(bytearray(8 << 20))
    with _connected(source, directory) as connection:
        started = time.perf_counter()
        connection.sendall(struct.pack(">q", size))
        while size:
            size -= connection.recv_into(buffer[: min(len(buffer), size)])
        return time.perf_counter() - started


def _beside_kafka(directory: Path) -> list[Figure]:
    """What the brokers spend; the client, in Python, is the same for both, and slower than either."""
    stores = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
        "security.inter.broker.protocol": "SSL",
    }
    theirs = ApacheKafka(str(directory), stores, protocol="SSL")
    with _ottla(directory) as our_server, theirs.running() as their_server:
        sides = [
            Load(our_server, TlsClient(our_server.port, directory)),
            Load(their_server, _when_serving(their_server.port, directory)),
        ]
        for _ in range(WARM_UP_ROUNDS + KAFKA_ROUNDS):
            for side in sides:
                side.produce()
                side.consume()
        costs = [side.costs[2 * WARM_UP_ROUNDS :] for side in sides]
    baseline = "Apache Kafka 4.1 with TLS"
    return [
        Figure(f"bulk {what} over TLS 1.3, processor seconds of the broker", baseline, "s/GB", pairs, at_most=1)
        for what, pairs in (
            ("produce", list(zip(costs[0][::2], costs[1][::2], strict=True))),
            ("consume", list(zip(costs[0][1::2], costs[1][1::2], strict=True))),
        )
    ]


def _when_serving(port: int, directory: Path) -> TlsClient:
    deadline = time.monotonic() + SERVING_WITHIN_S
    while True:
        try:
            client = TlsClient(port, directory)
            create_topic(client, "first")
            return client
        except (OSError, AssertionError) as error:
            if time.monotonic() > deadline:
                raise NotMeasured("Apache Kafka does not serve over TLS") from error
            time.sleep(0.5)
