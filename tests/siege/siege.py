"""One siege from beginning to end: a broker, clients that behave well, and one attack after another."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException

from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.record import Record, build_batch
from tests.cluster_processes import wait_for
from tests.histories.checker import check
from tests.histories.events import FinalLog
from tests.histories.files import HistoryFile, now_us, read_histories
from tests.histories.violations import Partition
from tests.siege.attacks.attack import BAIT, BAIT_PARTITIONS, Attack
from tests.siege.broker import SiegedBroker, Usage
from tests.siege.limited import LONGEST_STEP
from tests.siege.probe import GROUP as PROBE_GROUP
from tests.siege.probe import NAME as PROBE
from tests.siege.verdict import Report, Round, Window
from tests.siege.wire import Wire, address_of
from tests.storm import final, storm
from tests.storm.settings import GROUP, PARTITIONS, TOPIC

MEMORY_MIB = 512
DISK_MIB = 192
PRODUCERS = {"confluent": ["confluent_producer"]}
READERS = {
    "member-a": ["aiokafka_member"],
    "member-b": ["confluent_member"],
}
# How many members the groups have.
MEMBERS = {GROUP: len(READERS), PROBE_GROUP: 1}
RECORDS_PER_S = 50
SEGMENT_BYTES = 100_000
BAIT_BYTES = 1_000_000
# Shares of an attack's time: before it, and of itself. The rest is for the broker to recover.
QUIET, LOUD = 0.35, 0.5
ENDS_WITHIN_S = 60
RELEASED_WITHIN_S = 20
FLOWING_WITHIN_S = 60
# Sessions of lost connections are kept for two minutes; free memory goes back to the system after half a minute.
ALL_RELEASED_WITHIN_S = 160


def run(
    directory: Path, attacks: Sequence[type[Attack]], *, seed: str, duration_s: float, waits_to_the_end: bool
) -> Report:
    """The attacks share the time. `waits_to_the_end`: until even what is kept for minutes should be released."""
    report = Report(MEMORY_MIB << 20)
    disk_mib = DISK_MIB if any(attack.needs_small_disk for attack in attacks) else 0
    with SiegedBroker(directory, memory_mib=MEMORY_MIB, disk_mib=disk_mib) as broker:
        try:
            _besiege(broker, attacks, seed, duration_s / len(attacks), report, waits_to_the_end=waits_to_the_end)
        except (AssertionError, KafkaException, OSError) as error:
            report.failures.append(f"{type(error).__name__}: {error}")
        if broker.served.is_running:
            status = broker.served.stop()
            if status:
                report.failures.append(f"the broker stopped with status {status}")
        else:
            report.failures.append("the broker ended by itself")
    report.failures += [f"the broker's log: {line}" for line in broker.log() if "MemoryError" in str(line)]
    if any("Traceback" in str(line) for line in broker.log()):
        report.failures.append(f"a traceback in {broker.served.stderr_path}")
    return report


def _besiege(
    broker: SiegedBroker,
    attacks: Sequence[type[Attack]],
    seed: str,
    each_s: float,
    report: Report,
    *,
    waits_to_the_end: bool,
) -> None:
    _lay_bait(broker)
    broker.create_topic(TOPIC, PARTITIONS, 1, segment_bytes=str(SEGMENT_BYTES))
    at_first = broker.usage(with_memory=True)
    with HistoryFile(broker.directory / "history-end.jsonl") as history:
        with storm.clients(broker, READERS, RECORDS_PER_S):  # type: ignore[arg-type]
            with storm.clients(broker, PRODUCERS, RECORDS_PER_S), _probe(broker):  # type: ignore[arg-type]
                _wait_until_flowing(broker)
                for attack in attacks:
                    report.rounds.append(_attack(broker, attack, seed, each_s))
                _wait_for_others(broker)
            final.wait_until_drained(broker.bootstrap, history)
        logs = final.read_back(broker.bootstrap, history)
    if waits_to_the_end:
        _wait_until_released(broker, at_first, report)
    _judge(broker.directory, logs, report)


def _attack(broker: SiegedBroker, attack: type[Attack], seed: str, each_s: float) -> Round:
    began_us, log_start = now_us(), broker.log_bytes
    time.sleep(QUIET * each_s)
    before = broker.usage()
    broker.forget_peak()
    loud_us = now_us()
    done, failure = _run_attack(broker, attack, seed, LOUD * each_s)
    ended_us = now_us()
    peak_bytes, longest_step_ms = broker.peak_bytes(), broker.counts()[LONGEST_STEP]
    after = _released(broker, before)
    return Round(
        attack=attack,
        quiet=Window(began_us, loud_us),
        loud=Window(loud_us, ended_us),
        done=done,
        before=before,
        after=after,
        peak_bytes=peak_bytes,
        longest_step_ms=longest_step_ms,
        log=broker.log(log_start, broker.log_bytes),
        failures=[failure] if failure else [],
    )


def _run_attack(broker: SiegedBroker, attack: type[Attack], seed: str, seconds: float) -> tuple[dict[str, int], str]:
    """What it has done, and what went wrong with it."""
    where = [*broker.addresses, "--pid", str(broker.pid), "--data-dir", str(broker.data_dir)]
    how = ["--seconds", str(seconds), "--seed", seed]
    errors = broker.directory / f"attack-{attack.name}.stderr"
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.siege.attacks", attack.name, *where, *how],
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
        try:
            printed, _ = process.communicate(timeout=seconds + ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return {}, f"{attack.name} did not end"
    if process.returncode:
        return {}, f"{attack.name} failed: {errors.read_text()[-300:]}"
    return json.loads(printed), ""


def _released(broker: SiegedBroker, before: Usage) -> Usage:
    """What the broker holds once it has released what it had for the attack, or when the time for that is over."""
    deadline = time.monotonic() + RELEASED_WITHIN_S
    while True:
        after = broker.usage()
        if not after.kept_since(before) or time.monotonic() > deadline:
            return after
        time.sleep(0.2)


def _wait_until_released(broker: SiegedBroker, at_first: Usage, report: Report) -> None:
    deadline = time.monotonic() + ALL_RELEASED_WITHIN_S
    while True:
        at_last = broker.usage(with_memory=True)
        kept = at_last.kept_since(at_first, to_the_end=True)
        if not kept or time.monotonic() > deadline:
            break
        time.sleep(1)
    report.at_first, report.at_last = at_first, at_last
    report.failures += [f"not released in the end: {each}" for each in kept]


def _lay_bait(broker: SiegedBroker) -> None:
    broker.create_topic(BAIT, BAIT_PARTITIONS, 1)
    record = Record(offset=0, timestamp=0, key=None, value=bytes(BAIT_BYTES))
    with Wire(address_of(broker.bootstrap), timeout_s=60) as wire:
        for index in range(BAIT_PARTITIONS):
            data = PartitionProduceData(index=index, records=memoryview(build_batch([record])))
            request = ProduceRequest(
                acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=BAIT, partition_data=[data])]
            )
            answer = wire.call(request, 7).responses[0].partition_responses[0]
            assert answer.error_code == 0, f"the bait was refused: {answer.error_code}"


@contextmanager
def _probe(broker: SiegedBroker) -> Iterator[None]:
    where = ["--login", broker.login, "--directory", str(broker.directory)]
    process = subprocess.Popen([sys.executable, "-m", "tests.siege.probe", *where])
    try:
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(ENDS_WITHIN_S) == 0, "the probe failed"
    finally:
        process.kill()
        process.wait()


def _wait_until_flowing(broker: SiegedBroker) -> None:
    """Until records are acknowledged and read, and members have met."""

    def flows() -> bool:
        return all(_lines(broker, name) > 200 for name in (*PRODUCERS, *READERS, PROBE))

    def have_met() -> bool:
        with Wire(address_of(broker.bootstrap)) as wire:
            groups = wire.call(DescribeGroupsRequest(groups=list(MEMBERS)), 4).groups
        return all((each.group_state, len(each.members)) == ("Stable", MEMBERS[each.group_id]) for each in groups)

    wait_for(flows, FLOWING_WITHIN_S, "the well-behaved clients made no progress")
    wait_for(have_met, FLOWING_WITHIN_S, "the members of the well-behaved groups did not meet")


def _wait_for_others(broker: SiegedBroker) -> None:
    """Each client goes on after the last attack."""
    before = {name: _lines(broker, name) for name in (*PRODUCERS, *READERS, PROBE)}

    def go_on() -> bool:
        return all(_lines(broker, name) > count for name, count in before.items())

    wait_for(go_on, FLOWING_WITHIN_S, "not all clients went on after the last attack")


def _lines(broker: SiegedBroker, name: str) -> int:
    path = broker.directory / f"history-{name}.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _judge(directory: Path, logs: dict[Partition, FinalLog], report: Report) -> None:
    events = list(read_histories(sorted(directory.glob("history-*.jsonl"))))
    sessions = [line.split(" ", 1) for line in (directory / "sessions.txt").read_text().splitlines()]
    report.violations += check(events, logs)
    report.fill(events, logs, [(int(at_us), what) for at_us, what in sessions])
