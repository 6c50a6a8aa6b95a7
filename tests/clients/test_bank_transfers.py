"""Money is transferred between accounts in several partitions while brokers are killed; audits always add up.

OTTLA_BANK is how many seconds that goes on."""

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla import ClusterThread
from tests.clients.test_confluent_kafka import consumer
from tests.clients.test_transactions_on_failing_brokers import PROMPT, SETTINGS, WAIT_S, transactional
from tests.waiting import wait_for

SECONDS = int(os.environ.get("OTTLA_BANK", "10"))
PARTITIONS = 3
ACCOUNTS = 4
"""In each partition."""
TELLERS = 2
BROKER_RESTS_S = 2.5
pytestmark = pytest.mark.timeout(SECONDS + 240)

Posting = tuple[str, int, int]
"""The transfer, and how much it adds to which account."""


class Teller(threading.Thread):
    """One transactional producer, made again when it has failed. Every fifth transfer is aborted."""

    def __init__(self, cluster: ClusterThread, number: int, stopping: threading.Event) -> None:
        super().__init__()
        self._cluster, self._stopping, self.id = cluster, stopping, f"teller-{number}"
        self._rng = random.Random(number)
        self.committed: set[str] = set()
        self.aborted: set[str] = set()

    def run(self) -> None:
        numbers = count()
        while not self._stopping.is_set():
            try:
                sender = transactional(self._cluster, self.id)
                while not self._stopping.is_set():
                    self._transfer(sender, f"{self.id}/{next(numbers)}")
            except KafkaException:
                continue

    def _transfer(self, sender: Producer, transfer: str) -> None:
        # Between two partitions, or within one.
        amount, places = self._rng.randrange(1, 100), self._rng.choices(range(PARTITIONS), k=2)
        sender.begin_transaction()
        try:
            for partition, signed in zip(places, (-amount, amount), strict=True):
                posting: Posting = (transfer, self._rng.randrange(ACCOUNTS), signed)
                sender.produce("accounts", json.dumps(posting), partition=partition)
            if self._rng.random() < 0.2:
                sender.flush(WAIT_S)
                sender.abort_transaction(WAIT_S)
                self.aborted.add(transfer)
                return
            sender.commit_transaction(WAIT_S)
            self.committed.add(transfer)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            sender.abort_transaction(WAIT_S)
            self.aborted.add(transfer)


class Auditor(threading.Thread):
    """Reads committed postings of one partition; at each end that it may read to, transfers within it are whole."""

    def __init__(self, cluster: ClusterThread, partition: int, stopping: threading.Event) -> None:
        super().__init__()
        self._cluster, self._partition, self._stopping = cluster, partition, stopping
        self.postings: list[Posting] = []
        self.audits = 0
        self.audited_to = -1
        """The offset up to which it has read, at its last audit."""
        self.complaints: list[str] = []
        # Of each transfer, how often it was read here and what its postings add up to; and which of them are new.
        self._times: Counter[str] = Counter()
        self._sums: Counter[str] = Counter()
        self._unaudited: set[str] = set()

    def run(self) -> None:
        reader: Consumer = consumer(
            self._cluster, "audit", isolation_level="read_committed", enable_partition_eof=True, fetch_wait_max_ms=50
        )
        reader.assign([TopicPartition("accounts", self._partition, 0)])
        while not self._stopping.is_set():
            message: Any = reader.poll(0.2)
            if message is None:
                continue
            if message.error() is None:
                self._note(tuple(json.loads(message.value())))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                self._audit()
                self.audited_to = message.offset()
        reader.close()

    def _note(self, posting: Posting) -> None:
        transfer, _, amount = posting
        self.postings.append(posting)
        if transfer in self._times and transfer not in self._unaudited:
            self.complaints.append(f"partition {self._partition}: an audit has seen a part of {transfer}")
        self._times[transfer] += 1
        self._sums[transfer] += amount
        self._unaudited.add(transfer)

    def _audit(self) -> None:
        """What one transaction wrote here is seen whole: twice a transfer within the partition, else once."""
        self.audits += 1
        times, sums = self._times, self._sums
        torn = [each for each in self._unaudited if times[each] > 2 or (times[each] == 2 and sums[each])]
        self._unaudited.clear()
        if torn:
            self.complaints.append(f"partition {self._partition}: {torn}")


@contextmanager
def working(*threads: threading.Thread, stopping: threading.Event) -> Iterator[None]:
    for each in threads:
        each.start()
    try:
        yield
    finally:
        stopping.set()
        for each in threads:
            each.join(WAIT_S * 2)


def strike(cluster: ClusterThread) -> None:
    """Kills the brokers in turn; each comes back before the next one is killed."""
    until = time.monotonic() + SECONDS
    for turn in count():
        if time.monotonic() > until:
            return
        node_id = turn % PARTITIONS
        cluster.kill(node_id)
        time.sleep(BROKER_RESTS_S)
        cluster.restart(node_id)
        time.sleep(BROKER_RESTS_S)


def test_tx38_audits_add_up_while_brokers_are_killed() -> None:
    with ClusterThread(brokers=3, settings=SETTINGS | {"min.insync.replicas": "2"}, log_level="error") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("accounts", PARTITIONS, 3)])["accounts"].result(WAIT_S)
        closing, closed = threading.Event(), threading.Event()
        tellers = [Teller(cluster, number, closing) for number in range(TELLERS)]
        auditors = [Auditor(cluster, partition, closed) for partition in range(PARTITIONS)]
        with working(*auditors, stopping=closed):
            with working(*tellers, stopping=closing):
                strike(cluster)
            # The next producer of an id ends what the last one has left open.
            for each in tellers:
                transactional(cluster, each.id)
            wait_until_read_to_the_end(cluster, auditors)
        judge(tellers, auditors)


def wait_until_read_to_the_end(cluster: ClusterThread, auditors: list[Auditor]) -> None:
    """Until each has audited all of its partition, which has nothing undecided any more."""

    def is_audited(partition: int, auditor: Auditor) -> bool:
        decided, end = (end_of(cluster, partition, level) for level in ("read_committed", "read_uncommitted"))
        return decided == end == auditor.audited_to

    for partition, each in enumerate(auditors):
        wait_for(partial(is_audited, partition, each), WAIT_S, f"partition {partition} is not read to its end")


def end_of(cluster: ClusterThread, partition: int, level: str) -> int:
    reader = consumer(cluster, "ends", isolation_level=level, **PROMPT)
    try:
        return reader.get_watermark_offsets(TopicPartition("accounts", partition), WAIT_S)[1]
    finally:
        reader.close()


def judge(tellers: list[Teller], auditors: list[Auditor]) -> None:
    committed, aborted = (set().union(*(getattr(each, name) for each in tellers)) for name in ("committed", "aborted"))
    postings = [posting for each in auditors for posting in each.postings]
    halves = Counter(transfer for transfer, _, _ in postings)

    assert [each.complaints for each in auditors] == [[]] * PARTITIONS
    assert sum(amount for _, _, amount in postings) == 0
    assert set(halves.values()) == {2}
    assert committed <= halves.keys()
    assert not aborted & halves.keys()
    assert len(committed) > TELLERS * SECONDS / 2
    assert all(each.audits for each in auditors)
