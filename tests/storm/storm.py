"""One storm from beginning to end."""

import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from confluent_kafka import KafkaException

from tests.cluster.etcd_members import EtcdMembers
from tests.cluster.etcd_server import EtcdServer
from tests.cluster_processes import ClusterProcesses
from tests.histories.checker import Violation, check
from tests.histories.events import Acknowledged, CommitAcknowledged, Event, FinalLog, Read, Sent
from tests.histories.files import HistoryFile, read_histories
from tests.histories.records import is_repeated_in_a_new_epoch
from tests.histories.violations import Partition
from tests.storm import final, final_transactions
from tests.storm.clients.watchdog import HANGS
from tests.storm.faults import ETCD, Action, Step
from tests.storm.replicas import differences, high_watermarks, writers
from tests.storm.settings import OUTPUT, PARTITIONS, REPLICATION_FACTOR, TOPIC, broker_settings
from tests.storm.transforms import Fate, Output, complaints, read_fates

CLIENT_STOPS_WITHIN_S = 90
# Kinds and further arguments of clients by name. Who is impatient leaves records in doubt.
PRODUCERS = {
    "confluent": ["confluent_producer"],
    "aiokafka": ["aiokafka_producer"],
    "impatient": ["confluent_producer", "--delivery-timeout-ms", "2500"],
}
READERS = {
    "member-a": ["aiokafka_member"],
    "member-b": ["aiokafka_member"],
    "member-c": ["confluent_member"],
    "watcher": ["watcher"],
}
TRANSFORMERS = {
    "transformer-a": ["confluent_transformer"],
    "transformer-b": ["confluent_transformer"],
    "transformer-c": ["aiokafka_transformer"],
}


