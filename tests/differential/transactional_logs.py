"""`python -m tests.differential.transactional_logs` has Apache Kafka 4.1 write the logs of
`tests/golden/kafka_4_1_transactions`, and writes down beside them what it answers to questions about them.

Two scripts, with a restart between them: leaders and coordinators have other epochs after it. Batches are dated, each
phase two hours after the one before, so that the log rolls where a phase begins; markers have the time of the clock.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.apache_kafka import ApacheKafka
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.record import Record, build_batch
from tests.broker.requests import delete_records
from tests.differential.brokers import JVM_OPTIONS, OF_KAFKA, SHARED, wait_until_serving
from tests.differential.connection import Address
from tests.differential.readiness import until_coordinators_serve
from tests.differential.script import Script
from tests.differential.scripted_producer import ScriptedProducer
from tests.differential.scripts_of_groups import ScriptedGroup
from tests.differential.transactional_answers import answers_about

GOLDEN = Path(__file__).parents[1] / "golden" / "kafka_4_1_transactions"
NAME = "tx"
PHASE_MS = 7_200_000
LEVEL = 2
CONFIG = {
    **SHARED,
    **OF_KAFKA,
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.roll.ms": "3600000",
    "log.message.timestamp.after.max.ms": str(2**63 - 1),
}
EXPIRES_AT_ONCE = {
    "transactional.id.expiration.ms": "2000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}
NOT_OF_A_PARTITION = ("*checkpoint", "meta.properties", ".kafka_cleanshutdown")
FENCES = "InitProducerId v5 none: CONCURRENT_TRANSACTIONS none"
OLDER, NEWER = 11, 12
"""Versions of Produce by which a producer of `transaction.version` 0 or 1 is known from one of 2."""


class Writer:
    """A transactional producer that does everything as clients of one version of the protocol do."""

    def __init__(self, script: Script, name: str, start_ms: int, *, is_newer: bool, timeout_ms: int = 900_000) -> None:
        self._producer = ScriptedProducer(script, name)
        self._start_ms = start_ms
        self._is_newer = is_newer
        self._sequences: dict[tuple[str, int], int] = {}
        self._timeout_ms = timeout_ms

    def initialize(self) -> None:
        self._producer.initialize(timeout_ms=self._timeout_ms)
        self._sequences.clear()

    def write(self, topic: str, index: int, *values: str, phase: int, codec: Codec = Codec.NONE) -> None:
        if not self._is_newer:
            self._producer.add({topic: [index]})
        timestamp = self._start_ms + phase * PHASE_MS
        records = [
            Record(offset=n, timestamp=timestamp + n, key=b"k", value=value.encode()) for n, value in enumerate(values)
        ]
        producer, sequence = self._producer, self._sequences.get((topic, index), 0)
        batch = build_batch(
            records,
            codec=codec,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        self._sequences[topic, index] = sequence + len(values)
        version = NEWER if self._is_newer else OLDER
        what = f"Produce v{version} {producer.transactional_id} {topic}-{index} {','.join(values)}"
        producer.send_batches(
            {(topic, index): bytes(batch)}, version=version, what=what, transactional_id=producer.transactional_id
        )

    def commit_offset(self, group: ScriptedGroup, index: int, offset: int) -> None:
        if not self._is_newer:
            self._producer.add_offsets(group.group_id)
        group.commit_with(self._producer, offset, indexes=[index], version=5 if self._is_newer else 3)

    def end(self, *, commit: bool) -> None:
        self._producer.end(commit=commit, version=5 if self._is_newer else 4)
        if self._is_newer:
            self._sequences.clear()

    def until(self, state: str) -> None:
        self._producer.until(state)


def before_the_restart(script: Script, start_ms: int) -> None:
    """Ends of both kinds, transactions that lie in two segments, offsets, and an id that expires."""
    script.create("t", "cut", partitions=2)
    group = ScriptedGroup(script)
    older = Writer(script, "older", start_ms, is_newer=False)
    newer = Writer(script, "newer", start_ms, is_newer=True)
    gone = Writer(script, "gone", start_ms, is_newer=True)
    gone.initialize()
    gone.write("t", 0, "gone", phase=0)
    gone.end(commit=True)
    gone.until("")
    older.initialize()
    newer.initialize()
    for commit in (True, False):
        older.write("t", 0, f"older {commit}", "and more", phase=0)
        older.write("t", 1, f"older {commit}", phase=0, codec=Codec.GZIP)
        older.commit_offset(group, 0, 10 + commit)
        older.end(commit=commit)
        newer.write("t", 0, f"newer {commit}", phase=0, codec=Codec.ZSTD)
        newer.commit_offset(group, 1, 20 + commit)
        newer.end(commit=commit)
    older.write("t", 0, "older, in two segments", phase=0)
    newer.write("t", 0, "newer, in two segments", phase=0)
    older.write("t", 0, "older, in the second one", phase=1)
    newer.write("t", 0, "newer, in the second one", phase=1)
    newer.end(commit=False)
    newer.write("t", 0, "newer, inside the other's", phase=1)
    newer.end(commit=True)
    older.end(commit=False)


def after_the_restart(script: Script, start_ms: int) -> None:
    """Zombies, timeouts, deleted beginnings, and at last a transaction of either kind that stays open."""
    group = ScriptedGroup(script)
    older = Writer(script, "older", start_ms, is_newer=False)
    newer = Writer(script, "newer", start_ms, is_newer=True)
    late = Writer(script, "late", start_ms, is_newer=True, timeout_ms=300)
    empty = Writer(script, "empty", start_ms, is_newer=False)
    for each in (older, newer, late, empty):
        each.initialize()
    older.write("t", 0, "older, fenced", phase=2)
    Writer(script, "older", start_ms, is_newer=False).initialize()
    older.until("CompleteAbort")
    older.initialize()
    late.write("t", 1, "too late", phase=2)
    late.until("CompleteAbort")
    older.write("cut", 0, "aborted", "and half deleted", phase=2)
    older.end(commit=False)
    newer.write("cut", 0, "committed", phase=2)
    newer.end(commit=True)
    script.look(delete_records(script.own("cut"), 0, 1), 2)
    open_older = Writer(script, "open-older", start_ms, is_newer=False)
    open_newer = Writer(script, "open-newer", start_ms, is_newer=True)
    for phase, each in enumerate((open_older, open_newer), 2):
        each.initialize()
        each.write("t", 0, "open", "and more", phase=phase)
        each.commit_offset(group, phase - 2, 30 + phase)
    open_older.write("t", 1, "open", phase=3, codec=Codec.LZ4)
    open_newer.write("cut", 1, "open", "and half deleted", phase=3)
    script.look(delete_records(script.own("cut"), 1, 1), 2)
    for commit in (False, True):
        newer.write("t", 0, f"newer {commit}, behind open ones", phase=3)
        older.write("t", 0, f"older {commit}, behind open ones", phase=3)
        newer.end(commit=commit)
        older.end(commit=commit)
    open_newer.write("t", 0, "open, in the next segment", phase=4)


@contextmanager
def running(node: ApacheKafka) -> Iterator[Address]:
    """Until it has stopped in an orderly way."""
    with node.running(JVM_OPTIONS) as server:
        address = ("127.0.0.1", server.port)
        wait_until_serving(address)
        until_coordinators_serve([address])
        yield address


def play(address: Address, plays: Callable[[Script, int], None], start_ms: int) -> Sequence[str]:
    """What was asked, and answered. Nothing is refused but the first try of who fences another."""
    script = Script(address, NAME)
    try:
        plays(script, start_ms)
    finally:
        script.close()
    refused = [line for line in script.lines if "NONE" not in line]
    assert refused in ([], [FENCES]), refused
    return script.lines


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ottla-differential-") as name:
        directory = Path(name)
        node = ApacheKafka(name, more=CONFIG | EXPIRES_AT_ONCE, transaction_version=LEVEL)
        start_ms = int(time.time() * 1000)
        with running(node) as address:
            asked = list(play(address, before_the_restart, start_ms))
        properties = directory / "server.properties"
        expiring = "".join(f"{name}={value}\n" for name, value in EXPIRES_AT_ONCE.items())
        properties.write_text(properties.read_text().replace(expiring, ""))
        with running(node) as address:
            asked += play(address, after_the_restart, start_ms)
            found = answers_about(address, NAME)
        copy_logs(directory / "data")
    (GOLDEN / "answers.json").write_text(json.dumps({"asked": asked, **found}, indent=1) + "\n")


def copy_logs(data: Path) -> None:
    for old in GOLDEN.glob("*-[0-9]*"):
        shutil.rmtree(old)
    for log in data.glob("*-[0-9]*"):
        if log.name != "__cluster_metadata-0":
            shutil.copytree(log, GOLDEN / log.name)
    for pattern in NOT_OF_A_PARTITION:
        for path in data.glob(pattern):
            if path.name != "bootstrap.checkpoint":
                shutil.copy(path, GOLDEN)


if __name__ == "__main__":
    main()
