"""The commands as a user runs them: processes, pipes and signals, against a broker process."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import QUICK_GROUPS
from tests.served import ServedBroker
from tests.waiting import wait_for

WITHIN_S = 30


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path_factory.mktemp("cli") / "data", QUICK_GROUPS) as broker:
        yield broker


def environment(broker: ServedBroker) -> dict[str, str]:
    return {**os.environ, "OTTLA_BOOTSTRAP": broker.bootstrap}


def start(broker: ServedBroker, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "ottla", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(broker),
        text=True,
    )


def ottla(broker: ServedBroker, *arguments: str, stdin: str | bytes = "", status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *arguments],
        input=stdin if isinstance(stdin, bytes) else stdin.encode(),
        capture_output=True,
        env=environment(broker),
        timeout=WITHIN_S,
    )
    stderr = done.stderr.decode()
    assert done.returncode == status, stderr
    assert "Traceback" not in stderr
    return done.stdout.decode() if status == 0 else stderr


def json_of(broker: ServedBroker, *arguments: str) -> Any:
    return json.loads(ottla(broker, *arguments, "--json"))


def consumed(broker: ServedBroker, topic: str, *options: str) -> list[str]:
    return ottla(broker, "consume", topic, "--from-beginning", "--exit-at-end", *options).splitlines()


def test_a_topic_from_creation_to_deletion(served: ServedBroker) -> None:
    ottla(served, "topics", "create", "life", "--partitions", "2", "--config", "retention.ms=60000")
    ottla(
        served, "topics", "alter", "life", "--partitions", "3", "--config", "segment.ms=9999", "--unset", "retention.ms"
    )

    (described,) = json_of(served, "topics", "describe", "life")

    assert described["configs"] == {"segment.ms": "9999"}
    assert [row["leader"] for row in described["partitions"]] == [0, 0, 0]
    assert "life" in ottla(served, "topics", "list")
    ottla(served, "topics", "delete", "life")
    assert "topic life: it does not exist" in ottla(served, "topics", "describe", "life", status=1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("topics", "create", "no/slash"), "cannot create topic no/slash"),
        (("topics", "create", "x", "--replication-factor", "3"), "the replication factor is not possible"),
        (("topics", "create", "x", "--config", "retention.mss=1"), "retention.mss"),
        (("topics", "alter", "absent", "--partitions", "3"), "it does not exist"),
        (("topics", "delete", "absent"), "it does not exist"),
        (("topics", "create", "x", "--partitions", "99999999999"), "larger than Kafka's protocol can say"),
        (("topics", "create", b"bad\xff".decode(errors="surrogateescape")), "a text in it is not UTF-8"),
        (("groups", "describe", "absent"), "group absent: it does not exist"),
        (("groups", "delete", "absent"), "it does not exist"),
        (("consume", "absent"), "topic absent: it does not exist"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(served: ServedBroker, arguments: tuple[str, ...], sentence: str) -> None:
    stderr = ottla(served, *arguments, status=1)

    assert sentence in stderr
    assert len(stderr.splitlines()) == 1


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_come_out_as_they_went_in(served: ServedBroker, compression: str) -> None:
    topic = f"lines-{compression}"
    lines = [f"line {number} é" for number in range(500)]

    ottla(served, "produce", topic, "--compression", compression, stdin="\n".join(lines))

    assert consumed(served, topic) == lines


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(served: ServedBroker, acks: str) -> None:
    assert ottla(served, "produce", f"acks-{acks}", "--acks", acks, stdin="a\nb\n").startswith("produced 2 records")


def test_keys_headers_nulls_and_partitions(served: ServedBroker) -> None:
    ottla(served, "topics", "create", "shapes", "--partitions", "2")
    options = ("--key-separator", ":", "--header", "h=1", "--partition", "1", "--null-marker", "NULL")
    ottla(served, "produce", "shapes", *options, stdin="k:v:w\ngone:NULL\n")

    records = [json.loads(line) for line in consumed(served, "shapes", "--json")]

    shapes = [(r["partition"], r["offset"], r["key"], r["value"], r["headers"]) for r in records]
    assert shapes == [(1, 0, "k", "v:w", [["h", "1"]]), (1, 1, "gone", None, [["h", "1"]])]


def test_json_goes_round(served: ServedBroker) -> None:
    ottla(served, "produce", "round-1", "--key-separator", ":", stdin=b"k:\xff\xfe\nk2:text\n")
    lines = consumed(served, "round-1", "--json")

    ottla(served, "produce", "round-2", "--from-json", stdin="\n".join(lines))

    again = [json.loads(line) for line in consumed(served, "round-2", "--json")]
    assert [{**record, "topic": "round-1"} for record in again] == [json.loads(line) for line in lines]


def test_files_are_produced_one_after_another(served: ServedBroker, tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("1\n2")
    second.write_text("3\n")

    ottla(served, "produce", "files", str(first), str(second))

    assert consumed(served, "files") == ["1", "2", "3"]


def test_a_line_that_cannot_be_produced_is_named(served: ServedBroker) -> None:
    stderr = ottla(served, "produce", "bad-lines", "--key-separator", ":", stdin="a:b\nc\n", status=1)

    assert stderr == "Error: line 2 of standard input has no key separator ':'\n"
    assert consumed(served, "bad-lines") == ["b"]


def test_a_partition_that_does_not_exist_is_named(served: ServedBroker) -> None:
    stderr = ottla(served, "produce", "narrow", "--partition", "9", stdin="a\n", status=1)

    assert stderr == "Error: topic narrow has no partition 9\n"


def test_record_above_the_topics_limit_is_refused_by_the_broker(served: ServedBroker) -> None:
    ottla(served, "topics", "create", "small", "--config", "max.message.bytes=1000")

    stderr = ottla(served, "produce", "small", stdin="x" * 5000, status=1)

    assert "1 of 1 records to small were not acknowledged" in stderr


def test_consuming_from_offsets_and_partitions(served: ServedBroker) -> None:
    ottla(served, "topics", "create", "where", "--partitions", "2")
    for partition in ("0", "1"):
        ottla(served, "produce", "where", "--partition", partition, stdin="a\nb\nc\n")

    def consume(*options: str) -> list[str]:
        form = ("--format", "{partition}{value}", "--exit-at-end")
        return sorted(ottla(served, "consume", "where", *options, *form).splitlines())

    assert consume("--offset", "1") == ["0b", "0c", "1b", "1c"]
    assert consume("--offset", "-1", "--partition", "1") == ["1c"]
    assert consume("--offset", "99", "--partition", "1") == []
    assert consume("--from-beginning", "--partition", "0", "--max-messages", "2") == ["0a", "0b"]


def test_a_group_goes_on_where_it_stopped_and_can_be_reset(served: ServedBroker) -> None:
    ottla(served, "produce", "shared", stdin="".join(f"{number}\n" for number in range(10)))

    def consume(count: str) -> list[str]:
        options = ("--group", "readers", "--from-beginning", "--max-messages", count)
        return ottla(served, "consume", "shared", *options).splitlines()

    assert consume("4") == ["0", "1", "2", "3"]
    assert consume("2") == ["4", "5"]
    (group,) = json_of(served, "groups", "describe", "readers")
    assert (group["state"], group["members"]) == ("Empty", [])
    assert [(row["committed_offset"], row["lag"]) for row in group["partitions"]] == [(6, 4)]

    ottla(served, "groups", "reset-offsets", "readers", "--all-topics", "--shift-by", "-3", "--execute")
    assert consume("1") == ["3"]
    ottla(served, "groups", "delete", "readers")
    assert "readers" not in ottla(served, "groups", "list")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_consumer_commits_and_leaves(served: ServedBroker, number: signal.Signals) -> None:
    group = f"interrupted-{number.name}"
    ottla(served, "produce", "endless", stdin="a\n")
    consumer = start(served, "consume", "endless", "--group", group, "--from-beginning")
    assert consumer.stdout is not None
    assert consumer.stdout.readline() == "a\n"
    (stable,) = json_of(served, "groups", "describe", group)

    consumer.send_signal(number)
    _, stderr = consumer.communicate(timeout=WITHIN_S)

    assert (consumer.returncode, stderr) == (0, "")
    (left,) = json_of(served, "groups", "describe", group)
    assert (stable["state"], len(stable["members"])) == ("Stable", 1)
    assert stable["members"][0]["assignment"] == [{"topic": "endless", "partition": 0}]
    assert (left["state"], left["partitions"][0]["lag"]) == ("Empty", 0)


@pytest.mark.parametrize("group", [None, "orphans"])
@pytest.mark.parametrize("fate", ["killed", "paused"])
def test_a_consumer_without_its_broker_ends_at_ctrl_c(tmp_path: Path, fate: str, group: str | None) -> None:
    """The library would go on trying to commit and to leave."""
    with ServedBroker(tmp_path / "data", QUICK_GROUPS) as broker:
        ottla(broker, "produce", "endless", stdin="a\n")
        member = ("--group", group) if group is not None else ()
        consumer = start(broker, "consume", "endless", "--from-beginning", *member)
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        assert consumer.stdout.readline() == "a\n"
        if fate == "killed":
            broker.kill()
            assert "127.0.0.1" in consumer.stderr.readline()
        else:
            broker.pause()

        consumer.send_signal(signal.SIGINT)
        try:
            _, stderr = consumer.communicate(timeout=WITHIN_S)
        finally:
            consumer.kill()
            if fate == "paused":
                broker.resume()
    lost = ": group orphans may not have committed what was read last" if group else ""
    *library, last = stderr.splitlines()
    assert (consumer.returncode, last) == (130, f"Error: no broker answered at the end{lost}")
    assert all(line.startswith("ottla: ") for line in library)


def test_ctrl_c_ends_a_command_that_waits_for_an_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = "127.0.0.1:{1}".format(*silent.getsockname())
        command = [sys.executable, "-m", "ottla", "topics", "list", "--bootstrap", address]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        silent.settimeout(WITHIN_S)
        accepted, _ = silent.accept()
        with accepted:
            accepted.recv(1)
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=WITHIN_S) == ("", "")
    assert process.returncode == 130


def test_a_group_with_members_cannot_be_reset_or_deleted(served: ServedBroker) -> None:
    ottla(served, "produce", "busy", stdin="a\n")
    consumer = start(served, "consume", "busy", "--group", "busy", "--from-beginning")
    assert consumer.stdout is not None
    assert consumer.stdout.readline() == "a\n"

    reset = ("groups", "reset-offsets", "busy", "--topic", "busy", "--to-latest", "--execute")
    assert "it has members; stop its consumers first" in ottla(served, *reset, status=1)
    assert "it has members; stop its consumers first" in ottla(served, "groups", "delete", "busy", status=1)
    consumer.send_signal(signal.SIGINT)
    consumer.communicate(timeout=WITHIN_S)


def test_a_producer_delivers_each_line_as_it_is_typed(served: ServedBroker) -> None:
    ottla(served, "topics", "create", "typed")
    producer = start(served, "produce", "typed")
    assert producer.stdin is not None
    producer.stdin.write("first\n")
    producer.stdin.flush()
    consumer = start(served, "consume", "typed", "--from-beginning", "--max-messages", "2")
    assert consumer.stdout is not None
    assert consumer.stdout.readline() == "first\n"

    producer.stdin.write("second\n")
    producer.stdin.flush()

    assert consumer.stdout.readline() == "second\n"
    producer.send_signal(signal.SIGINT)
    stdout, stderr = producer.communicate(timeout=WITHIN_S)
    assert (producer.returncode, stderr) == (130, "")
    assert stdout.startswith("produced 2 records to typed")
    consumer.communicate(timeout=WITHIN_S)


def open_transaction(broker: ServedBroker, topic: str, line: str) -> "subprocess.Popen[str]":
    """A producer whose line is in the log, and that waits for another."""
    producer = start(broker, "produce", topic, "--transactional-id", topic)
    assert producer.stdin is not None
    producer.stdin.write(f"{line}\n")
    producer.stdin.flush()
    wait_for(lambda: line in consumed(broker, topic), WITHIN_S, "the record did not come", every_s=0.2)
    return producer


def test_a_transaction_is_aborted_at_ctrl_c(served: ServedBroker) -> None:
    ottla(served, "topics", "create", "undone")
    producer = open_transaction(served, "undone", "typed")

    producer.send_signal(signal.SIGINT)

    stdout, stderr = producer.communicate(timeout=WITHIN_S)
    assert (producer.returncode, stdout, stderr) == (130, "aborted the transaction of 1 records to undone\n", "")
    assert json_of(served, "transactions", "describe", "undone")[0]["state"] == "CompleteAbort"
    assert consumed(served, "undone", "--isolation", "read_committed") == []


def test_a_fenced_producer_ends_with_one_sentence(served: ServedBroker) -> None:
    ottla(served, "topics", "create", "fenced")
    older = open_transaction(served, "fenced", "old")
    ottla(served, "produce", "fenced", "--transactional-id", "fenced", stdin="new\n")

    stdout, stderr = older.communicate(input="late\n", timeout=WITHIN_S)

    assert (older.returncode, stdout, len(stderr.splitlines())) == (1, "", 1)
    assert "a newer producer has this transactional id, or the transaction took too long" in stderr
    assert consumed(served, "fenced", "--isolation", "read_committed") == ["new"]


def test_a_reader_that_has_seen_enough_ends_the_consumer_quietly(served: ServedBroker) -> None:
    ottla(served, "produce", "piped", stdin="x\n" * 20_000)
    consumer = start(served, "consume", "piped", "--from-beginning")
    assert consumer.stdout is not None
    assert consumer.stderr is not None
    consumer.stdout.readline()

    consumer.stdout.close()

    assert consumer.wait(WITHIN_S) == 0
    assert consumer.stderr.read() == ""


def test_consumer_with_a_timeout_ends_without_records(served: ServedBroker) -> None:
    ottla(served, "produce", "quiet", stdin="a\n")

    assert ottla(served, "consume", "quiet", "--from-beginning", "--timeout", "0.3") == "a\n"


def test_a_broker_that_is_gone_is_one_sentence() -> None:
    for arguments in (("consume", "t"), ("produce", "t"), ("groups", "list"), ("ping",)):
        command = [sys.executable, "-m", "ottla", *arguments, "--bootstrap", "127.0.0.1:1"]
        done = subprocess.run(command, capture_output=True, input="", text=True, timeout=WITHIN_S)
        sentence = "Error: cannot reach 127.0.0.1:1: nothing listens there\n"
        assert (done.returncode, done.stderr) == (1, sentence)


def test_ping(served: ServedBroker) -> None:
    assert ottla(served, "ping").startswith(f"{served.bootstrap} answered in ")