@dataclass
class Outcome:
    """What happened and what was wrong; a storm is passed if there is nothing in `violations` and `failures`."""

    done: Counter[Action] = field(default_factory=Counter)
    """To brokers."""
    done_to_etcd: Counter[Action] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Everything else: brokers that ended by themselves, replicas that differ, clients that failed, no progress."""
    longest_silence_s: float = 0.0
    """The longest time without any acknowledgement."""
    longest_open_s: float = 0.0
    """How long a transaction was open that its producer never ended."""


def run(directory: Path, steps: list[Step], *, duration_s: float, brokers: int, records_per_s: int) -> Outcome:
    """Leaves histories, logs and data in the directory."""
    outcome = Outcome()
    cluster = ClusterProcesses(directory, broker_settings(brokers), brokers=brokers, has_three_etcd_members=True)
    logs: dict[Partition, FinalLog] = {}
    try:
        with HistoryFile(directory / "history-end.jsonl") as history:
            logs = _weather(cluster, history, steps, duration_s, records_per_s, outcome)
        _compare_replicas(cluster, logs, outcome)
        logs = _with_writers(cluster, logs)
    except (AssertionError, KafkaException) as error:
        outcome.failures.append(str(error))
    finally:
        cluster.close()
    outcome.failures += _complaints(cluster)
    outcome.failures += _fatal_errors(directory)
    _judge(directory, logs, outcome)
    return outcome


def _weather(
    cluster: ClusterProcesses,
    history: HistoryFile,
    steps: list[Step],
    duration_s: float,
    records_per_s: int,
    outcome: Outcome,
) -> dict[Partition, FinalLog]:
    replicas = min(len(cluster.brokers), REPLICATION_FACTOR)
    cluster.start()
    cluster.create_topic(TOPIC, PARTITIONS, replicas, segment_bytes="1000000")
    cluster.create_topic(OUTPUT, PARTITIONS, replicas, segment_bytes="1000000")
    with clients(cluster, READERS | TRANSFORMERS, records_per_s):
        with clients(cluster, PRODUCERS, records_per_s):
            _strike(cluster, steps, duration_s, outcome)
            cluster.wait_until_whole()
        final.wait_until_drained(cluster.bootstrap, history)
        final_transactions.wait_until_drained(cluster.bootstrap)
    with final_transactions.left_open(cluster.bootstrap) as since:
        logs = final.read_back(cluster.bootstrap, history)
        outcome.longest_open_s = final_transactions.wait_until_stable(cluster.bootstrap, since)
    outputs = final_transactions.read_back(cluster.bootstrap)
    _judge_transactions(cluster.directory, logs, outputs, outcome)
    cluster.wait_until_whole()
    return logs


@contextmanager
def clients(cluster: ClusterProcesses, kinds: Mapping[str, Sequence[str]], records_per_s: int) -> Iterator[None]:
    """Clients for as long as the context is open; AssertionError if one of them fails."""
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, kind in kinds.items():
            with (cluster.directory / f"client-{name}.stderr").open("wb") as errors:
                running[name] = subprocess.Popen(_client_command(cluster, name, kind, records_per_s), stderr=errors)
        yield
        for process in running.values():
            process.send_signal(signal.SIGTERM)
        statuses = {name: process.wait(CLIENT_STOPS_WITHIN_S) for name, process in running.items()}
        failed = [name for name, status in statuses.items() if status != 0]
        assert not failed, f"clients failed: {failed}; see client-NAME.stderr"
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"a client did not end: {error}") from None
    finally:
        for process in running.values():
            process.kill()
            process.wait()


def _client_command(cluster: ClusterProcesses, name: str, kind: Sequence[str], records_per_s: int) -> list[str]:
    history = str(cluster.directory / f"history-{name}.jsonl")
    where = ["--name", name, "--bootstrap", cluster.bootstrap, "--history", history]
    return [sys.executable, "-m", "tests.storm.clients", *kind, *where, "--records-per-s", str(records_per_s)]


def _strike(cluster: ClusterProcesses, steps: list[Step], duration_s: float, outcome: Outcome) -> None:
    started = time.monotonic()
    for step in steps:
        time.sleep(max(0.0, started + step.at_s - time.monotonic()))
        _perform(cluster, step)
        if step.node_id > 0:
            outcome.done[step.action] += 1
        else:
            outcome.done_to_etcd[step.action] += 1
    time.sleep(max(0.0, started + duration_s - time.monotonic()))
    for broker in cluster.brokers.values():
        if not broker.bootstrap:
            broker.wait_until_ready()


def _perform(cluster: ClusterProcesses, step: Step) -> None:
    if step.node_id <= ETCD:
        _perform_on_etcd(cluster.etcd, step)
        return
    broker = cluster.brokers[step.node_id]
    if step.action is not Action.START:
        assert broker.is_running, f"broker {step.node_id} ended by itself"
    match step.action:
        case Action.KILL:
            broker.kill()
            broker.bootstrap = ""
        case Action.STOP:
            # A process that is not yet ready may not even look out for the signal.
            expected = (0,) if broker.is_ready else (0, -signal.SIGTERM)
            status = broker.stop()
            broker.bootstrap = ""
            assert status in expected, f"broker {step.node_id} stopped with status {status}"
        case Action.START:
            broker.launch()
        case Action.PAUSE:
            broker.pause()
        case Action.RESUME:
            broker.resume()
        case Action.REVOKE_LEASE if cluster.etcd is not None:
            cluster.etcd.revoke_lease_of(step.node_id)


def _perform_on_etcd(etcd: EtcdMembers | None, step: Step) -> None:
    if etcd is None:
        return
    members = etcd.members if step.node_id == ETCD else [etcd.members[-step.node_id - 1]]
    match step.action:
        case Action.MOVE_LEADER:
            etcd.move_leader()
        case Action.COMPACT:
            etcd.compact()
        case _:
            for member in members:
                _perform_on_member(member, step.action)


def _perform_on_member(member: EtcdServer, action: Action) -> None:
    match action:
        case Action.KILL:
            member.kill()
        case Action.START:
            member.start()
        case Action.PAUSE:
            member.send_signal(signal.SIGSTOP)
        case _:
            member.send_signal(signal.SIGCONT)


def _compare_replicas(cluster: ClusterProcesses, logs: Mapping[Partition, FinalLog], outcome: Outcome) -> None:
    statuses = cluster.stop()
    assert all(status == 0 for status in statuses.values()), f"exit statuses at the end: {statuses}"
    directories = [broker.data_dir for broker in cluster.brokers.values()]
    ends: dict[Partition, int] = {}
    for directory in directories:
        for partition, high_watermark in high_watermarks(directory).items():
            ends[partition] = max(high_watermark, ends.get(partition, 0))
    for partition, log in logs.items():
        read_to = log.records[-1][0] + 1 if log.records else log.log_start_offset
        assert ends.get(partition) == read_to, f"{partition} was read to {read_to}, noted is {ends.get(partition)}"
    outcome.failures += differences(directories, ends)


def _with_writers(cluster: ClusterProcesses, logs: Mapping[Partition, FinalLog]) -> dict[Partition, FinalLog]:
    """As the first broker that has the partition has stored it; whether the others differ is known by then."""
    return {
        (topic, index): replace(log, writers=writers(directory))
        for (topic, index), log in logs.items()
        for directory in [
            next(
                broker.data_dir / f"{topic}-{index}"
                for broker in cluster.brokers.values()
                if (broker.data_dir / f"{topic}-{index}").exists()
            )
        ]
    }


def _repeated_in_new_epochs(logs: Mapping[Partition, FinalLog], events: Sequence[Event]) -> int:
    """How many records an idempotent producer has repeated in another of its epochs."""
    idempotent = {event.value for event in events if isinstance(event, Sent) and event.idempotent}
    count = 0
    for log in logs.values():
        offsets: defaultdict[str, list[int]] = defaultdict(list)
        for offset, value in log.records:
            if value in idempotent:
                offsets[value].append(offset)
        count += sum(len(each) > 1 and is_repeated_in_a_new_epoch(log, each) for each in offsets.values())
    return count


def _complaints(cluster: ClusterProcesses) -> list[str]:
    """The brokers' logs with a traceback: errors that the code does not expect."""
    return [
        f"a traceback in {broker.stderr_path}"
        for broker in cluster.brokers.values()
        if broker.stderr_path.exists() and "Traceback" in broker.stderr
    ]


