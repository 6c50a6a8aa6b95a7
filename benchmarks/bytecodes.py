"""What small requests cost a broker in executed bytecodes: `python -m benchmarks.bytecodes`.

A microsecond of processor time is lost in the noise of a busy machine; the bytecodes that CPython executes for a
request are the same in every run, of one version of Python. Counted is the Python of the package `ottla`, with the
codecs it generates, in the thread of the event loop. What compiled libraries and the kernel do is not in it.

The broker is `ottla serve` in the main thread, the client a thread beside it. A request counts from its sending until
nothing has run for a while. Each is sent many times, and the count that most of the times share is the result: a timer
that is due in between adds, and what a busy machine delays beyond the while is missing. Nothing here names a module of
the broker's rooms, so that two trees can be compared.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import ottla
from benchmarks import processes, raw_client
from benchmarks.figure import NO_BASELINE, Figure
from benchmarks.raw_client import VERSIONS
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from benchmarks.transactional_client import TransactionalClient

PACKAGE = f"{Path(ottla.__file__).parent}/"
WARM_UPS = 8
RUNS = 24
# Until followers' next fetches wait at the leader, and all that a request has caused is done.
QUIET_S = 0.04
GROUP = "bench"
TOPIC = "small"
SETTINGS = ("group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=1")
# On Python 3.11; other versions have other bytecodes.
PYTHON = (3, 11)
BYTECODES_MAX: dict[str, int] = {}

Counts = dict[str, int]


class BytecodeCounter:
    """Counts what the thread that calls `start` executes of the package, function by function."""

    def __init__(self) -> None:
        self._counted: Counter[CodeType] = Counter()

    def start(self) -> None:
        sys.settrace(self._enter)

    def counts(self) -> Counter[CodeType]:
        return self._counted.copy()

    def _enter(self, frame: FrameType, _event: str, _argument: object) -> Callable[..., Any] | None:
        file = frame.f_code.co_filename
        # Generated codecs have the message for a file: <decode Heartbeat v4>.
        if not file.startswith((PACKAGE, "<")) or file.startswith("<frozen"):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._step

    def _step(self, frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        if event == "opcode":
            self._counted[frame.f_code] += 1
        return self._step


class Story:
    """The client's thread: sends requests one by one to a broker that counts."""

    def __init__(self, counter: BytecodeCounter, port: int) -> None:
        self.results: dict[str, Counter[str]] = {}
        self._counter = counter
        self._client = raw_client.when_serving(port)

    def one_broker(self) -> None:
        client = self._client
        raw_client.create_topic(client, TOPIC)
        member_id, generation = raw_client.joined_member(client, GROUP)
        self._measure("Heartbeat", raw_client.heartbeat_frame(GROUP, generation, member_id))
        records = raw_client.batch(1, 100)
        self._measure("Produce, acks=1", raw_client.produce_frame(TOPIC, records, 1))
        self._measure("Fetch of one record", raw_client.fetch_frame(TOPIC, 0, 1))
        self._measure("OffsetCommit", raw_client.commit_frame(GROUP, generation, member_id, TOPIC, 1))
        self._measure("OffsetFetch", raw_client.offset_fetch_frame(GROUP, TOPIC))
        self._measure("ListOffsets", raw_client.list_offsets_frame(TOPIC))
        self._measure("Metadata of one topic", raw_client.metadata_frame(TOPIC))
        self._measure("FindCoordinator", raw_client.find_coordinator_frame(GROUP))
        joins, syncs = [], []
        for newer in range(generation + 1, generation + 1 + WARM_UPS + RUNS):
            joins.append(self._counted(partial(self._join, member_id)))
            syncs.append(self._counted(partial(self._sync, member_id, newer)))
        self.results["JoinGroup"] = _most_frequent(joins)
        self.results["SyncGroup"] = _most_frequent(syncs)
        self._transactions()

    def _transactions(self) -> None:
        try:
            from benchmarks.transactional_client import TransactionalClient
        except ModuleNotFoundError:
            # A tree of before transactions has no messages of theirs.
            return
        for name, kip_890 in (("transaction of one record", False), ("transaction of one record, KIP-890", True)):
            producer = TransactionalClient(self._client, name, TOPIC, kip_890=kip_890)
            self._measure_call(name, partial(_commit_one_record, producer))

    def three_brokers(self) -> None:
        self._client = raw_client.replicated_topic(self._client, TOPIC, 3)
        time.sleep(1)
        self._measure("Produce, acks=all, three brokers", raw_client.produce_frame(TOPIC, raw_client.batch(1, 100), -1))

    def _join(self, member_id: str) -> None:
        request = raw_client.join_request(GROUP, member_id)
        response: Any = self._client.call(request, JoinGroupResponse, VERSIONS["JoinGroup"])
        assert response.error_code == 0, response

    def _sync(self, member_id: str, generation: int) -> None:
        request = raw_client.sync_request(GROUP, generation, member_id, [member_id])
        response: Any = self._client.call(request, SyncGroupResponse, VERSIONS["SyncGroup"])
        assert response.error_code == 0, response

    def _measure(self, name: str, frame: bytes) -> None:
        self._measure_call(name, lambda: self._client.pipeline(frame, 1, 1))

    def _measure_call(self, name: str, call: Callable[[], None]) -> None:
        runs = [self._counted(call) for _ in range(WARM_UPS + RUNS)]
        self.results[name] = _most_frequent(runs)

    def _counted(self, call: Callable[[], None]) -> Counter[str]:
        time.sleep(QUIET_S)
        before = self._counter.counts()
        call()
        time.sleep(QUIET_S)
        executed = self._counter.counts() - before
        named: Counter[str] = Counter()
        for code, count in executed.items():
            named[f"{code.co_filename.removeprefix(PACKAGE)} {code.co_qualname}"] += count
        return named


