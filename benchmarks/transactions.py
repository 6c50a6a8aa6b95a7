"""Transactions: how many, what they cost beside none at all, and what idle producers and many ids cost.

The C client speaks to one broker of Ottla and, for transactions per second, to one of Apache Kafka, in turn.
"""

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from confluent_kafka import Producer

from benchmarks import c_client, processes
from benchmarks.apache_kafka import ApacheKafka
from benchmarks.figure import NO_BASELINE, Figure
from benchmarks.kafka import BASELINE, Cost, Ottla
from benchmarks.processes import Server
from benchmarks.raw_client import RawClient, create_topic, find_coordinator, when_serving
from benchmarks.transactional_client import TransactionalClient, initialize
from ottla import ClusterThread
from ottla.broker.handlers.find_coordinator import TRANSACTION
from ottla.cluster.image import TRANSACTION_STATE
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse

ROUNDS = 5
# A virtual machine interprets what it has not yet compiled.
WARM_UP_ROUNDS = 3
TRANSACTIONS = 1_000
BULK_TRANSACTIONS, BULK_RECORDS = 10, 10_000
READ_TRANSACTIONS, READ_RECORDS, ABORT_EVERY = 200, 1_000, 10
RECORD_BYTES = 1024
WARM_UP_PRODUCERS, PRODUCERS = 200, 1_000
IDS = 10_000
WINDOW_S = 10
LOOK_EVERY_S = 0.005
SESSION_MS = 2_000
ANSWER_WITHIN_S = 60


def figures() -> list[Figure]:
    processes.unpin()
    return [*_per_second(), *_bulk(), *_read_committed(), *_idle_producers(), *_load(), _failover()]


def _per_second() -> Iterator[Figure]:
    rates, costs = [], []
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory,
        Ottla(directory).running() as ours,
        ApacheKafka(directory).running() as theirs,
    ):
        for number in range(WARM_UP_ROUNDS + ROUNDS):
            (rate, cost), (their_rate, their_cost) = (
                _transactions(server, f"transactions-{number}") for server in (ours, theirs)
            )
            rates.append((rate, their_rate))
            costs.append((cost, their_cost))
    name = "transactions of one record, one producer"
    yield Figure(name, BASELINE, "/s", rates[WARM_UP_ROUNDS:], at_least=1.5)
    yield Figure(f"{name}: broker's processor time of each", BASELINE, "µs", costs[WARM_UP_ROUNDS:], at_most=0.5)


def _transactions(server: Server, topic: str) -> tuple[float, float]:
    """How many a second, and microseconds of the broker for each."""
    client = when_serving(server.port)
    create_topic(client, topic)
    # When all coordinators serve.
    find_coordinator(client, topic, TRANSACTION)
    initialize(client, topic)
    before = server.cpu_seconds()
    seconds = c_client.transactions(_bootstrap(server), topic, TRANSACTIONS, 1, RECORD_BYTES)
    spent = server.cpu_seconds() - before
    return TRANSACTIONS / seconds, spent / (TRANSACTIONS + c_client.WARM_UP_TRANSACTIONS) * 1e6


def _bulk() -> Iterator[Figure]:
    """Beside the same records without transactions, at both brokers, and from a producer that differs in them alone."""
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory,
        Ottla(directory).running() as ours,
        ApacheKafka(directory).running() as theirs,
    ):
        sides = [_BulkSide(server) for server in (ours, theirs)]
        rounds = [[side.round() for side in sides] for _ in range(WARM_UP_ROUNDS + ROUNDS)][WARM_UP_ROUNDS:]
    name = f"produce in transactions of {BULK_RECORDS:,} records of 1 KiB"
    ways = [(each.in_transactions, each.without) for each, _ in rounds]
    yield from _speed_and_cost(name, "without transactions", ways, at_least=0.97)
    yield from _kept(name, rounds)
    waiting = [(each.in_transactions, each.idempotent) for each, _ in rounds]
    yield from _speed_and_cost(name, f"idempotent, flushed every {BULK_RECORDS:,}", waiting)


