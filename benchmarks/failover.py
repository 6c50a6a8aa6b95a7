"""How long a client that retries waits for its next acknowledgement when the leader goes: killed, or stopped."""

import asyncio
import logging
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from aiokafka import AIOKafkaProducer

from benchmarks.figure import NO_BASELINE, Figure, NotMeasured
from tests.cluster_processes import ETCD_MISSING, ClusterProcesses, etcd_is_installed, wait_for
from tests.served import ServedBroker

KILLS, STOPS = 50, 20
TOPIC = "failover"
SEND_EVERY_S = 0.005
ACKNOWLEDGED_WITHIN_S = 60
SETTINGS = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "min.insync.replicas": "2",
    "log.cleaner.enable": "false",
}


def figures() -> list[Figure]:
    if not etcd_is_installed():
        raise NotMeasured(ETCD_MISSING)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory,
        ClusterProcesses(Path(directory), SETTINGS) as cluster,
    ):
        cluster.create_topic(TOPIC, 1, 3)
        with RetryingClient(cluster.bootstrap) as client:
            killed = [_wait_s(cluster, client, ServedBroker.kill) for _ in range(KILLS)]
            stopped = [_wait_s(cluster, client, ServedBroker.stop) for _ in range(STOPS)]
    return [
        _figure(f"leader killed to acks=all success, p99 of {KILLS}", killed, at_most=4),
        _figure(f"leader stopped to acks=all success, p99 of {STOPS}", stopped, at_most=1),
    ]


def _figure(name: str, waits_s: list[float], *, at_most: float) -> Figure:
    middle = sorted(waits_s)[len(waits_s) // 2]
    note = f"median {middle:.2f} s"
    print(f"{name}: {_p99(waits_s):.2f} s, {note}", file=sys.stderr)
    return Figure(name, NO_BASELINE, "s", [(_p99(waits_s), 1)], at_most=at_most, note=note)


def _p99(values: list[float]) -> float:
    """The smallest value that no more than one in a hundred exceeds."""
    return sorted(values)[-(len(values) // 100) - 1]


def _wait_s(cluster: ClusterProcesses, client: "RetryingClient", strike: Callable[[ServedBroker], object]) -> float:
    """Seconds that the record waited longest that was sent from the blow on; leaves the cluster whole."""
    cluster.wait_until_whole()
    leader = cluster.leader_of(TOPIC, 0)
    struck_at = time.monotonic()
    strike(leader)
    waited_s = client.longest_wait_s(struck_at, time.monotonic())
    leader.start()
    return waited_s


class RetryingClient:
    """Sends a record every few milliseconds, and knows when each was sent and acknowledged.

    It is aiokafka's producer, which asks for the leader again after every refusal and lost connection, a tenth of a
    second apart. librdkafka does so once a second, and would show its own timer: up to two seconds more."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stopping = threading.Event()
        self._delivered: list[tuple[float, float]] = []
        self._errors: list[str] = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._send_until_stopped()))

    def longest_wait_s(self, first_sent_at: float, last_sent_at: float) -> float:
        """Of the records sent from `first_sent_at` on, up to the first that was sent after `last_sent_at`."""

        def is_over() -> bool:
            assert not self._errors, self._errors[0]
            return bool(self._delivered) and self._delivered[-1][0] > last_sent_at

        wait_for(is_over, ACKNOWLEDGED_WITHIN_S, "nothing was acknowledged any more")
        return max(acked - sent for sent, acked in self._delivered if sent >= first_sent_at)

    def __enter__(self) -> "RetryingClient":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._stopping.set()
        self._thread.join()

    async def _send_until_stopped(self) -> None:
        settings = {"enable_idempotence": True, "acks": "all", "retry_backoff_ms": 100}
        async with AIOKafkaProducer(bootstrap_servers=self._bootstrap, **settings) as producer:
            while not self._stopping.is_set():
                sent_at = time.monotonic()
                delivery = await producer.send(TOPIC, b"x", partition=0)
                delivery.add_done_callback(lambda done, sent_at=sent_at: self._answered(done, sent_at))
                await asyncio.sleep(SEND_EVERY_S)

    def _answered(self, delivery: "asyncio.Future[object]", sent_at: float) -> None:
        if (error := delivery.exception()) is not None:
            self._errors.append(repr(error))
        self._delivered.append((sent_at, time.monotonic()))
