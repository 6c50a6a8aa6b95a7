"""`ottla health` against what may be at an address, and what it costs: a container asks every few seconds."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from socket import create_server

import pytest

from ottla.cli.health import NO_ANSWER, NOT_HEALTHY, HealthQuestion, run

ROOT = Path(__file__).parents[2]
READY = b'{"status": "ready", "checks": [{"name": "a", "ok": true, "text": "well"}]}\n'
DEGRADED = b'{"status": "degraded", "checks": [{"name": "disk space", "ok": false, "text": "4% is free"}]}\n'
COSTLY = ("typing", "ssl", "http.client", "click", "asyncio")
Serve = Callable[[bytes], str]


def http(body: bytes, status: str = "200 OK", length: int | None = None) -> bytes:
    count = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nContent-Length: {count}\r\n\r\n".encode() + body


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Gives the address at which the bytes are the answer to each client; the connection is closed then."""
    servers = []

    def start(answer: bytes) -> str:
        server = create_server(("127.0.0.1", 0))
        servers.append(server)

        def answer_all() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    connection.sendall(answer)

        threading.Thread(target=answer_all, daemon=True).start()
        return f"127.0.0.1:{server.getsockname()[1]}"

    yield start
    for each in servers:
        each.close()


@pytest.mark.parametrize(
    ("answer", "status", "printed"),
    [
        (http(READY), 0, "ready"),
        (http(DEGRADED), 0, "degraded; disk space: 4% is free"),
        (http(DEGRADED, "503 Service Unavailable"), NOT_HEALTHY, "degraded; disk space: 4% is free"),
        (http(b"nothing of ours", "404 Not Found"), NOT_HEALTHY, "HTTP status 404"),
        (b"HTTP/1.0 200 OK\r\n\r\n" + READY, 0, "ready"),
        (http(READY, length=10_000), 0, "ready"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", NO_ANSWER, "it does not speak HTTP"),
        (b"", NO_ANSWER, "it closed the connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: much\r\n\r\n", NO_ANSWER, "invalid literal"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + bytes(2 << 20), NO_ANSWER, "more than 1048576 bytes"),
    ],
)
def test_answer_is_the_exit_status_and_one_line(
    serve: Serve, capsys: pytest.CaptureFixture[str], answer: bytes, status: int, printed: str
) -> None:
    found = run(HealthQuestion(f"http://{serve(answer)}"))

    said = capsys.readouterr()
    assert found == status
    assert printed in (said.err if status == NO_ANSWER else said.out)
    assert (said.out + said.err).count("\n") == 1


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://127.0.0.1:9644", "a URL begins with http:// or https://, not with ftp://"),
        ("http://127.0.0.1:ninety", "'ninety' is no port"),
        ("http://127.0.0.1:1", "nothing listens there"),
        ("http://no.such.host.invalid", "the host name is not known"),
    ],
)
def test_address_that_cannot_be_asked_is_a_sentence(capsys: pytest.CaptureFixture[str], url: str, why: str) -> None:
    assert run(HealthQuestion(url, timeout_s=1)) == NO_ANSWER
    said = capsys.readouterr().err
    assert said.startswith(f"ottla: no answer from {url}: ")
    assert why in said


def test_https_at_a_plain_listener_is_said(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"https://{serve(http(READY))}"
    assert run(HealthQuestion(url)) == NO_ANSWER
    assert capsys.readouterr().err == f"ottla: no answer from {url}: it speaks no TLS: http:// is for that\n"


def test_server_that_sends_byte_by_byte_is_given_up_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    """The limit is for the whole answer: who asks every few seconds must not wait for ever."""
    with create_server(("127.0.0.1", 0)) as server:

        def answer_slowly() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(http(b"", length=100))
                for _ in range(100):
                    connection.sendall(b"x")
                    threading.Event().wait(0.03)

        thread = threading.Thread(target=answer_slowly, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        found = run(HealthQuestion(url, timeout_s=0.3))
        thread.join()

    assert found == NO_ANSWER
    assert "its answer was not whole within 0.3 s" in capsys.readouterr().err


def test_server_that_is_silent_is_given_up_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    with create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert run(HealthQuestion(url, timeout_s=0.05)) == NO_ANSWER
    assert capsys.readouterr().err == f"ottla: no answer from {url}: it sent nothing within 0.05 s\n"


@pytest.mark.parametrize(
    ("url", "address", "path"),
    [
        ("http://[::1]:9644", ("::1", 9644), "/health/ready"),
        ("http://broker-1", ("broker-1", 80), "/health/ready"),
        ("https://broker-1/health/live", ("broker-1", 443), "/health/live"),
        ("http://[::1]", ("::1", 80), "/health/ready"),
        ("127.0.0.1:9644/health/startup?broker=2", ("127.0.0.1", 9644), "/health/startup?broker=2"),
    ],
)
def test_url_is_read_with_its_defaults(url: str, address: tuple[str, int], path: str) -> None:
    question = HealthQuestion(url)

    assert (question.host_and_port, question.path) == (address, path)


def test_plain_command_imports_next_to_nothing(serve: Serve) -> None:
    """Each of these modules would cost more processor time than the question itself (docs/operators.md §3.7)."""
    code = (
        "import sys; from ottla.cli.main import main\n"
        f"sys.argv = ['ottla', 'health', '--url', 'http://{serve(http(READY))}']\n"
        "try: main()\n"
        f"finally: print(*{{*sys.modules}}.intersection({COSTLY}))"
    )
    # Without the modules that the environment imports for itself.
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)

    assert done.stdout == "ready\n\n"