def _fatal_errors(directory: Path) -> list[str]:
    """Of idempotent producers that librdkafka gave up: the broker had forgotten them, or what they had written."""
    complaints: list[str] = []
    for path in sorted(directory.glob("client-*.stderr")):
        complaints += [line for line in path.read_text(errors="replace").splitlines() if "cannot go on" in line]
    return complaints


def _judge_transactions(
    directory: Path, logs: Mapping[Partition, FinalLog], outputs: Mapping[int, list[Output]], outcome: Outcome
) -> None:
    fates = read_fates(directory)
    counts = Counter(fates.values())
    outcome.counts["records transformed"] = sum(map(len, outputs.values()))
    outcome.counts["transactions committed"] = counts[Fate.COMMITTED]
    outcome.counts["transactions aborted"] = counts[Fate.ABORTED]
    outcome.counts["transactional producers replaced"] = counts[Fate.REPLACED]
    errors = [path.read_text(errors="replace") for path in directory.glob("client-*.stderr")]
    outcome.counts["clients that hung"] = sum(text.count(HANGS) for text in errors)
    outcome.failures += complaints(logs, outputs, fates)
    if not counts[Fate.COMMITTED]:
        outcome.failures.append("no transaction was committed")


def _judge(directory: Path, logs: Mapping[Partition, FinalLog], outcome: Outcome) -> None:
    events: list[Event] = list(read_histories(sorted(directory.glob("history-*.jsonl"))))
    kinds = Counter(type(event) for event in events)
    outcome.counts["sent"] = kinds[Sent]
    outcome.counts["acknowledged"] = kinds[Acknowledged]
    outcome.counts["in doubt"] = kinds[Sent] - kinds[Acknowledged]
    outcome.counts["read"] = kinds[Read]
    outcome.counts["commits acknowledged"] = kinds[CommitAcknowledged]
    times = sorted(event.at_us for event in events if isinstance(event, Acknowledged))
    outcome.longest_silence_s = max((later - earlier for earlier, later in pairwise(times)), default=0) / 1e6
    if not logs:
        outcome.failures.append("the logs could not be read back: nothing was judged")
        return
    outcome.violations += check(events, logs)
    outcome.counts["records repeated in a new producer epoch"] = _repeated_in_new_epochs(logs, events)
    names = {event.producer for event in events if isinstance(event, Sent)}
    outcome.counts["producers restarted"] = len(names) - len(PRODUCERS)
    if not (kinds[Acknowledged] and kinds[Read] and kinds[CommitAcknowledged]):
        outcome.failures.append(f"the storm went past the clients: {dict(outcome.counts)}")