def _most_frequent(runs: Sequence[Counter[str]]) -> Counter[str]:
    warm = runs[WARM_UPS:]
    total = statistics.mode(map(Counter.total, warm))
    return next(run for run in warm if run.total() == total)


def _commit_one_record(producer: "TransactionalClient") -> None:
    producer.begin(100)
    producer.commit()


def _serve_and_count(brokers: int, output: Path, settings: Sequence[str]) -> None:
    """Ends the process, as `ottla serve` does."""
    from ottla.cli.main import main as serve

    counter = BytecodeCounter()
    port = processes.free_port(brokers)

    def send_and_report() -> None:
        try:
            story = Story(counter, port)
            story.one_broker() if brokers == 1 else story.three_brokers()
            output.write_text(json.dumps(story.results))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=send_and_report).start()
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        command, *options = processes.broker_command(directory)[3:]
        set_options = [word for setting in (*SETTINGS, *settings) for word in ("--set", setting)]
        sys.argv = ["ottla", command, *options, *set_options, "--brokers", str(brokers)]
        sys.argv[sys.argv.index("--listen") + 1] = f"127.0.0.1:{port}"
        counter.start()
        serve()


def measure(*settings: str) -> dict[str, Counts]:
    """Bytecodes by function, of each kind of request. `settings` are properties as `--set` takes them."""
    results: dict[str, Counts] = {}
    for brokers in (1, 3):
        with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
            output = Path(directory) / "counts"
            command = [sys.executable, "-m", "benchmarks.bytecodes", "--serve", str(brokers), str(output), *settings]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            results |= json.loads(output.read_text())
    return results


def figures() -> list[Figure]:
    limits = BYTECODES_MAX if sys.version_info[:2] == PYTHON else {}
    return [
        Figure(f"bytecodes of {name}", NO_BASELINE, "", [(sum(counts.values()), 1)], at_most=limits.get(name))
        for name, counts in measure().items()
    ]


def _print_table(results: dict[str, Counts], verbose: bool) -> None:
    for name, counts in results.items():
        print(f"{sum(counts.values()):6}  {name}")
        for function, count in sorted(counts.items(), key=lambda item: -item[1]) if verbose else ():
            print(f"        {count:6}  {function}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bytecodes", description="Bytecodes of small requests.")
    parser.add_argument("--verbose", action="store_true", help="also the functions of each request")
    parser.add_argument("--json", action="store_true", help="all of it, for programs")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="properties of the broker")
    parser.add_argument("--serve", nargs="+", metavar="WORD", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        brokers, output, *settings = options.serve
        _serve_and_count(int(brokers), Path(output), settings)
        return
    results = measure(*options.settings)
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        _print_table(results, options.verbose)


if __name__ == "__main__":
    main()
