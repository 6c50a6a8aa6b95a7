"""`ottla health`: asks the admin listener of a broker, for health checks of containers.

It runs every few seconds on every machine, so it imports no more than an HTTP client: less than the broker pays for an
answer. A plain command line does not even import click; `ottla.cli.commands.health` is the same command with all its
options.
"""

import json
import sys
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from typing import Any

DEFAULT_URL = "http://127.0.0.1:9644"
DEFAULT_PAGE = "/health/ready"
DEFAULT_TIMEOUT_S = 3.0
# The exit statuses beside 0. They differ so that a script can look at a broker without a listener by other means.
NOT_HEALTHY = 1
NO_ANSWER = 3


def parse_plain(arguments: Sequence[str]) -> str | None:
    """The URL, or None for anything that click should look at."""
    match list(arguments):
        case []:
            return DEFAULT_URL
        case ["--url", url] if not url.startswith("-"):
            return url
        case [argument] if argument.startswith("--url="):
            return argument.removeprefix("--url=")
        case _:
            return None


def run(url: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> int:
    """Prints what the page says; returns the exit status: 0 healthy, 1 not, 3 nothing answers there."""
    address, slash, path = url.removeprefix("http://").partition("/")
    try:
        connection = HTTPConnection(address, timeout=timeout_s)
        connection.request("GET", slash + path or DEFAULT_PAGE)
        response = connection.getresponse()
        body = response.read()
    except (OSError, HTTPException, ValueError) as error:
        # A broker that was started without an admin listener, most of the time.
        print(f"ottla: no answer from {url}: {error}", file=sys.stderr)
        return NO_ANSWER
    print(_summary(response.status, body))
    return 0 if response.status == 200 else NOT_HEALTHY


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
