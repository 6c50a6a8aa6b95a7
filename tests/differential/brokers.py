"""The two brokers that are compared, each in a process of its own and with the same properties."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.apache_kafka import SHORT_LIFE, ApacheKafka
from ottla.cluster.features import UpgradeType
from ottla.cluster.image import SUPPORTED_FEATURES, TRANSACTION_VERSION
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.differential.connection import CLIENT_ID, Address, Connection
from tests.served import ServedBroker
from tests.waiting import wait_for

NODE_ID = 1
START_WITHIN_S = 60
# What both have: nothing waits, and every group's coordinator is there at once. Records, whose timestamps are old,
# do not go in the middle of an episode.
SHARED = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "log.retention.check.interval.ms": "86400000",
}
# A coordinator of Kafka otherwise collects writes for 5 ms before it answers; several threads would handle requests
# of several connections in any order. Its first look for what to delete would come 30 s after the start.
OF_KAFKA = {
    "group.coordinator.append.linger.ms": "0",
    "group.coordinator.threads": "1",
    "log.initial.task.delay.ms": "86400000",
    "num.io.threads": "1",
    "num.network.threads": "1",
}
AS_USUAL = {"internal.segment.bytes.min": "1048576"}
JVM_OPTIONS = ("-Xmx512m", *SHORT_LIFE)


@contextmanager
def both() -> Iterator[tuple[Address, Address]]:
    """Ottla and Apache Kafka when both serve. Raises NotMeasured where there is no Java, Maven or Kafka."""
    with (
        tempfile.TemporaryDirectory(prefix="ottla-differential-") as directory,
        kafka(directory, SUPPORTED_FEATURES[TRANSACTION_VERSION].highest) as theirs,
        ottla(Path(directory) / "ottla") as ours,
    ):
        yield ours, theirs


@contextmanager
def kafka(directory: str, transaction_version: int) -> Iterator[Address]:
    """When it serves, with the feature at that level. Raises NotMeasured where there is no Java, Maven or Kafka."""
    node = ApacheKafka(directory, more={**SHARED, **OF_KAFKA}, transaction_version=transaction_version)
    with node.running(JVM_OPTIONS) as server:
        address = ("127.0.0.1", server.port)
        wait_until_serving(address)
        try:
            yield address
        finally:
            server.kill()


@contextmanager
def ottla(data_dir: Path) -> Iterator[Address]:
    with ServedBroker(
        data_dir, {**SHARED, **AS_USUAL}, arguments=["--node-id", str(NODE_ID), "--log-level", "error"]
    ) as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        try:
            yield host, int(port)
        finally:
            broker.kill()


def wait_until_serving(address: Address) -> None:
    wait_for(
        lambda: _serves(address), START_WITHIN_S, f"Apache Kafka did not serve within {START_WITHIN_S} s", every_s=0.1
    )


def _serves(address: Address) -> bool:
    try:
        with Connection(address) as connection:
            answer = connection.ask(MetadataRequest(topics=[]), 12)
            return answer is not None and bool(answer.brokers)
    except OSError:
        return False


def restore_transaction_version(address: Address) -> None:
    """Drawn requests of UpdateFeatures may have lowered it. Below level 2 what a producer may do differs on purpose."""
    highest = SUPPORTED_FEATURES[TRANSACTION_VERSION].highest
    update = FeatureUpdateKey(
        feature=TRANSACTION_VERSION, max_version_level=highest, upgrade_type=int(UpgradeType.UPGRADE)
    )
    with Connection(address) as connection:

        def is_restored() -> bool:
            if _transaction_version(connection) == highest:
                return True
            connection.ask(UpdateFeaturesRequest(feature_updates=[update]), 1)
            return False

        wait_for(is_restored, START_WITHIN_S, f"{TRANSACTION_VERSION} is not {highest}", every_s=0.05)


def _transaction_version(connection: Connection) -> int:
    versions = connection.ask(ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1"), 4)
    finalized = () if versions is None else versions.finalized_features
    return next((each.max_version_level for each in finalized if each.name == TRANSACTION_VERSION), 0)
