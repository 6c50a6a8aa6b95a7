"""The table of what can be asked for, and the way from a request to its row and back."""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_plus, unquote_to_bytes

from ottla.broker.admin.http import HttpRequest, HttpResponse
from ottla.broker.logging import LazyLog
from ottla.broker.runtime import StartError
from ottla.protocol.errors import KafkaError
from ottla.testing.control.access import JSON, WITH_BODY
from ottla.testing.control.json_values import INT64_MAX, from_json, parse_json, to_json
from ottla.testing.control.problems import Problem, problem_of, wrong_state, wrong_value
from ottla.testing.control.questions import EmptyBody
from ottla.testing.control.service import ControlService
from ottla.testing.faults.rule_values import RuleError, nearest
from ottla.testing.waits import DeadlineExceeded
from ottla.testing.worker import NotRunningError

LINES: Final = "application/x-ndjson"


class QueryField(NamedTuple):
    name: str
    help: str
    default: int | str | None = None
    is_number: bool = True


class ControlCall(NamedTuple):
    """A request, as handlers get it."""

    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any


Handler = Callable[[ControlService, ControlCall], Any]
"""Plain, or a coroutine function. It gives a dataclass, or an HttpResponse."""


class Row(NamedTuple):
    method: str
    path: str
    summary: str
    handler: Handler | None = None
    """None: not served yet."""
    body: Any = EmptyBody
    answer: Any = None
    query: tuple[QueryField, ...] = ()
    media_type: str = JSON
    """Of the answer."""
    status: int = 200
    changes: bool = False
    """It is done after what others change, and to its end though the caller goes."""
    needs_brokers: bool = True

    @property
    def feature(self) -> str:
        """What it is part of: the first word of its path; empty for what is about all of them."""
        words = self.path.split("/")
        return words[2] if len(words) > 2 and "." not in words[2] else ""


class Router:
    def __init__(self, service: ControlService, rows: Sequence[Row], log: LazyLog) -> None:
        self.service = service
        self._log = log
        self._rows = [(each.path.split("/"), each) for each in rows]

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Never raises but where it is cancelled."""
        try:
            return await self._answer(request)
        except Problem as problem:
            return problem.response()
        except DeadlineExceeded as late:
            return late_problem(late).response()
        except KafkaError as error:
            return problem_of(error).response()
        except RuleError as error:
            return Problem(400, "wrong-rule", str(error)).response()
        except (NotRunningError, StartError) as error:
            return wrong_state(str(error)).response()
        except Exception:
            self._log.exception("a control request failed", method=request.method, path=request.path)
            return Problem(500, "failed", "the request failed, the log of the broker says why").response()

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        row, path = self._found(request)
        if row.handler is None:
            raise Problem(501, "not-served", f"{row.method} {row.path} is not served: {row.summary}")
        query = _query(row, request.query)
        body = from_json(row.body, parse_json(request.body)) if row.method in WITH_BODY else None
        self.service.scope.check(row.method, row.path, path, body)
        if row.needs_brokers:
            self.service.check_running()
        call = ControlCall(path, query, body)
        if row.changes:
            made = await self.service.change(_awaited(row.handler, self.service, call))
        else:
            made = await _awaited(row.handler, self.service, call)
        if isinstance(made, HttpResponse):
            return made
        return json_response(to_json(made), row.status)

    def _found(self, request: HttpRequest) -> tuple[Row, Mapping[str, str]]:
        """The row, and what the request has in place of its parts in braces. Raises Problem."""
        parts = request.path.split("/")
        methods: list[str] = []
        for pattern, row in self._rows:
            found = _match(pattern, parts)
            if found is None:
                continue
            if row.method == request.method:
                return row, found
            methods.append(row.method)
        if methods:
            allowed = ", ".join(methods)
            raise Problem(405, "wrong-method", f"{request.path[:200]} takes {allowed}", headers=(("Allow", allowed),))
        hint = nearest(request.path[:200], {row.path for _, row in self._rows})
        raise Problem(404, "no-such-path", f"there is no such path{hint}; /v1/openapi.json has all")


def json_response(value: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(status, (json.dumps(value).encode(), b"\n"), JSON)


def lines_response(lines: Iterable[Mapping[str, Any]]) -> HttpResponse:
    """A line of JSON for each."""
    return HttpResponse(200, [json.dumps(each).encode() + b"\n" for each in lines], LINES)


def late_problem(late: DeadlineExceeded) -> Problem:
    """A wait was over before its condition held: what was wanted, how things stand, what is missing."""
    more = {
        "wanted": late.wanted,
        "within_ms": round(late.within_s * 1000),
        "state": late.state,
        "missing": list(late.missing),
        "hints": list(late.hints),
        "text": str(late),
    }
    return Problem(408, "deadline-exceeded", f"{late.wanted} within {late.within_s:.1f} s", more=more)


async def _awaited(handler: Handler, service: ControlService, call: ControlCall) -> Any:
    made = handler(service, call)
    if not asyncio.iscoroutine(made):
        return made
    awaited: Any = await made
    return awaited


def _match(pattern: Sequence[str], parts: Sequence[str]) -> dict[str, str] | None:
    if len(pattern) != len(parts):
        return None
    found: dict[str, str] = {}
    for expected, part in zip(pattern, parts, strict=True):
        if expected.startswith("{"):
            found[expected[1:-1]] = _decoded(part)
        elif expected != part:
            return None
    return found


def _decoded(part: str) -> str:
    """Raises Problem."""
    try:
        text = unquote_to_bytes(part.encode("latin-1")).decode("utf-8")
    except UnicodeDecodeError:
        raise wrong_value("path", "it is not UTF-8") from None
    if not text:
        raise Problem(404, "no-such-path", "a name in the path is empty")
    return text


def _query(row: Row, given: Mapping[str, str]) -> dict[str, Any]:
    """Raises Problem."""
    known = {each.name: each for each in row.query}
    values: dict[str, Any] = {each.name: each.default for each in row.query}
    for name, text in given.items():
        if name not in known:
            raise wrong_value(name[:60], f"no such part of the query{nearest(name[:60], known)}")
        values[name] = _number(name, text) if known[name].is_number else unquote_plus(text, errors="replace")
    return values


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= INT64_MAX):
        raise wrong_value(name, f"{text[:60]!r}, expected a whole number")
    return int(text)
