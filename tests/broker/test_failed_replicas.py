"""Disks that are full or damaged, where other replicas are well."""

from pathlib import Path

import pytest

from ottla.broker.broker import Broker
from ottla.broker.replicas import failed_replicas
from ottla.protocol.errors import ErrorCode, KafkaStorageError
from ottla.replication.partition import Partition
from ottla.storage.append_queue import AppendQueue
from tests.broker.clusters import create_topic, running_cluster, state_of, until
from tests.broker.replicas import ALL, in_sync, leader_of, produced, replica, same_everywhere, three_brokers
from tests.broker.wire import client_of, fetch


def segment_file(broker: Broker, name: str = "t") -> Path:
    return replica(broker, name).log.directory / "00000000000000000000.log"


def damage(broker: Broker, position: int) -> None:
    """Turns a byte over, behind the broker's back."""
    with segment_file(broker).open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 0xFF]))


class Full:
    """The disk takes nothing for one broker, while it `is_full`."""

    def __init__(self, patch: pytest.MonkeyPatch, broker: Broker) -> None:
        self.is_full = True
        directory = broker.log_directory.path
        write_queue = AppendQueue._write_queue

        def write(queue: AppendQueue) -> None:
            if not self.is_full or queue._local.directory.parent != directory:
                write_queue(queue)
                return
            queue.batches.clear()
            queue._undo_queue(None)
            raise KafkaStorageError("no space is left on the device")

        patch.setattr(AppendQueue, "_write_queue", write)


async def test_follower_with_a_full_disk_leaves_the_isr_and_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with three_brokers(tmp_path) as cluster:
        await create_topic(cluster.brokers[0], "t", ALL)
        disk = Full(monkeypatch, cluster.brokers[2])

        assert await produced(cluster, b"a") is ErrorCode.NONE
        await in_sync(cluster, 0, 1)
        disk.is_full = False

        await in_sync(cluster, 0, 1, 2)
        await same_everywhere(cluster, 1)


async def test_a_leader_with_a_full_disk_hands_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with three_brokers(tmp_path) as cluster:
        await create_topic(cluster.brokers[0], "t", ALL)
        disk = Full(monkeypatch, cluster.brokers[0])

        assert await produced(cluster, b"a") is ErrorCode.KAFKA_STORAGE_ERROR
        await until(lambda: cluster.leader_of("t", 0) != 0)
        await until(lambda: replica(leader_of(cluster)).is_leader)
        assert await produced(cluster, b"b") is ErrorCode.NONE
        disk.is_full = False

        await in_sync(cluster, 0, 1, 2)
        await same_everywhere(cluster, 1)


async def test_only_replica_with_a_full_disk_recovers_with_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_cluster(tmp_path, 2) as cluster:
        await create_topic(cluster.brokers[0], "t", [0])
        disk = Full(monkeypatch, cluster.brokers[0])
        assert await produced(cluster, b"a") is ErrorCode.KAFKA_STORAGE_ERROR
        disk.is_full = False

        assert await produced(cluster, b"a") is ErrorCode.NONE
        assert state_of(cluster.brokers[0]).leader == 0


@pytest.mark.parametrize("damaged", [0, 2], ids=["leader", "follower"])
async def test_a_damaged_segment_is_copied_again(tmp_path: Path, damaged: int) -> None:
    """Found by a consumer that reads there; no client gets damaged records, and no acknowledged record is lost."""
    async with three_brokers(tmp_path) as cluster:
        await create_topic(cluster.brokers[0], "t", ALL)
        for value in (b"a", b"b", b"c"):
            assert await produced(cluster, value) is ErrorCode.NONE
        await same_everywhere(cluster, 3)
        broker = cluster.brokers[damaged]
        damage(broker, segment_file(broker).stat().st_size // 2)

        async with client_of(broker) as client:
            assert (await fetch(client, "t", 1)).error_code == ErrorCode.CORRUPT_MESSAGE

        await until(lambda: damaged not in state_of(broker).isr)
        await in_sync(cluster, 0, 1, 2)
        await same_everywhere(cluster, 3)
        assert cluster.leader_of("t", 0) != damaged or damaged != 0


async def test_damage_that_could_not_be_cut_off_is_cut_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk had no descriptors for it at first."""
    refused: list[str] = []
    cut = failed_replicas.restart

    def refuse(partition: Partition, offset: int) -> None:
        refused.append("once")
        if len(refused) == 1:
            raise KafkaStorageError("too many files are open")
        cut(partition, offset)

    monkeypatch.setattr(failed_replicas, "restart", refuse)
    monkeypatch.setattr(failed_replicas, "RETRY_MS", 20)
    async with three_brokers(tmp_path) as cluster:
        await create_topic(cluster.brokers[0], "t", ALL)
        for value in (b"a", b"b", b"c"):
            assert await produced(cluster, value) is ErrorCode.NONE
        await same_everywhere(cluster, 3)
        broker = cluster.brokers[2]
        damage(broker, segment_file(broker).stat().st_size // 2)

        async with client_of(broker) as client:
            assert (await fetch(client, "t", 1)).error_code == ErrorCode.CORRUPT_MESSAGE

        await until(lambda: len(refused) == 2)
        await in_sync(cluster, 0, 1, 2)
        await same_everywhere(cluster, 3)
