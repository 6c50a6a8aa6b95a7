"""`ottla run`: a broker around a command, in processes of their own."""

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.commands.run import PROFILES, UNUSED_FAULTS, run_command
from ottla.cli.operations.run import RunOptions
from ottla.testing import fixture_options, profile

OTTLA_RUN = (sys.executable, "-m", "ottla", "run")
ENDED_WITHIN_S = 60
# What it says of each record: ok, or the name of the error.
PRODUCER = """
import os, sys
from confluent_kafka import Producer

producer = Producer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"], "retry.backoff.ms": 10})
for number in range(int(sys.argv[1])):
    said = lambda error, _: print(error.name() if error else "ok", flush=True)
    producer.produce("orders", b"%d" % number, on_delivery=said)
    assert producer.flush(20) == 0
"""
CONSUMER = """
import os
from confluent_kafka import Consumer

consumer = Consumer({
    "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"], "group.id": "shop", "auto.offset.reset": "earliest"
})
partitions = consumer.list_topics("orders", 10).topics["orders"].partitions
print(len(partitions), "partitions of", {len(each.replicas) for each in partitions.values()}, "replicas")
consumer.subscribe(["orders"])
print(sorted(consumer.poll(20).value() for _ in range(3)))
consumer.close()
"""
NOT_LEADER = "api=Produce,topic=orders,error=NOT_LEADER_OR_FOLLOWER,times=1"
REFUSE = "api=Produce,topic=orders,error=INVALID_RECORD"


def run(*arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*OTTLA_RUN, *arguments], capture_output=True, text=True, timeout=ENDED_WITHIN_S, **options)


def produce(*options: str, records: int = 1) -> "subprocess.CompletedProcess[str]":
    return run("--topic", "orders:1", *options, "--", sys.executable, "-c", PRODUCER, str(records))


def test_variables_have_the_address() -> None:
    names = ("KAFKA_BOOTSTRAP_SERVERS", "OTTLA_BOOTSTRAP", "BROKERS", "URL", "PLAIN")
    given = ("--env", "BROKERS", "--env=URL=kafka://{bootstrap}/?a={b}", "--env", "PLAIN=")
    done = run(*given, "sh", "-c", " ".join(f'echo "${name}";' for name in names))

    first, *others = done.stdout.splitlines()
    host, _, port = first.partition(":")
    assert (host, port.isdecimal(), done.stderr) == ("127.0.0.1", True, "")
    assert others == [first, first, f"kafka://{first}/?a={{b}}", ""]


def test_streams_and_arguments_are_the_commands_own() -> None:
    done = run("--", "sh", "-c", 'cat; echo "$@" >&2', "sh", "--", "-x", "--env", input="in\n")

    assert (done.returncode, done.stdout, done.stderr) == (0, "in\n", "-- -x --env\n")


@pytest.mark.parametrize("brokers", [1, 3])
def test_clients_of_other_processes_produce_and_consume(brokers: int, tmp_path: Path) -> None:
    for name, text in (("produce.py", PRODUCER), ("consume.py", CONSUMER)):
        (tmp_path / name).write_text(text)

    both = f"{sys.executable} produce.py 3 && {sys.executable} consume.py"
    done = run("--brokers", str(brokers), "--set", "num.partitions=4", "--", "sh", "-c", both, cwd=tmp_path)

    said = f"4 partitions of {{{brokers}}} replicas\n[b'0', b'1', b'2']\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\nok\nok\n" + said, "")


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_client_of_another_language_meets_the_faults() -> None:
    script = (
        'kcat -P -b "$BROKERS" -t orders -X retry.backoff.ms=10 && kcat -C -b "$BROKERS" -t orders -e -q -o beginning'
    )
    lost = ("--fault", "api=Produce,topic=orders,error=NOT_LEADER_OR_FOLLOWER,times=2")

    done = run("--env", "BROKERS", "--topic", "orders:1", *lost, "--", "sh", "-c", script, input="book\npen\n")

    assert (done.returncode, done.stdout) == (0, "book\npen\n")