class _BulkRound(NamedTuple):
    """What one broker took for the same records in three ways."""

    in_transactions: Cost
    idempotent: Cost
    without: Cost

    @property
    def speed_kept(self) -> float:
        return self.in_transactions.megabytes_per_second / self.without.megabytes_per_second

    @property
    def cost_kept(self) -> float:
        return self.in_transactions.processor_seconds_per_gigabyte / self.without.processor_seconds_per_gigabyte


class _BulkSide:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._admin = when_serving(server.port)
        self._numbers = itertools.count()

    def round(self) -> _BulkRound:
        load = (BULK_TRANSACTIONS, BULK_RECORDS, RECORD_BYTES)
        records = BULK_TRANSACTIONS * BULK_RECORDS
        return _BulkRound(
            self._cost(lambda *topic: c_client.transactions(*topic, *load)),
            self._cost(lambda *topic: c_client.produce_idempotent(*topic, *load)),
            self._cost(lambda *topic: c_client.produce(*topic, records, RECORD_BYTES)),
        )

    def _cost(self, seconds_of: Callable[[str, str], float]) -> Cost:
        size = BULK_TRANSACTIONS * BULK_RECORDS * RECORD_BYTES
        topic = f"bulk-{next(self._numbers)}"
        create_topic(self._admin, topic)
        find_coordinator(self._admin, topic, TRANSACTION)
        processes.touch_memory(2 * size)
        return _cost(self._server, size, lambda: seconds_of(_bootstrap(self._server), topic))


def _kept(name: str, rounds: list[list[_BulkRound]]) -> Iterator[Figure]:
    """What transactions cost at either broker, with this client and on this machine."""
    speeds = [(ours.speed_kept, theirs.speed_kept) for ours, theirs in rounds]
    costs = [(ours.cost_kept, theirs.cost_kept) for ours, theirs in rounds]
    yield Figure(f"{name}: of the speed without", BASELINE, "", speeds, at_least=1)
    yield Figure(f"{name}: of the processor time without", BASELINE, "", costs, at_most=1)


def _read_committed() -> Iterator[Figure]:
    written = READ_TRANSACTIONS * READ_RECORDS
    aborted = len(range(0, READ_TRANSACTIONS, ABORT_EVERY)) * READ_RECORDS
    size = written * RECORD_BYTES
    with processes.broker() as server:
        topic = _new_topics(server)()
        c_client.transactions(
            _bootstrap(server), topic, READ_TRANSACTIONS, READ_RECORDS, RECORD_BYTES, abort_every=ABORT_EVERY
        )

        def committed() -> Cost:
            return _cost(server, size, lambda: c_client.consume(_bootstrap(server), topic, written - aborted))

        def uncommitted() -> Cost:
            return _cost(server, size, lambda: c_client.consume_uncommitted(_bootstrap(server), topic, written))

        rounds = [(committed(), uncommitted()) for _ in range(1 + ROUNDS)][1:]
    name = "read_committed, a tenth of the transactions aborted: bytes of the log"
    yield from _speed_and_cost(name, "read_uncommitted", rounds, at_least=0.95)


def _cost(server: Server, size: int, seconds_of: Callable[[], float]) -> Cost:
    before = server.cpu_seconds()
    seconds = seconds_of()
    return Cost(size / seconds / 1e6, (server.cpu_seconds() - before) / size * 1e9)


def _speed_and_cost(
    name: str, baseline: str, rounds: list[tuple[Cost, Cost]], *, at_least: float | None = None
) -> Iterator[Figure]:
    """Beside other work the second one is to be believed."""
    speeds = [(ours.megabytes_per_second, theirs.megabytes_per_second) for ours, theirs in rounds]
    costs = [(ours.processor_seconds_per_gigabyte, theirs.processor_seconds_per_gigabyte) for ours, theirs in rounds]
    yield Figure(name, baseline, "MB/s", speeds, at_least=at_least)
    at_most = None if at_least is None else round(1 / at_least, 2)
    yield Figure(f"{name}: broker's processor time", baseline, "s/GB", costs, at_most=at_most)


