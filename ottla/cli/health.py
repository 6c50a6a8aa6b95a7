"""`ottla health`: asks the admin listener of a broker, for health checks of containers.

It runs every few seconds on every machine, so it imports no more than an HTTP client: less than the broker pays for an
answer. A plain command line does not even import click; `ottla.cli.commands.health` is the same command with all its
options.
"""

import json
import sys
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from typing import Any, NamedTuple

DEFAULT_URL = "http://127.0.0.1:9644"
DEFAULT_PAGE = "/health/ready"
DEFAULT_TIMEOUT_S = 3.0
# The exit statuses beside 0. They differ so that a script can look at a broker without a listener by other means.
NOT_HEALTHY = 1
NO_ANSWER = 3
_PLAIN = ("--url", "--ca", "--cert")


class HealthQuestion(NamedTuple):
    """What a command line asks. The files are PEM: authorities to trust, and a certificate with its key to show."""

    url: str = DEFAULT_URL
    ca: str | None = None
    cert: str | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S


def parse_plain(arguments: Sequence[str]) -> HealthQuestion | None:
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
    url = question.url
    scheme, found, rest = url.partition("://")
    address, slash, path = (rest if found else url).partition("/")
    try:
        connection = _connection(address, question, has_tls=bool(found) and scheme == "https")
        connection.request("GET", slash + path or DEFAULT_PAGE)
        response = connection.getresponse()
        body = response.read()
    except (OSError, HTTPException, ValueError) as error:
        # A broker that was started without an admin listener, most of the time.
        print(f"ottla: no answer from {url}: {error}", file=sys.stderr)
        return NO_ANSWER
    print(_summary(response.status, body))
    return 0 if response.status == 200 else NOT_HEALTHY


def _connection(address: str, question: HealthQuestion, *, has_tls: bool) -> HTTPConnection:
    """Raises OSError for files that cannot be read."""
    if not has_tls:
        if question.ca is not None or question.cert is not None:
            raise ValueError("--ca and --cert are for https://")
        return HTTPConnection(address, timeout=question.timeout_s)
    # Imported here, as most listeners are without TLS.
    import ssl
    from http.client import HTTPSConnection

    context = ssl.create_default_context(cafile=question.ca)
    if question.cert is not None:
        context.load_cert_chain(question.cert, password=lambda: "")
    return HTTPSConnection(address, timeout=question.timeout_s, context=context)


def _summary(status: int, body: bytes) -> str:
    """The status, and every check that is not well, in one line for people.

    What is no page of a broker is shown by its HTTP status."""
    try:
        said: Any = json.loads(body)
        text = said.get("text", "")
        wrong = [f"{check['name']}: {check['text']}" for check in said.get("checks", ()) if not check["ok"]]
        return "; ".join([said["status"], *wrong, *([text] if text else [])])
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"HTTP status {status}"
