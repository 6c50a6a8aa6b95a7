"""Any bytes, any headers and any bodies: an answer that is documented, and a broker that serves on."""

import socket
from typing import Any, get_args
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ottla.testing.control.access import WITH_BODY
from ottla.testing.control.json_values import types_of
from ottla.testing.control.listener import ControlListener
from ottla.testing.control.questions import NewRecords, NewTopicBody, TopicChange, WaitBody
from ottla.testing.control.routes import ROWS
from ottla.testing.control.surroundings_documents import DiskBody, LinkBody
from ottla.testing.faults.rules import MATCH_FIELDS
from ottla.testing.testbed import Testbed
from tests.control.asking import TOKEN, Asker

DOCUMENTED = {200, 201, 400, 404, 405, 408, 409, 413, 415, 501}
QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXTS = st.text(max_size=12)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8
)
FIELDS = sorted({name for kind in (NewRecords, NewTopicBody, TopicChange, WaitBody) for name in types_of(kind)})
KINDS = ["group-stable", "group-committed", "topic-records", "topic-in-sync", "partition-leader", "fault-hits"]
BODIES = st.fixed_dictionaries(
    {}, optional={**dict.fromkeys(FIELDS, VALUES), "for": st.sampled_from(KINDS) | VALUES, "within_ms": st.just(0)}
)
ACTIONS = ["error", "delay", "hold", "drop", "disconnect", "truncate", "corrupt", "rewrite", "observe", "throttle"]
RULES = st.fixed_dictionaries(
    {"do": st.dictionaries(st.sampled_from([*ACTIONS, "after", "jitter"]), VALUES, max_size=2) | VALUES},
    optional={
        "match": st.dictionaries(st.sampled_from(MATCH_FIELDS), VALUES, max_size=3) | VALUES,
        "times": VALUES,
        "id": VALUES,
        "force": VALUES,
    },
)
AROUND = {"/v1/links": get_args(LinkBody), "/v1/disks/0": get_args(DiskBody)}
# A row that waits, or that empties the broker under other examples, has tests of its own.
ASKED = [row for row in ROWS if row.path not in ("/v1/events", "/v1/reset")]


@QUICK
@given(st.sampled_from(ASKED), st.lists(st.text(min_size=1, max_size=8), min_size=2, max_size=2), BODIES | VALUES)
def test_any_body_of_any_row_has_a_documented_answer(asker: Asker, row: Any, names: list[str], body: Any) -> None:
    if isinstance(body, dict) and isinstance(body.get("partitions"), int):
        body["partitions"] %= 5
    parts = iter(names)
    path = "/".join(quote(next(parts), safe="") if part.startswith("{") else part for part in row.path.split("/"))

    answer = asker.ask(row.method, path, body if row.method in WITH_BODY else None)

    assert answer.status in DOCUMENTED, (answer, row.path, body)
    if answer.status >= 400:
        assert answer.problem[0] == answer.status


@QUICK
@given(st.lists(RULES | VALUES, max_size=3))
@example([{"do": {"delay": 1}, "match": {"api": {}}}])
@example([{"do": {"error": []}}])
@example([{"do": {"delay": 1}, "match": {"topic": "/(/"}}])
def test_any_rule_is_taken_or_refused(asker: Asker, rules: list[Any]) -> None:
    answer = asker.ask("POST", "/v1/faults", {"rules": rules})

    assert answer.status in (201, 400), (answer, rules)
    if answer.status == 201:
        for each in answer.json["faults"]:
            assert asker.ask("DELETE", f"/v1/faults/{quote(each['id'], safe='')}").status == 200, each["id"]


@QUICK
@given(st.data(), st.sampled_from(sorted(AROUND)))
def test_any_fault_of_a_link_or_disk_is_taken_or_refused(asker: Asker, data: st.DataObject, path: str) -> None:
    kind = data.draw(st.sampled_from(AROUND[path]))
    fields = types_of(kind)
    places = st.sampled_from([0, 1, "store", "clients"]) | VALUES
    values = st.integers(-1, 2) | places | st.lists(places, max_size=2) | st.sampled_from(["*", "../*", "fsync"])
    body = data.draw(
        st.fixed_dictionaries({}, optional=dict.fromkeys([name for name in fields if name != "do"], values))
    )

    answer = asker.ask("PUT", path, {**body, "do": get_args(fields["do"])[0]})

    assert answer.status in (200, 400, 404, 409), (answer, body)
    assert asker.ask("PUT", path, {"do": "heal"}).status == 200


@QUICK
@given(st.binary(max_size=200), st.booleans())
@example(b"GET /v1 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", False)
@example(b"POST /v1/reset HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", False)
@example(b"GET /v1?%=%&&== HTTP/1.1\r\nHost: localhost\r\n", True)
def test_any_bytes_get_no_answer_but_a_refusal(asker: Asker, data: bytes, has_end: bool) -> None:
    with socket.create_connection((asker.host, asker.port), timeout=30) as asking:
        asking.sendall(data + b"\r\n\r\n" * has_end)
        asking.shutdown(socket.SHUT_WR)
        answered = b""
        try:
            while piece := asking.recv(65536):
                answered += piece
        except ConnectionResetError:
            pass

    assert not answered or answered.split(b" ")[1] in (b"400", b"401", b"403", b"405", b"411", b"413"), answered


@pytest.mark.parametrize("path", ["/v1/topics/a/records", "/v1/events", "/v1/wire"])
@QUICK
@given(st.dictionaries(st.sampled_from(["partition", "start", "limit", "after", "last", "x"]), TEXTS, max_size=3))
def test_any_query_has_a_documented_answer(asker: Asker, path: str, query: dict[str, str]) -> None:
    text = "&".join(f"{name}={quote(value)}" for name, value in query.items())
    wait = "&wait_ms=0" if path != "/v1/wire" else ""

    assert asker.ask("GET", f"{path}?{text}{wait}").status in DOCUMENTED


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.method} {row.path}")
def test_no_row_is_there_for_a_stranger(asker: Asker, control: ControlListener, row: Any) -> None:
    path, body = row.path.replace("{", "").replace("}", ""), {} if row.method in WITH_BODY else None

    assert Asker(control.url, None).ask(row.method, path, body).problem == (401, "wrong-token")
    assert asker.ask(row.method, path, body, Origin="http://localhost").problem == (403, "foreign-origin")


def test_the_token_is_in_no_answer_and_no_log(asker: Asker, bed: Testbed, control: ControlListener) -> None:
    """KT-20."""
    begin = bed.hosted.log_lines.count
    asker.ask("POST", "/v1/wait", {"for": TOKEN[:8]})
    answers = [asker.ask(row.method, row.path, {} if row.method in WITH_BODY else None) for row in ASKED]

    assert TOKEN.encode() not in b"".join(each.body + str(each.headers).encode() for each in answers)
    assert TOKEN not in "\n".join(bed.hosted.log_lines.since(begin))
    assert TOKEN not in control.url