@pytest.mark.parametrize(
    ("command", "status"),
    [(["true"], 0), (["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -9 $$"], 137), (["sh", "-c", "kill $$"], 143)],
)
def test_exit_status_is_the_commands(command: list[str], status: int) -> None:
    done = run("--", *command)

    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")


def test_command_that_cannot_run_is_one_sentence(tmp_path: Path) -> None:
    plain, script = tmp_path / "plain", tmp_path / "script"
    plain.write_text("true")
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    interpreter = "the interpreter of its first line does not exist"

    outcomes = {name: run("--", name) for name in ("no-such-command", str(plain), str(tmp_path), str(script))}

    assert [(each.returncode, each.stdout, each.stderr) for each in outcomes.values()] == [
        (127, "", "ottla: no-such-command: there is no such command\n"),
        (126, "", f"ottla: {plain} cannot be executed: Permission denied\n"),
        (126, "", f"ottla: {tmp_path} cannot be executed: Permission denied\n"),
        (126, "", f"ottla: {script} cannot be executed: {interpreter}\n"),
    ]


def test_fault_acts_on_a_client_of_another_process() -> None:
    done = produce("--fault", f"{REFUSE},times=2", records=3)

    refused = "INVALID_RECORD\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{refused}{refused}ok\n", "")


def test_rules_of_a_file_and_of_lines_hold_together(tmp_path: Path) -> None:
    rules = tmp_path / "rules.json"
    first = {"id": "first", "match": {"api": "Produce", "topic": "orders"}, "do": {"error": "INVALID_TIMESTAMP"}}
    rules.write_text(json.dumps({"rules": [first]}))

    done = produce("--faults", str(rules), "--fault", f"{REFUSE},after=first", records=3)

    assert (done.returncode, done.stdout.split()) == (0, ["INVALID_TIMESTAMP", "INVALID_RECORD", "ok"])


def test_chances_of_rules_follow_the_seed() -> None:
    by_chance = ("--fault", f"{REFUSE},probability=0.5,times=100")
    same, again, other = (produce(*by_chance, "--seed", seed, records=30).stdout for seed in ("7", "7", "8"))

    assert same == again != other
    assert set(same.split()) == {"INVALID_RECORD", "ok"}


UNUSED = ("--fault", "id=lost,api=Produce,topic=order,drop=response")
NEAR_MISS = (
    "ottla: 'lost' ({api: Produce, topic: order} → drop) never hit: 1 request matched all but topic: 'orders' ≠ 'order'"
)


@pytest.mark.parametrize(
    ("mode", "status", "said"),
    [(None, 3, [NEAR_MISS]), ("error", 3, [NEAR_MISS]), ("warn", 0, [NEAR_MISS]), ("ignore", 0, [])],
)
def test_rule_that_never_acted_is_status_3(mode: str | None, status: int, said: list[str]) -> None:
    done = produce("--seed", "1", *UNUSED, *(() if mode is None else ("--unused-faults", mode)))

    assert (done.returncode, done.stdout, done.stderr.splitlines()) == (status, "ok\n", said)


def test_optional_rule_and_rule_by_chance_need_not_act() -> None:
    done = produce("--fault", f"{REFUSE},nth=9,optional=true", "--fault", f"{REFUSE},probability=1e-9")

    assert (done.returncode, done.stderr) == (0, "")


def test_failed_command_keeps_its_status_and_shows_the_seed() -> None:
    done = run(*UNUSED, "--", "sh", "-c", "exit 7")
    given = run(*UNUSED, "--seed", "7", "--", "sh", "-c", "exit 7")

    assert (done.returncode, given.returncode, given.stderr) == (7, 7, "")
    assert done.stderr.startswith("ottla: fault rules, --seed ")


