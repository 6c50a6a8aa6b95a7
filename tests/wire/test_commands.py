"""`ottla wire show` and `diff` of what real clients did, of damaged files, and of bytes that say nothing."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from ottla.testing.handle import Kafka
from ottla.testing.wire_capture.exchanges import ExchangeReader
from ottla.testing.wire_capture.file_format import CaptureRecord, RecordKind, build_header
from ottla.testing.wire_capture.lines import ShownParts, json_lines, text_lines
from tests.cli.runner import run
from tests.kit.members import consumer, polled, send
from tests.wire.captures import exchanges_in, records_of
from tests.wire.test_blanking import LOGIN, PLAIN_REQUESTS
from tests.wire.test_file_format import block

LINE = re.compile(r" *\d+\.\d  \S+  (\w+) v\d+.*")


@pytest.fixture
def shop(kafka: Kafka, tmp_path: Path) -> Path:
    """A producer, one error, and a consumer of a group."""
    kafka.create_topic("orders")
    with kafka.wire.record(tmp_path / "shop.owire") as capture:
        kafka.wire.mark("begin")
        with kafka.fault(api="Produce", do={"error": "NOT_LEADER_OR_FOLLOWER"}):
            send(kafka, "orders", b"book")
        with consumer(kafka, "shop", "orders", **{"auto.offset.reset": "earliest", "client.id": "till"}) as made:
            assert polled(made, 1) == [b"book"]
            made.commit(asynchronous=False)
    return capture.path


def shown(path: Path, *options: str) -> list[str]:
    result = run("wire", "show", str(path), *options)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.splitlines()


def apis(lines: list[str]) -> list[str]:
    return [found[1] for line in lines if (found := LINE.fullmatch(line))]


def test_line_for_each_exchange(shop: Path) -> None:
    lines = shown(shop)

    assert len(apis(lines)) == len(exchanges_in(shop))
    assert any(line.endswith("mark: begin") for line in lines)
    (hit, refused, accepted) = (line for line in lines if "Produce" in line)
    assert re.fullmatch(r".*  fault: rule fault-1, error: Produce v\d+ #\d+ of rdkafka orders-0", hit)
    assert re.fullmatch(r".*rdkafka#\d  Produce v\d+ orders  NOT_LEADER_OR_FOLLOWER \d+\.\d ms", refused)
    assert re.fullmatch(r".*Produce v\d+ orders  ok \d+\.\d ms, at 0", accepted)
    assert any(re.search(r"till#\d  Fetch v\d+ orders  ok .* ms, 1 records", line) for line in lines)
    assert any(re.search(r"JoinGroup v\d shop member \S+  ok .*, generation \d+, leads 1", line) for line in lines)


def test_filters_choose_exchanges(shop: Path) -> None:
    assert set(apis(shown(shop, "--api", "joingroup", "--api", "SyncGroup"))) == {"JoinGroup", "SyncGroup"}
    assert "Produce" not in apis(shown(shop, "--client", "t?ll"))
    assert "Fetch" in apis(shown(shop, "--client", "till"))
    assert {"JoinGroup", "OffsetCommit", "LeaveGroup"} <= set(apis(shown(shop, "--group", "shop")))
    assert shown(shop, "--group", "other") == []
    errors = shown(shop, "--errors")
    assert {"Produce", "JoinGroup"} <= set(apis(errors))
    assert not any(" ok " in line for line in errors)


def test_fields_and_bytes_are_shown_when_asked_for(shop: Path) -> None:
    fields = shown(shop, "--api", "OffsetCommit", "-v")
    assert "      > topics[0].partitions[0].committed_offset: 1" in fields
    assert "      < topics[0].partitions[0].error_code: 0" in fields

    lines = shown(shop, "--api", "OffsetCommit", "-vv")
    commits = [each for each in exchanges_in(shop) if each.api == "OffsetCommit"]
    for sign, parts in ((">", [each.request for each in commits]), ("<", [each.answer for each in commits])):
        pattern = re.compile(rf" +{sign} ([0-9a-f]{{6}})  ((?:[0-9a-f]{{2}} ?)+)(?:  .*)?")
        found = [match for line in lines if (match := pattern.fullmatch(line.rstrip()))]
        frames = b"".join(part.frame for part in parts if part is not None)
        assert b"".join(bytes.fromhex(each[2]) for each in found) == frames != b""


def test_json_has_requests_and_answers(shop: Path) -> None:
    objects: list[dict[str, Any]] = [json.loads(line) for line in shown(shop, "--json")]

    assert {"opened", "exchange", "fact", "fault", "mark", "end", "closed"} == {each["kind"] for each in objects}
    commit, *_ = (each for each in objects if each.get("api") == "OffsetCommit")
    assert commit["request"]["group_id"] == "shop"
    assert commit["answer"]["topics"][0]["partitions"][0]["error_code"] == 0
    assert (commit["client_id"], commit["error"], commit["duration_ms"] > 0) == ("till", None, True)
    assert [each["error"] for each in objects if each.get("api") == "Produce"] == ["NOT_LEADER_OR_FOLLOWER", None]


def test_unknown_api_is_wrong_usage(shop: Path) -> None:
    result = run("wire", "show", str(shop), "--api", "Producer")

    assert result.exit_code == 2
    assert "there is no API 'producer' (docs/apis.md)" in result.stderr


def refusal(*arguments: str) -> Result:
    result = run("wire", *arguments)
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1, result.stderr
    return result


def test_damaged_file_is_shown_up_to_the_damage(shop: Path, tmp_path: Path) -> None:
    blocks, damaged = [*map(block, records_of(shop))], tmp_path / "damaged.owire"
    whole, cut_off = b"".join(blocks[: len(blocks) * 2 // 3]), blocks[-1][:-1]
    damaged.write_bytes(build_header({}) + whole + cut_off)

    result = refusal("show", str(damaged))

    assert re.fullmatch(r"Error: \S+ the block at byte \d+ is cut off; what was before that was read\n", result.stderr)
    assert 5 < len(apis(result.stdout.splitlines())) < len(exchanges_in(shop))
    assert "is cut off" in refusal("diff", str(shop), str(damaged)).stderr
    assert "is not a capture" in refusal("show", __file__).stderr
    assert "is not a capture" in refusal("diff", __file__, str(shop)).stderr
    assert "is not a capture" in refusal("replay", __file__, "--to", "127.0.0.1:1").stderr


def test_capture_without_its_end_says_so(shop: Path, tmp_path: Path) -> None:
    path = tmp_path / "killed.owire"
    path.write_bytes(build_header({}) + b"".join(map(block, records_of(shop)[:-1])))

    result = run("wire", "show", str(path))

    assert result.exit_code == 0
    assert result.stderr == f"{path} has no end: its broker still runs, or was killed\n"


def test_capture_is_like_itself(shop: Path) -> None:
    result = run("wire", "diff", str(shop), str(shop))

    assert (result.exit_code, result.output) == (0, "")


def test_diff_names_the_first_field_that_differs(kafka: Kafka, tmp_path: Path) -> None:
    paths: list[Path] = []
    for name, metadata in (("a", "first"), ("b", "second")):
        kafka.create_topic("orders")
        kafka.produce("orders", [b"x"])
        with (
            kafka.wire.record(tmp_path / name) as capture,
            consumer(kafka, "shop", "orders", **{"auto.offset.reset": "earliest", "client.rack": metadata}) as made,
        ):
            polled(made, 1)
        paths.append(capture.path)
        kafka.reset()

    result = run("wire", "diff", *map(str, paths))

    assert result.exit_code == 1
    (line, *_) = (each for each in result.stdout.splitlines() if each.startswith("consumer") and "Fetch" in each)
    assert re.fullmatch(r"consumer rdkafka  Fetch v\d+ \(#\d+, #\d+\)  request\.rack_id.*: A 'first', B 'second'", line)
    found = [json.loads(each) for each in run("wire", "diff", "--json", *map(str, paths)).stdout.splitlines()]
    assert {"connection", "exchange", "path", "a", "b"} == set(found[0])


def record(kind: RecordKind, payload: bytes, connection: int = 1) -> CaptureRecord:
    return CaptureRecord(kind, 5, 6, connection, payload)


BYTES = st.one_of(st.binary(max_size=60), st.sampled_from([PLAIN_REQUESTS, LOGIN, PLAIN_REQUESTS[:20]]))
KINDS = st.sampled_from([RecordKind.RECEIVED, RecordKind.SENT, RecordKind.CLOSED, RecordKind.OPENED, RecordKind.FACT])


@given(st.lists(st.tuples(KINDS, BYTES, st.integers(0, 2)), max_size=8))
def test_any_bytes_of_connections_are_shown(parts: list[tuple[RecordKind, bytes, int]]) -> None:
    said_of = ExchangeReader()
    records = [
        record(kind, data if kind in (RecordKind.RECEIVED, RecordKind.SENT) else b"{}", number)
        for kind, data, number in parts
    ]

    said = [*said_of.said(records), *said_of.rest()]

    for detail in range(3):
        shown = ShownParts(detail=detail)
        assert all(isinstance(line, str) for line in text_lines(said, shown, 0, said_of.topics, has_secrets=False))
        assert all(json.loads(line) for line in json_lines(said, shown, 0))


def test_answers_from_before_the_capture_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.owire"
    answered = (8).to_bytes(4, "big") + (77).to_bytes(4, "big") + bytes(4)
    path.write_bytes(build_header({}) + block(record(RecordKind.SENT, answered)))

    lines = run("wire", "show", str(path)).stdout.splitlines()

    assert lines[0].endswith("connection 1  an answer to a request from before the capture, 8 bytes")
