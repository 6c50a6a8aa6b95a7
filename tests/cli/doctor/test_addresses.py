"""What the doctor says where it does not find a broker, or a wrong address is advertised."""

import json
import ssl
import subprocess
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any

import pytest

from ottla import BrokerThread
from ottla.cli.doctor.findings import Diagnosis, Report, Severity, parse_silence
from tests.cli.fake_broker import FakeBroker, OtherServer
from tests.cli.runner import run
from tests.ports import free_ports


def examined(bootstrap: str, *arguments: str, status: int) -> Any:
    result = run("doctor", "--bootstrap", bootstrap, "--for", "0", "--json", *arguments)
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


def texts(found: Any) -> dict[str, str]:
    return {each["id"]: each["text"] for each in found["findings"]}


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(settings={"auto.create.topics.enable": False}) as started:
        yield started


def test_nothing_listens_at_the_address() -> None:
    found = examined("127.0.0.1:1", status=1)

    assert texts(found) == {"D1.cannot-connect": "nothing listens at 127.0.0.1:1"}
    assert found["could_look"] is False


def test_name_that_does_not_resolve_is_said_to_be_so() -> None:
    assert texts(examined("no-such-host.invalid:9092", status=1)) == {
        "D1.cannot-connect": "no-such-host.invalid:9092 does not resolve here"
    }


def test_http_is_recognized() -> None:
    with OtherServer(b"HTTP/1.1 400 Bad Request\r\n\r\n") as server:
        found = examined(f"127.0.0.1:{server.port}", status=1)

    assert "works, but it speaks HTTP" in texts(found)["D1.cannot-connect"]
    assert found["findings"][0]["evidence"][0].startswith("the name resolves")


def test_tls_is_recognized_and_the_setting_named(tmp_path: Path) -> None:
    with tls_server(tmp_path) as port:
        found = examined(f"127.0.0.1:{port}", status=1)

    assert "works, but it speaks TLS" in texts(found)["D1.cannot-connect"]
    assert "security.protocol=SSL" in found["findings"][0]["advice"]


def tls_server(path: Path) -> "_TlsServer":
    name = path / "pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
         "/CN=localhost", "-keyout", name, "-out", name.with_suffix(".crt")],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(name.with_suffix(".crt"), name)
    return _TlsServer(context)


class _TlsServer(ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, context: ssl.SSLContext) -> None:
        class Handler(BaseRequestHandler):
            def handle(self) -> None:
                try:
                    context.wrap_socket(self.request, server_side=True).recv(100)
                except OSError:
                    self.request.close()

        super().__init__(("127.0.0.1", 0), Handler)

    def __enter__(self) -> Any:
        Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self.server_address[1]

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


def test_broker_that_speaks_other_versions_is_no_crash() -> None:
    with FakeBroker(ranges={3: (90, 99), 18: (0, 4)}) as old:
        found = examined(old.bootstrap, status=1)

    assert "does not offer Metadata in a version that this command speaks" in texts(found)["D1.no-metadata"]


def test_wrong_usage_has_a_status_of_its_own() -> None:
    for arguments in (("--for", "99"), ("--fail-on", "info"), ("--silence", "nothing"), ("--silence", "D12=soon")):
        assert run("doctor", *arguments).exit_code == 2


def test_advertised_name_that_does_not_resolve_is_a_finding() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with BrokerThread(listen=address, advertise="no-such-host.invalid:9092"):
        found = examined(address, status=3)

    assert "advertises no-such-host.invalid:9092, which does not resolve here" in texts(found)["D2.unresolved"]


def test_address_of_another_cluster_is_found(broker: BrokerThread) -> None:
    """A broker advertises an address at which another one listens."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with BrokerThread(listen=address, advertise=broker.bootstrap):
        found = examined(address, status=3)

    assert "but there answers a broker of another cluster" in texts(found)["D2.stranger"]


def test_finding_can_be_silenced_until_a_day() -> None:
    finding = Diagnosis("D12.one-replica", Severity.WARNING, "t", "text", "advice")
    for text, day, kept in (
        ("D12", date(2027, 1, 1), 0),
        ("D12.one-replica=2027-01-31", date(2027, 1, 30), 0),
        ("D12.one-replica=2027-01-31", date(2027, 1, 31), 1),
        ("D12.unclean", date(2027, 1, 1), 1),
    ):
        report = Report([finding])
        report.silence([parse_silence(text)], day)
        assert (len(report.findings), report.silenced) == (kept, 1 - kept)


def test_exit_status_goes_by_severity() -> None:
    warning = Report([Diagnosis("D12.x", Severity.WARNING, "t", "text", "advice")])

    assert (warning.exit_status(Severity.WARNING), warning.exit_status(Severity.CRITICAL)) == (3, 0)
    assert Report(could_look=False).exit_status(Severity.CRITICAL) == 1


def test_single_sound_broker_gives_no_finding_twice(broker: BrokerThread) -> None:
    """Nor does a first examination show up in the second."""
    for _ in range(2):
        found = examined(broker.bootstrap, "--silence", "D11", "--probe", status=0)
        assert found["findings"] == []
        assert [each["check"] for each in found["not_checked"]] == []
