"""Java's client and franz-go over the last epoch of their producer id, and while `transaction.version` changes."""

import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from ottla import BrokerThread, ClusterThread
from ottla.cluster.features import UpgradeType
from ottla.cluster.image import TRANSACTION_STATE, TRANSACTION_VERSION
from ottla.coordinator.transactions.entry import TransactionState
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.testing.faults.actions import Disconnect, Error
from tests.clients.go_programs import built
from tests.clients.stepped import GO, SteppedClient, go_client, java_client
from tests.clients.test_confluent_kafka import WAIT_S, consumer, create_topic
from tests.clients.test_librdkafka_transactions import TO_THE_END, values, wait_until_over
from tests.clients.test_transactions_on_failing_brokers import SETTINGS, placed_apart, wait_until_read
from tests.differential.connection import Connection
from tests.simulation.cluster.small_epochs import SMALL_EPOCH_MAX, small_epochs
from tests.waiting import wait_for

LONG_S = 90

pytestmark = pytest.mark.timeout(4 * LONG_S)


@pytest.fixture
def worn() -> Iterator[Any]:
    """A cluster whose producer epochs are used up soon."""
    with small_epochs(are_drawn=True), ClusterThread(brokers=3, settings=SETTINGS, log_level="error") as cluster:
        yield cluster


@pytest.mark.parametrize("kind", [pytest.param("java", marks=pytest.mark.java), "franz-go"])
def test_tx20_next_producer_id_outlives_its_coordinator(worn: Any, kind: str, tmp_path: Path) -> None:
    """EndTxn has promised it; the coordinator is killed before the markers, and the next one knows of it."""
    coordinator, _ = placed_apart(worn)
    bootstrap = worn.bootstrap
    client = (
        java_client(bootstrap, "t", "tx") if kind == "java" else go_client(built(GO, tmp_path), bootstrap, "t", "tx")
    )
    with client:
        for number in range(SMALL_EPOCH_MAX + 1):
            client.write(str(number))
            # The producer before has had epoch 0.
            if number == SMALL_EPOCH_MAX - 2:
                end_without(worn, coordinator, client)
            else:
                client.end(commit=True)

    wait_until_read(worn, 0, *[str(number).encode() for number in range(SMALL_EPOCH_MAX + 1)])
    pairs = ongoing(stored(worn)["tx"])
    assert len({producer_id for producer_id, _ in pairs}) == 2
    assert [epoch for _, epoch in pairs] == [*range(1, SMALL_EPOCH_MAX), 0, 1]
    assert pairs == sorted(pairs)


def end_without(cluster: Any, coordinator: int, client: SteppedClient) -> None:
    """The coordinator has decided, cannot send its markers, and is killed."""
    refused = Error("NOT_ENOUGH_REPLICAS")
    with cluster.faults.fault(api="WriteTxnMarkers", peer="broker", do=refused, times="unlimited") as rule:
        client.end(commit=True)
        rule.wait(hits=1, within=WAIT_S)
        assert cluster.leader_of(TRANSACTION_STATE, 0) == coordinator
        cluster.kill(coordinator)


class Running:
    """A producer with one transaction after another, each of one record, until it is stopped."""

    def __init__(self, client: SteppedClient, name: str) -> None:
        self.name = name
        self.written: list[bytes] = []
        self.failure: BaseException | None = None
        self._client = client
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._is_stopped.is_set():
                value = f"{self.name}-{len(self.written)}"
                self._client.write(value)
                self._client.end(commit=True)
                self.written.append(value.encode())
        except BaseException as failure:
            self.failure = failure
            raise

    def wait_for_more(self, count: int) -> None:
        enough = len(self.written) + count
        wait_for(
            lambda: len(self.written) >= enough or self.failure is not None, LONG_S, lambda: f"{self.name} stands still"
        )
        assert self.failure is None

    def stop(self) -> None:
        self._is_stopped.set()
        self._thread.join()
        assert self.failure is None


class Stored(NamedTuple):
    """The beginning of a value in `__transaction_state`."""

    version: int
    producer_id: int
    epoch: int
    timeout_ms: int
    state: int


def stored(broker: Any) -> dict[str, list[Stored]]:
    """All that was ever known of each transactional id."""
    reader = consumer(broker, "operators", **TO_THE_END)
    reader.assign([TopicPartition(TRANSACTION_STATE, 0, OFFSET_BEGINNING)])
    found: dict[str, list[Stored]] = {}
    while (message := reader.poll(WAIT_S)) is not None and message.error() is None:
        key, value = message.key() or b"", message.value() or b""
        found.setdefault(key[4:].decode(), []).append(Stored(*struct.unpack_from(">hqhib", value)))
    reader.close()
    return found


def ongoing(known: list[Stored]) -> list[tuple[int, int]]:
    """Producer id and epoch of each transaction."""
    return [(each.producer_id, each.epoch) for each in known if each.state == TransactionState.ONGOING]


def set_level(broker: Any, level: int) -> None:
    """And have clients connect again, who hear of it then."""
    kind = UpgradeType.UPGRADE if level else UpgradeType.SAFE_DOWNGRADE
    update = FeatureUpdateKey(feature=TRANSACTION_VERSION, max_version_level=level, upgrade_type=int(kind))
    host, _, port = broker.bootstrap.rpartition(":")
    with Connection((host, int(port))) as connection:
        assert connection.ask(UpdateFeaturesRequest(feature_updates=[update]), 1).error_code == 0


@pytest.mark.java
def test_tx21_levels_rise_under_running_producers() -> None:
    """The application sees no error; values of version 0, then of 1; from level 2 on an epoch for each transaction."""
    settings = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
    with BrokerThread(settings=settings) as broker, ExitStack() as stack:
        create_topic(broker, "t")  # type: ignore[arg-type]
        set_level(broker, 0)
        names = ("one", "two")
        clients = [stack.enter_context(java_client(broker.bootstrap, "t", name)) for name in names]
        producers = [Running(client, name) for client, name in zip(clients, names, strict=True)]
        for level in (0, 1, 2):
            if level:
                set_level(broker, level)
                # A client hears of it when it connects again.
                lost = Disconnect("after")
                with broker.faults.fault(api="EndTxn", nth="every 2", times=4, do=lost) as rule:
                    rule.wait(hits=4, within=LONG_S)
            for producer in producers:
                producer.wait_for_more(4)
        for producer in producers:
            producer.stop()
            wait_until_over(broker, producer.name)  # type: ignore[arg-type]

        seen, records = values(broker, "t"), stored(broker)
    for producer in producers:
        assert [value for value in seen if value.startswith(producer.name.encode())] == producer.written
        known = records[producer.name]
        assert [each.version for each in known] == sorted(each.version for each in known)
        assert {each.version for each in known} == {0, 1}
        epochs = [epoch for _, epoch in ongoing(known)]
        assert len({each.producer_id for each in known}) == 1
        assert {each.epoch for each in known if each.version == 0} == {epochs[0]}
        assert [later - earlier for earlier, later in pairwise(epochs[-4:])] == [1, 1, 1]
