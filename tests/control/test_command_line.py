"""`ottla control` within `ottla run`: what scripts in any language have without a client for HTTP."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from ottla.cli.app import cli
from ottla.testing.control.access import URL_VARIABLE
from ottla.testing.testbed import Testbed

ENDED_WITHIN_S = 60


def test_fault_is_added_shown_and_removed(run: Any) -> None:
    status, said = run("fault", "add", "id=lost,api=Produce,topic=orders,drop=response")
    assert (status, said.split()[:4]) == (0, ["ID", "HITS", "HELD", "WHAT-IT-DID"])
    assert json.loads(run("faults", "list", "--json")[1])["faults"][0]["rule"]["do"] == {"drop": "response"}
    assert run("faults", "release", "lost") == (0, "released 0 requests\n")
    assert run("faults", "remove", "lost")[0] == 0
    assert run("faults", "remove", "lost") == (1, "ottla: there is no rule 'lost', only none\n")


def test_wait_that_is_over_ends_with_the_reasons(run: Any) -> None:
    status, said = run("wait", "topic-records", "--topic", "orders", "--count", "2", "--within", "0.05")
    assert (status, said.splitlines()[0]) == (1, "ottla: topic 'orders' did not have 2 records within 0.1 s")

    document = json.loads(run("wait", "group-empty", "--group", "shop", "--json")[1])
    assert document["group"]["state"] == "Dead"
    late = json.loads(run("wait", "group-stable", "--group", "g", "--assigned", "t=1", "--within", "0", "--json")[1])
    assert (late["status"], late["wanted"]) == (408, "group 'g' was not stable")


def test_topics_records_groups_and_reset_are_printed(run: Any, bed: Testbed) -> None:
    bed.run(bed.writer.create_topic("orders", 1, None, {}))
    bed.run(bed.writer.produce("orders", [(b"k", b"book"), (None, b"\xff")]))

    assert run("topics") == (0, "TOPIC\norders\n")
    assert run("records", "orders")[1].splitlines()[1:] == [
        "        0       0  k    book",
        "        0       1  -    /w==",
    ]
    assert run("groups")[1].split() == ["GROUP", "STATE", "GENERATION", "MEMBERS"]
    assert run("reset")[1].startswith("deleted 1 topics and 0 groups\n")
    assert run("about")[1].startswith("Ottla ")
    assert run("report", "--json")[0] == 0
    assert run("brokers", "kill", "0")[0] == 1


def test_time_is_moved_and_shown(run: Any) -> None:
    assert run("clock", "freeze", "--at", "2026-11-23T12:00")[1].startswith("2026-11-23T12:00:00.000+00:00 (frozen)\n")
    assert "AT" in run("clock", "advance", "7d", "--expire")[1]
    assert json.loads(run("clock", "show", "--json")[1])["now"] == "2026-11-30T12:00:00.000+00:00"
    assert "(moved)" in run("clock", "resume")[1]
    assert run("clock", "set", "2020-01-01")[1].startswith("2020-01-01T00:00")
    assert run("clock", "advance", "soon")[0] == 1
    assert json.loads(run("clock", "rate", "2", "--json")[1])["rate"] == 2
    assert "(moved)" in run("clock", "skew", "0", "5m", "--behind")[1]
    assert "(moved)" in run("clock", "drift", "0", "1.5")[1]
    assert json.loads(run("clock", "include", "tokens", "--json")[1])["included"] == ["tokens"]
    assert json.loads(run("clock", "include", "--json")[1])["included"] == []
    assert run("clock", "drift", "7", "1.5")[1].startswith("ottla: node: there is no broker 7 that runs")
    assert "retention" in run("clock", "next", "--kind", "retention")[1]
    assert run("disks", "lose-unsynced", "0")[1].startswith("ottla: what was never synced is known of brokers")
    run("reset")
    assert "(real)" in run("clock", "show")[1]


def test_audit_is_printed(run: Any, bed: Testbed) -> None:
    bed.run(bed.writer.create_topic("orders", 1, None, {"max.message.bytes": 100}))
    producer = Producer({"bootstrap.servers": bed.hosted.bootstrap})
    producer.produce("orders", bytes(1000))
    assert producer.flush(20) == 0
    # The tests that follow have the same broker.
    producer.close()

    status, said = run("audit")

    assert (status, said.splitlines()[1].split()[:2]) == (0, ["P8", "orders-0"])


def test_where_no_control_is_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    said = CliRunner().invoke(cli, ["control", "topics"])
    assert (said.exit_code, "Give --url or --file" in said.output) == (1, True)
    (tmp_path / "wrong").write_text("[]")
    said = CliRunner().invoke(cli, ["control", "topics", "--file", str(tmp_path / "wrong")])
    assert (said.exit_code, "is no file of" in said.output) == (1, True)
    said = CliRunner().invoke(cli, ["control", "topics", "--url", "http://127.0.0.1:1"])
    assert (said.exit_code, "http://127.0.0.1:1 does not answer" in said.output) == (1, True)


def test_command_of_a_run_controls_its_broker() -> None:
    rule = "id=once,api=Produce,topic=orders,error=NOT_LEADER_OR_FOLLOWER,optional=true"
    commands = f"ottla control faults add {rule} --json >&2 && ottla control topics"
    script = f"{commands} && echo $OTTLA_CONTROL_TOKEN; ps -efww"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "run", "--topic", "orders:1", "--", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=ENDED_WITHIN_S,
        env={**os.environ, "PATH": path},
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stderr)["faults"][0]["id"] == "once"
    heading, topic, token, *processes = done.stdout.splitlines()
    assert (heading, topic, len(bytes.fromhex(token))) == ("TOPIC", "orders", 16)
    assert [line for line in processes if "ottla run" in line]
    assert token not in "".join(processes)


def test_snapshot_is_taken_restored_and_removed(run: Any, bed: Testbed) -> None:
    bed.run(bed.writer.create_topic("snapped", 1, None, {}))
    status, said = run("snapshots", "take", "seeded")
    assert (status, said[:5], said[-10:]) == (0, "kept ", "as seeded\n")
    assert run("snapshots", "list") == (0, "SNAPSHOT\nseeded\n")
    bed.run(bed.writer.produce("snapped", [(None, b"ghost")]))

    assert run("snapshots", "restore", "seeded") == (0, "restored 1 topics as in seeded\n")
    assert json.loads(run("records", "snapped", "--json")[1]) == {"records": []}
    assert json.loads(run("snapshots", "restore", "seeded", "--keep-members", "--json")[1])["topics"] == 0
    assert json.loads(run("snapshots", "remove", "seeded", "--json")[1]) == {"snapshots": []}
    assert run("snapshots", "restore", "seeded") == (1, "ottla: there is no snapshot 'seeded', only none\n")