def _idle_producers() -> Iterator[Figure]:
    with processes.broker() as server:
        client = RawClient(server.port)
        create_topic(client, "open")
        find_coordinator(client, "open", TRANSACTION)
        for number in range(WARM_UP_PRODUCERS):
            TransactionalClient(client, f"warm-up-{number}", "open").begin(RECORD_BYTES)
        before = server.resident_bytes()
        for number in range(PRODUCERS):
            TransactionalClient(client, f"open-{number}", "open").begin(RECORD_BYTES)
        grown = (server.resident_bytes() - before) / PRODUCERS / 1024
        spent = server.cpu_seconds()
        time.sleep(WINDOW_S)
        percent = (server.cpu_seconds() - spent) / WINDOW_S * 100
    name = f"{PRODUCERS:,} producers with an open transaction"
    yield Figure(f"{name}: memory of each", NO_BASELINE, "KiB", [(grown, 1.0)], at_most=2)
    yield Figure(f"{name}, idle: processor time", NO_BASELINE, "% of a core", [(percent, 1.0)], at_most=1)


def _load() -> Iterator[Figure]:
    """From the first connection of a broker that starts again until it has loaded all of its ids."""
    seconds, spent = [], []
    options = ("--set", "transaction.state.log.num.partitions=1")
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        command = processes.broker_command(directory, *options)
        with processes.running(command) as server:
            client = RawClient(server.port)
            find_coordinator(client, "id", TRANSACTION)
            for number in range(IDS):
                initialize(client, f"id-{number}")
        for _ in range(ROUNDS):
            with processes.running(command) as server:
                client = RawClient(server.port)
                started, before = time.perf_counter(), server.cpu_seconds()
                while not _knows(client, f"id-{IDS - 1}"):
                    time.sleep(LOOK_EVERY_S)
                seconds.append((time.perf_counter() - started, 1.0))
                spent.append((server.cpu_seconds() - before, 1.0))
    name = f"coordinator loads {IDS:,} transactional ids"
    yield Figure(name, NO_BASELINE, "s", seconds, at_most=1)
    yield Figure(f"{name}: broker's processor time", NO_BASELINE, "s", spent, at_most=1)


def _failover() -> Figure:
    """A transaction is open when its coordinator, with many ids, is killed: until its client has committed it."""
    settings = {
        "broker.session.timeout.ms": SESSION_MS,
        "transaction.state.log.num.partitions": 1,
        "default.replication.factor": 3,
    }
    with ClusterThread(brokers=3, settings=settings, log_level="error") as cluster:
        ports = [int(address.rpartition(":")[2]) for address in cluster.bootstrap.split(",")]
        create_topic(RawClient(ports[0]), "t")
        find_coordinator(RawClient(ports[0]), "id", TRANSACTION)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "id", "log_level": 0})
        producer.init_transactions(ANSWER_WITHIN_S)
        coordinator = cluster.leader_of(TRANSACTION_STATE, 0)
        assert coordinator is not None
        client = RawClient(ports[coordinator])
        for number in range(IDS):
            initialize(client, f"id-{number}")
        producer.begin_transaction()
        producer.produce("t", b"before")
        assert producer.flush(ANSWER_WITHIN_S) == 0
        started = time.perf_counter()
        cluster.kill(coordinator)
        producer.commit_transaction(ANSWER_WITHIN_S)
        seconds = time.perf_counter() - started
    name = f"coordinator of {IDS:,} transactional ids killed, to the next commit"
    return Figure(name, NO_BASELINE, f"s, session {SESSION_MS / 1000:g}", [(seconds, 1.0)])


def _bootstrap(server: Server) -> str:
    return f"127.0.0.1:{server.port}"


def _new_topics(server: Server) -> Callable[[], str]:
    """Makes a topic at each call; its name."""
    client, names = RawClient(server.port), iter(range(1_000_000))

    def new_topic() -> str:
        name = f"bulk-{next(names)}"
        create_topic(client, name)
        return name

    return new_topic


def _knows(client: RawClient, transactional_id: str) -> bool:
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    response = client.call(request, DescribeTransactionsResponse, 0)
    assert isinstance(response, DescribeTransactionsResponse)
    return not response.transaction_states[0].error_code
