"""`ottla health`: asks the admin listener of a broker, for health checks of containers.

It runs every few seconds on every machine, so it imports next to nothing: an HTTP client, or the module `typing`, would
cost more processor time than all the rest. A plain command line does not even import click;
`ottla.cli.commands.health` is the same command with all its options.
"""

import socket
import sys
import time

DEFAULT_URL = "http://127.0.0.1:9644"
DEFAULT_PAGE = "/health/ready"
DEFAULT_PORTS = {"http": 80, "https": 443}
DEFAULT_TIMEOUT_S = 3.0
# The exit statuses beside 0. They differ so that a script can look at a broker without a listener by other means.
NOT_HEALTHY = 1
NO_ANSWER = 3
ANSWER_BYTES_MAX = 1 << 20
_PLAIN = ("--url", "--ca", "--cert")


class HealthQuestion:
    """What a command line asks. The files are PEM: authorities to trust, and a certificate with its key to show."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        ca: str | None = None,
        cert: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        self.ca, self.cert, self.timeout_s = ca, cert, timeout_s
        self.url = url
        scheme, found, rest = url.partition("://")
        address, slash, path = (rest if found else url).partition("/")
        self.scheme = scheme if found else "http"
        self.address = address
        self.path = slash + path or DEFAULT_PAGE

    @property
    def host_and_port(self) -> tuple[str, int]:
        """Raises ValueError."""
        if self.scheme not in DEFAULT_PORTS:
            raise ValueError(f"a URL begins with http:// or https://, not with {self.scheme}://")
        host, _, port = self.address.rpartition(":")
        if not host or port.endswith("]"):
            host, port = self.address, str(DEFAULT_PORTS[self.scheme])
        if not port.isdecimal():
            raise ValueError(f"{port!r} is no port")
        return host.strip("[]"), int(port)


def parse_plain(arguments: list[str]) -> HealthQuestion | None:
    """None for anything that click should look at."""
    values: dict[str, str] = {}
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, value = argument.partition("=")
        given = value if equals else next(remaining, "-")
        if name not in _PLAIN or not given or given.startswith("-"):
            return None
        values[name] = given
    return HealthQuestion(values.get("--url", DEFAULT_URL), values.get("--ca"), values.get("--cert"))


def run(question: HealthQuestion) -> int:
    """Prints what the page says; returns the exit status: 0 healthy, 1 not, 3 nothing answers there."""
    try:
        status, body = _answer(_connected(question), question)
    except (OSError, ValueError) as error:
        # A broker that was started without an admin listener, most of the time.
        print(f"ottla: no answer from {question.url}: {_why(error, question)}", file=sys.stderr)
        return NO_ANSWER
    print(_summary(status, body))
    return 0 if status == 200 else NOT_HEALTHY


def _why(error: Exception, question: HealthQuestion) -> str:
    if isinstance(error, TimeoutError):
        return f"it sent nothing within {question.timeout_s:g} s"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, socket.gaierror):
        return "the host name is not known"
    # Of ssl.SSLError.
    if getattr(error, "reason", None) in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return "it speaks no TLS: http:// is for that"
    return str(error)


def _connected(question: HealthQuestion) -> socket.socket:
    """Raises OSError, of files that cannot be read too, and ValueError."""
    address = question.host_and_port
    if question.scheme == "http":
        if question.ca is not None or question.cert is not None:
            raise ValueError("--ca and --cert are for https://")
        return socket.create_connection(address, question.timeout_s)
    # Imported here, as most listeners are without TLS.
    import ssl

    context = ssl.create_default_context(cafile=question.ca)
    if question.cert is not None:
        context.load_cert_chain(question.cert, password=lambda: "")
    return context.wrap_socket(socket.create_connection(address, question.timeout_s), server_hostname=address[0])


def _answer(connection: socket.socket, question: HealthQuestion) -> tuple[int, bytes]:
    """Status and body. Raises OSError, and ValueError for what is no answer of HTTP."""
    with connection:
        request = f"GET {question.path} HTTP/1.1\r\nHost: {question.address}\r\nConnection: close\r\n\r\n"
        connection.sendall(request.encode())
        received = b""
        deadline_s = time.monotonic() + question.timeout_s
        while not _is_whole(received):
            more = _received_by(connection, deadline_s)
            if more is None and received:
                raise ValueError(f"its answer was not whole within {question.timeout_s:g} s")
            if more is None:
                raise TimeoutError
            if not more:
                break
            received += more
    line, _, _ = received.partition(b"\r\n")
    version, _, rest = line.partition(b" ")
    status = rest[:3]
    if not version.startswith(b"HTTP/") or not status.isdigit():
        raise ValueError("it does not speak HTTP" if received else "it closed the connection")
    return int(status), received.partition(b"\r\n\r\n")[2]


def _received_by(connection: socket.socket, deadline_s: float) -> bytes | None:
    """None if nothing has come until then, by the monotonic clock."""
    remaining_s = deadline_s - time.monotonic()
    if remaining_s <= 0:
        return None
    connection.settimeout(remaining_s)
    try:
        return connection.recv(ANSWER_BYTES_MAX)
    except TimeoutError:
        return None


def _is_whole(received: bytes) -> bool:
    """Whether all of an answer is there that says how long it is; the end of others is that of the connection."""
    head, end, body = received.partition(b"\r\n\r\n")
    if len(received) > ANSWER_BYTES_MAX:
        raise ValueError(f"its answer has more than {ANSWER_BYTES_MAX} bytes")
    for line in head.split(b"\r\n") if end else ():
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return len(body) >= int(value)
    return False


def _summary(status: int, body: bytes) -> str:
    """The status, and every check that is not well, in one line for people.

    What is no page of a broker is shown by its HTTP status."""
    import json

    try:
        said = json.loads(body)
        text = said.get("text", "")
        wrong = [f"{check['name']}: {check['text']}" for check in said.get("checks", ()) if not check["ok"]]
        return "; ".join([said["status"], *wrong, *([text] if text else [])])
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"HTTP status {status}"