def test_report_shows_what_clients_did() -> None:
    def produced_and_ended(status: int, *options: str) -> "subprocess.CompletedProcess[str]":
        script = f"{sys.executable} -c '{PRODUCER}' 2; exit {status}"
        return run(*options, "--seed", "1", "--fault", REFUSE, "--", "sh", "-c", script)

    failed = produced_and_ended(7, "--report")
    quiet = produced_and_ended(7)
    passed = produced_and_ended(0, "--report")

    assert [(each.returncode, each.stderr) for each in (quiet, passed)] == [(7, ""), (0, "")]
    assert failed.returncode == 7
    why, found = failed.stderr.split("---- ottla: faults ----\n")
    faults, audit = found.split("---- ottla: audit ----\n")
    hint, wire = why.split("---- ottla: wire, last ")
    assert re.search(r"^---- .*\nProduce of rdkafka#\d was answered INVALID_RECORD once\n$", hint)
    assert re.search(r"Produce v\d+ \S+  INVALID_RECORD .*\n.*rdkafka#\d  Produce v\d+ \S.*  ok [\d.]+ ms\n$", wire)
    assert faults == "'fault-1' ({api: Produce, topic: orders} → error) had 1 hit\n"
    assert audit.startswith("P8 orders-0: 1 records got INVALID_RECORD (explained by fault rule 'fault-1')\n")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--fault", "api=Produse,error=INVALID_RECORD"], "--fault 'api=Produse,error=INVALID_RECORD': api: "),
        (["--fault", "api=Produce"], "--fault 'api=Produce': do: one action in a rule"),
        (["--fault", f"id=a,{REFUSE}", "--fault", f"id=a,{REFUSE}"], "id: there is a rule 'a' already"),
        (["--faults", "missing.json"], "--faults missing.json: No such file or directory"),
        (["--faults", "wrong.json"], "--faults wrong.json: not JSON: "),
        (["--faults", "bytes.json"], "--faults bytes.json: it is not UTF-8 text"),
        (["--set", "num.partition=3"], "there is no property num.partition; did you mean num.partitions?"),
        (["--topic", "a b:1"], "--topic a b:1: topic name 'a b' has characters other than"),
        (["--set", "num.partitions"], "'num.partitions' is not NAME=VALUE"),
        (["--topic", "orders"], "'orders' is not NAME:PARTITIONS"),
        (["--topic", "orders:0"], "'orders:0' is not NAME:PARTITIONS"),
        (["--topic", "a:1", "--topic", "a:2"], "a is given twice"),
        (["--env", "=a"], "'=a' is not NAME or NAME=TEXT"),
        (["--env", "URL=a://{boot}"], "URL=a://{boot}: nothing stands for {boot}, only {bootstrap} for the address"),
        (["--profile", "fast"], "'fast' is not one of 'test', 'kafka'"),
        (["--brokers", "0"], "0 is not in the range x>=1"),
        (["--data", "missing"], "Directory 'missing' does not exist"),
        (["--coverage-target", "2.8"], "'2.8' is no release of Kafka that is known here: 3.0 to 4.1"),
        (["--coverage-baseline", "missing"], "File 'missing' does not exist"),
        (["--audit", "some"], "'some' is not one of 'errors', 'all', 'off'"),
    ],
)
def test_wrong_option_is_a_sentence_and_nothing_starts(options: list[str], sentence: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.json").write_text("{")
    (tmp_path / "bytes.json").write_bytes(b"\xff")

    done = run(*options, "--", "touch", "started", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "started").exists()


def test_missing_command_is_wrong_usage() -> None:
    done = run("--brokers", "1")

    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, "Error: Missing argument 'COMMAND...'.")


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    done = run("--data", str(tmp_path), "--", "sh", "-c", f"ls {tmp_path}; ls {tmp_path}/*/data")

    assert "ottla-testing-" in done.stdout
    assert "meta.properties" in done.stdout
    assert not list(tmp_path.iterdir())


def test_held_request_does_not_hold_up_the_end(tmp_path: Path) -> None:
    began = time.monotonic()
    hold = ("--topic", "orders:1", "--fault", "api=Produce,hold", "--data", str(tmp_path))
    done = run(*hold, "--", "timeout", "--signal=KILL", "2", sys.executable, "-c", PRODUCER, "1")

    assert done.returncode == 137
    assert time.monotonic() - began < 30
    assert not list(tmp_path.iterdir())


def test_choices_are_those_of_the_kit() -> None:
    assert tuple(profile.PROFILES) == PROFILES
    assert fixture_options.UNUSED_FAULTS == UNUSED_FAULTS


def test_command_without_options_has_the_documented_defaults() -> None:
    context = run_command.make_context("run", ["--", "true", "--"])

    assert context.params == RunOptions(("true", "--"))._asdict()


def test_help_and_wrong_usage_load_nothing_of_the_kit() -> None:
    program = (
        "import sys; from click.testing import CliRunner; from ottla.cli.app import cli;"
        "said = CliRunner().invoke(cli, ['run', '--brokers', 'x', 'true']);"
        "assert said.exit_code == 2, said;"
        "assert CliRunner().invoke(cli, ['run', '--help']).exit_code == 0;"
        "print([name for name in sys.modules if 'ottla.testing' in name])"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_seed_is_there_when_the_command_starts(tmp_path: Path) -> None:
    seed = {"topics": {"orders": {"partitions": 1, "records": [{"value": "{n}", "count": 3}]}}}
    (tmp_path / "seed.json").write_text(json.dumps(seed))
    (tmp_path / "wrong.toml").write_text("[topic]")

    done = run("--seed-file", str(tmp_path / "seed.json"), "--", sys.executable, "-c", CONSUMER)
    wrong = run("--seed-file", str(tmp_path / "wrong.toml"), "--", "true")
    missing = run("--seed-file", str(tmp_path / "none.json"), "--", "true")

    assert done.stdout == "1 partitions of {1} replicas\n[b'0', b'1', b'2']\n"
    assert (wrong.returncode, missing.returncode) == (2, 2)
    assert wrong.stderr == "ottla: --seed-file: wrong.toml: topic: there is no such key; did you mean 'topics'?\n"
    assert missing.stderr == f"ottla: --seed-file {tmp_path / 'none.json'}: No such file or directory\n"


def test_coverage_is_printed_where_it_is_asked_for(tmp_path: Path) -> None:
    done = produce("--coverage")

    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout, len(lines)) == (0, "ok\n", 3)
    assert re.fullmatch(r"ottla: coverage: \d+ versions of APIs, by confluent-kafka-python .*", lines[0])
    assert lines[1].startswith("ottla: coverage: 0 errors answered (0 times by rules); never: ")

    again = produce("--coverage-file", str(tmp_path / "a.json"), "--coverage-target", "3.4.1", "--fault", NOT_LEADER)
    counted = json.loads((tmp_path / "a.json").read_text())
    assert counted["injected"] == {"Produce NOT_LEADER_OR_FOLLOWER": 1}
    assert counted["target"] == "3.4"
    assert len(again.stderr.splitlines()) == 4
    assert "are not those of Kafka 3.4" in again.stderr


def test_loss_of_coverage_is_status_3(tmp_path: Path) -> None:
    baseline = tmp_path / "baseline.json"
    assert produce("--coverage-file", str(baseline), "--fault", NOT_LEADER).returncode == 0

    lost = produce("--coverage-baseline", str(baseline))
    assert lost.returncode == 3
    assert lost.stderr.splitlines()[3:] == [
        "ottla: coverage: lost: errors: Produce NOT_LEADER_OR_FOLLOWER",
        "ottla: coverage: lost: injected: Produce NOT_LEADER_OR_FOLLOWER",
    ]
    assert run("--coverage-baseline", str(baseline), "--", "sh", "-c", "exit 7").returncode == 7


def test_coverage_that_cannot_be_kept_is_status_3(tmp_path: Path) -> None:
    done = run("--coverage-file", str(tmp_path / "none" / "a.json"), "--", "true")
    assert done.returncode == 3
    assert done.stderr.endswith("a.json: No such file or directory\n")

    other = tmp_path / "other.json"
    other.write_text("{}")
    done = run("--coverage-baseline", str(other), "--", "true")
    assert done.returncode == 3
    assert "lost: the baseline cannot be read: " in done.stderr
