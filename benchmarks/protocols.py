"""What a login, ACLs and TLS cost those who produce (SEC32): `python -m benchmarks protocols`.

One broker has a listener of each security protocol and an authorizer with a hundred ACLs, by which its clients may
produce; the other has neither, and is the baseline.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import processes
from benchmarks.authorizer import acl
from benchmarks.figure import Figure, interleave
from benchmarks.processes import Server
from benchmarks.raw_client import RawClient, batch, batch_of_size, create_topic, produce_frame
from benchmarks.tls import TlsClient
from ottla.broker.config.server_security import STANDARD_AUTHORIZER
from ottla.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security.acl import AclOperation, ResourceType
from tests.tls.certificates import Authority

ROUNDS = 7
TOPIC = "small"
ACLS = 100
BATCH_BYTES, BATCHES, WINDOW = 100_000, 500, 5
SMALL_REQUESTS = 2_000
USER, PASSWORD = "producer", "of records"
PROTOCOLS = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")
BASELINE = "PLAINTEXT without an authorizer"
# What a login and ACLs may cost. TLS has bounds of its own, beside raw sockets with TLS: the suite `tls`.
AT_MOST = {"PLAINTEXT": 1.03, "SASL_PLAINTEXT": 1.03}

Measure = Callable[[], float]


def figures() -> list[Figure]:
    processes.pin_client()
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name, processes.broker() as plain:
        directory = Path(name)
        with _secured(directory) as (secured, ports):
            bare = RawClient(plain.port)
            create_topic(bare, TOPIC)
            setting_up = RawClient(ports["PLAINTEXT"])
            _create_acls(setting_up)
            create_topic(setting_up, TOPIC)
            found = []
            for protocol in PROTOCOLS:
                client = _client(protocol, ports[protocol], directory)
                found += _beside(protocol, (secured, client), (plain, bare))
            return found


def _beside(protocol: str, ours: tuple[Server, RawClient], baseline: tuple[Server, RawClient]) -> list[Figure]:
    what = f"{protocol} with {ACLS} ACLs"
    most = AT_MOST.get(protocol)
    bulk, small = produce_frame(TOPIC, batch_of_size(BATCH_BYTES, 1024)), produce_frame(TOPIC, batch(1, 100))
    costs = interleave(ROUNDS, _cost(*ours, bulk), _cost(*baseline, bulk))
    waits = interleave(ROUNDS, _p99(ours[1], small), _p99(baseline[1], small))
    return [
        Figure(f"{what}: produce in bulk, processor time", BASELINE, "s/GB", costs, at_most=most),
        Figure(f"{what}: p99 of one-record Produce", BASELINE, "ms", waits),
    ]


def _cost(server: Server, client: RawClient, frame: bytes) -> Measure:
    def measure() -> float:
        before = server.cpu_seconds()
        client.pipeline(frame, BATCHES, WINDOW)
        return (server.cpu_seconds() - before) / (BATCHES * BATCH_BYTES) * 1e9

    return measure


def _p99(client: RawClient, frame: bytes) -> Measure:
    def measure() -> float:
        waits = []
        for _ in range(SMALL_REQUESTS):
            began_s = time.perf_counter()
            client.pipeline(frame, 1, 1)
            waits.append(time.perf_counter() - began_s)
        return sorted(waits)[int(SMALL_REQUESTS * 0.99)] * 1000

    return measure


@contextmanager
def _secured(directory: Path) -> Iterator[tuple[Server, dict[str, int]]]:
    """With the ports of its listeners."""
    authority = Authority()
    authority.write(directory / "ca.pem")
    users = directory / "users"
    users.write_text(f"{USER}:{PASSWORD}\n")
    users.chmod(0o600)
    first = processes.free_port(len(PROTOCOLS))
    ports = {protocol: first + number for number, protocol in enumerate(PROTOCOLS)}
    settings = {
        "listeners": ",".join(f"{protocol}://127.0.0.1:{port}" for protocol, port in ports.items()),
        "ssl.keystore.location": authority.issue("broker").write(directory / "broker.pem"),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.users.file": users,
        "listener.name.sasl_ssl.plain.users.file": users,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
        # Until the first ACL about a resource: so the client can make them.
        "allow.everyone.if.no.acl.found": "true",
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    command = processes.broker_command(str(directory / "data"), *words)
    # The listeners are among the settings.
    with processes.running([each for each in command if each not in ("--listen", "127.0.0.1:0")]) as server:
        yield server, ports


def _client(protocol: str, port: int, directory: Path) -> RawClient:
    client = TlsClient(port, directory) if protocol.endswith("SSL") else RawClient(port)
    if protocol.startswith("SASL"):
        client.call(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
        token = f"\0{USER}\0{PASSWORD}".encode()
        answer = client.call(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, 1)
        assert isinstance(answer, SaslAuthenticateResponse)
        assert not answer.error_code
    return client


def _create_acls(client: RawClient) -> None:
    """Of others, and one by which everybody may write."""
    acls = [
        acl(f"User:u{number}", ResourceType.TOPIC, f"{TOPIC[: number % 6]}-{number}", False)
        for number in range(ACLS - 1)
    ]
    acls.append(acl("User:*", ResourceType.TOPIC, TOPIC, False, AclOperation.WRITE))
    answer = client.call(CreateAclsRequest(creations=acls), CreateAclsResponse, 2)
    assert isinstance(answer, CreateAclsResponse)
    assert not any(each.error_code for each in answer.results)
