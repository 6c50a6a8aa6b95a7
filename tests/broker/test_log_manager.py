"""What a broker does by itself."""

import threading
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.broker.upkeep import log_manager
from ottla.protocol.errors import KafkaStorageError
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.produce import ProduceResponse
from ottla.protocol.records.record import Record, build_batch
from ottla.storage import compaction
from ottla.storage.files import OsFile, OsFileSystem
from ottla.storage.local_log import LocalLog
from tests.broker.asking import close_nothing_cleanly
from tests.broker.wire import (
    WAIT_S,
    Client,
    batch,
    client_of,
    create_topic,
    fetch,
    fetch_request,
    produce,
    produce_request,
    running_broker,
    until,
    values_of,
)


async def test_old_segments_are_deleted(tmp_path: Path) -> None:
    """§16.6.1"""
    async with (
        running_broker(tmp_path, log_retention_check_interval_ms=20) as broker,
        client_of(broker) as client,
    ):
        await create_topic(client, "t", retention_bytes=2000, segment_bytes=1048576, retention_ms=-1)
        log = broker.replicas.partition("t", 0).log
        for _ in range(6):
            await produce(client, "t", bytes(500_000))

        await until(broker, lambda: log.log_start_offset > 0 and len(log.segments) < 4)

    assert broker.log_manager.retention_deleted_bytes >= 2 * 500_000


async def test_compacted_topics_are_compacted(tmp_path: Path) -> None:
    """§16.6.2"""
    async with running_broker(tmp_path, log_cleaner_backoff_ms=20) as broker, client_of(broker) as client:
        await create_topic(client, "t", cleanup_policy="compact", segment_ms=1, min_cleanable_dirty_ratio="0.01")
        for i in range(6):
            keyed = bytes(build_batch([Record(timestamp=1_000 + 10 * i, key=b"k", value=b"%d" % i)]))
            await client.call(produce_request("t", keyed), ProduceResponse, 9)
        log = broker.replicas.partition("t", 0).log

        await until(broker, lambda: log.cleaned_offset == 5)
        response = await client.call(fetch_request("t"), FetchResponse, 11)

    answer = response.responses[0].partitions[0]
    assert broker.log_manager.compaction_ns > 0
    assert answer.high_watermark == 6, "offsets stay"
    assert b"0" not in values_of(answer.records)


@pytest.fixture
def synced_in(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of threads that have synced a file or a directory."""
    threads: set[str] = set()
    fsync, sync_directory = OsFile.fsync, OsFileSystem.sync_directory

    def note() -> None:
        threads.add(threading.current_thread().name)

    monkeypatch.setattr(OsFile, "fsync", lambda self: (note(), fsync(self))[1])
    monkeypatch.setattr(OsFileSystem, "sync_directory", lambda self, path: (note(), sync_directory(self, path))[1])
    return threads


async def test_compaction_does_not_sync_on_the_loop(tmp_path: Path, synced_in: set[str]) -> None:
    async with running_broker(tmp_path, log_cleaner_backoff_ms=20) as broker, client_of(broker) as client:
        await keyed_segments(client, "t")
        synced_in.clear()
        log = broker.replicas.partition("t", 0).log

        await until(broker, lambda: log.cleaned_offset == 3)

        assert synced_in
        assert threading.main_thread().name not in synced_in


async def test_high_watermarks_are_checkpointed(tmp_path: Path) -> None:
    """§14.6.5"""
    interval = {"replica_high_watermark_checkpoint_interval_ms": 20}
    async with running_broker(tmp_path, **interval) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await produce(client, "t", b"a")

        checkpoint = tmp_path / "replication-offset-checkpoint"
        await until(broker, lambda: checkpoint.exists() and "t 0 1" in checkpoint.read_text())


async def test_deleted_log_leaves_no_high_watermark_to_the_next(tmp_path: Path) -> None:
    """A crash soon after would have taken uncommitted records of the new topic for committed ones."""
    interval = {"replica_high_watermark_checkpoint_interval_ms": 20}
    async with running_broker(tmp_path, **interval) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await create_topic(client, "other")
        await produce(client, "t", b"a")
        checkpoint = tmp_path / "replication-offset-checkpoint"
        await until(broker, lambda: checkpoint.exists() and "t 0 1" in checkpoint.read_text())
        broker.log_manager.stop()

        await client.call(DeleteTopicsRequest(topic_names=["t"]), DeleteTopicsResponse, 5)
        await until(broker, lambda: "t 0 1" not in checkpoint.read_text())
        assert "other 0 0" in checkpoint.read_text()


async def test_who_waits_for_lowered_recovery_points_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk let the checkpoint be neither written nor removed."""
    monkeypatch.setattr("ottla.broker.upkeep.log_manager.SYNC_INTERVAL_MS", 20)
    async with running_broker(tmp_path) as broker:
        done: list[bool] = []
        broker.parts.checkpoints._lowered(lambda: done.append(True), is_lowered=False)

        await until(broker, lambda: done == [True])


OLD_MS = 1_000


async def three_old_segments(client: Client, topic: str) -> None:
    await create_topic(client, topic, segment_ms=1, retention_ms=60_000, file_delete_delay_ms=0)
    for n in range(3):
        await client.call(
            produce_request(topic, bytes(build_batch([Record(timestamp=OLD_MS + 10 * n, value=b"x")]))),
            ProduceResponse,
            9,
        )


async def test_failed_log_does_not_stop_retention_of_others(tmp_path: Path) -> None:
    async with running_broker(tmp_path, log_retention_check_interval_ms=20) as broker, client_of(broker) as client:
        await create_topic(client, "broken")
        broken = broker.replicas.partition("broken", 0).log
        broken._local.fail(KafkaStorageError("a disk that failed earlier"))
        await three_old_segments(client, "t")
        log = broker.replicas.partition("t", 0).log

        await until(broker, lambda: log.log_start_offset == 3)
        broken._local.failure = None


async def test_files_of_old_segments_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """§16.6.1"""
    monkeypatch.setattr(log_manager, "DELETION_INTERVAL_MS", 20)
    async with running_broker(tmp_path, log_retention_check_interval_ms=20) as broker, client_of(broker) as client:
        await three_old_segments(client, "t")

        log = broker.replicas.partition("t", 0).log
        files = tmp_path / "t-0"
        await until(broker, lambda: log.log_start_offset == 3 and not list(files.glob("*[012].log*")))
        again = await fetch(client, "t", 3)

    assert (again.error_code, again.log_start_offset, again.high_watermark) == (0, 3, 3)


async def test_log_start_is_stored_before_old_segments_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """§16.6.1: after a loss of power any of them may be back."""
    stored: list[str] = []
    delete = LocalLog.schedule_delete

    def note(*arguments: Any) -> None:
        stored.append((tmp_path / "log-start-offset-checkpoint").read_text())
        delete(*arguments)

    monkeypatch.setattr(LocalLog, "schedule_delete", note)
    async with running_broker(tmp_path, log_retention_check_interval_ms=20) as broker, client_of(broker) as client:
        await three_old_segments(client, "t")
        log = broker.replicas.partition("t", 0).log
        await until(broker, lambda: log.log_start_offset == 3 and len(log.segments) == 1)

    assert len(stored) >= 3
    assert all("t 0 " in content for content in stored)


async def test_silent_producers_are_forgotten(tmp_path: Path) -> None:
    """§13.6.1, by a setting that may change while the broker runs"""
    async with (
        running_broker(tmp_path, producer_id_expiration_check_interval_ms=20) as broker,
        client_of(broker) as client,
    ):
        await create_topic(client, "t")
        idempotent = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
        await client.call(produce_request("t", idempotent), ProduceResponse, 9)
        producers = broker.replicas.partition("t", 0).log.producers
        assert len(producers) == 1

        await broker.config_admin.alter_broker(lambda: {"producer.id.expiration.ms": "1"}, of_all_brokers=True)

        await until(broker, lambda: len(producers) == 0)


async def test_complete_segments_are_synced_in_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """§16.2.3: a start after a crash reads again from the recovery point, and that must not stay at 0 for ever."""
    monkeypatch.setattr(log_manager, "SYNC_INTERVAL_MS", 20)
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await three_old_segments(client, "t")
        log = broker.replicas.partition("t", 0).log

        await until(broker, lambda: [segment.is_flushed for segment in log.segments] == [True, True, False])

        assert log.flushed_offset >= 2


async def test_new_segments_do_not_wait_for_the_disk_on_the_loop(
    tmp_path: Path, synced_in: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of those before them are durable by then."""
    monkeypatch.setattr(log_manager, "SYNC_INTERVAL_MS", 20)
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", segment_bytes=1048576)
        await produce(client, "t", bytes(600_000))
        log = broker.replicas.partition("t", 0).log
        await until(broker, lambda: log.has_durable_names)
        synced_in.clear()

        for segments in (2, 3):
            await produce(client, "t", bytes(600_000))
            assert len(log.segments) == segments
            await until(broker, lambda: log.has_durable_names)

        assert synced_in
        assert threading.main_thread().name not in synced_in


async def test_checkpoints_do_not_hold_up_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs two syncs, which take long while the disk is busy."""
    synced_in: set[str] = set()
    fsync = OsFile.fsync
    monkeypatch.setattr(OsFile, "fsync", lambda self: (synced_in.add(threading.current_thread().name), fsync(self))[1])
    intervals = {
        "replica_high_watermark_checkpoint_interval_ms": 10,
        "log_flush_offset_checkpoint_interval_ms": 10,
        "log_flush_start_offset_checkpoint_interval_ms": 10,
    }
    async with running_broker(tmp_path, **intervals) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        synced_in.clear()
        names = ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"]
        for name in names:
            (tmp_path / name).unlink(missing_ok=True)

        await until(broker, lambda: bool(synced_in) and all((tmp_path / name).exists() for name in names))

        assert synced_in
        assert threading.main_thread().name not in synced_in


async def keyed_segments(client: Client, topic: str, **configs: object) -> None:
    """Four segments of one record each, all with the same key."""
    await create_topic(
        client, topic, cleanup_policy="compact", segment_ms=1, min_cleanable_dirty_ratio="0.01", **configs
    )
    for n in range(4):
        keyed = bytes(build_batch([Record(timestamp=OLD_MS + 10 * n, key=b"k", value=b"%d" % n)]))
        await client.call(produce_request(topic, keyed), ProduceResponse, 9)


async def test_a_log_that_cannot_be_compacted_is_not_tried_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    compact = compaction.compact

    def counting(plan: compaction.CompactionPlan, pause: compaction.Pause) -> compaction.CompactionResult:
        tried.append(plan.directory.name)
        if plan.directory.name == "damaged-0":
            raise KafkaStorageError("a damaged batch")
        return compact(plan, pause)

    monkeypatch.setattr(compaction, "compact", counting)
    async with running_broker(tmp_path, log_cleaner_backoff_ms=200) as broker, client_of(broker) as client:
        await keyed_segments(client, "good")
        await keyed_segments(client, "damaged")
        good = broker.replicas.partition("good", 0).log

        await until(broker, lambda: good.cleaned_offset == 3 and "damaged-0" in tried)
        await broker.runtime.work_done()

    assert tried.count("damaged-0") <= 2, "once in the round that found work, once in the next"


async def test_recreated_topic_is_untouched_by_old_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_finish = threading.Event()
    has_begun = threading.Event()
    compact = compaction.compact

    def slow(plan: compaction.CompactionPlan, pause: compaction.Pause) -> compaction.CompactionResult:
        has_begun.set()
        may_finish.wait(WAIT_S)
        return compact(plan, pause)

    monkeypatch.setattr(compaction, "compact", slow)
    async with running_broker(tmp_path, log_cleaner_backoff_ms=20) as broker, client_of(broker) as client:
        await keyed_segments(client, "t")
        await until(broker, has_begun.is_set)
        await client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), DeleteTopicsResponse, 4)
        await create_topic(client, "t")
        await produce(client, "t", b"new")
        may_finish.set()
        await broker.runtime.work_done()
        fetched = await fetch(client, "t")

    assert values_of(fetched.records) == [b"new"]
    assert sorted(path.name for path in (tmp_path / "t-0").glob("*.log*")) == [f"{0:020d}.log"]


async def stop_compacting(broker: Broker) -> None:
    configs = {"cleanup.policy": "delete", "retention.ms": "-1"}
    await broker.config_admin.alter_topic("t", lambda: configs)
    await broker.runtime.work_done()


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_topic_whose_compaction_ended_survives_a_crash(tmp_path: Path, is_restarted: bool) -> None:
    """Its gaps must not be taken for the end of what is sound."""
    async with running_broker(tmp_path, log_cleaner_backoff_ms=20) as broker, client_of(broker) as client:
        await keyed_segments(client, "t")
        log = broker.replicas.partition("t", 0).log
        await until(broker, lambda: log.cleaned_offset == 3)
        await broker.runtime.work_done()
        if is_restarted:
            (tmp_path / "cleaner-offset-checkpoint").unlink()
        else:
            await stop_compacting(broker)
        close_nothing_cleanly(broker)
    if is_restarted:
        async with running_broker(tmp_path) as broker:
            await stop_compacting(broker)
            close_nothing_cleanly(broker)

    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        fetched = await fetch(client, "t", 3)

    assert (fetched.high_watermark, values_of(fetched.records)) == (4, [b"3"])


async def test_a_topic_deleted_while_its_log_is_synced_leaves_no_trace(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        for _ in range(5):
            await create_topic(client, "t", flush_messages=1)
            await produce(client, "t", b"a")
            client.send(produce_request("t", batch(b"b")), 9)
            client.send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 4)
            await client.receive(ProduceResponse, 9)
            await client.receive(DeleteTopicsResponse, 4)
            await broker.runtime.work_done()

        assert not broker.replicas._disk_sync._partition_of
        assert "sync failed" not in [event for event, _ in broker.log.events]


async def test_unread_segments_hold_no_memory_and_no_descriptors(tmp_path: Path) -> None:
    async with running_broker(tmp_path, log_retention_check_interval_ms=20) as broker, client_of(broker) as client:
        await create_topic(client, "t", segment_ms=1, retention_ms=-1)
        for n in range(3):
            old = bytes(build_batch([Record(timestamp=OLD_MS + 10 * n, value=b"%d" % n)]))
            await client.call(produce_request("t", old), ProduceResponse, 9)
        first = broker.replicas.partition("t", 0).log.segments[0]

        await until(broker, lambda: first._file is None and first._offset_index is None)
        again = await fetch(client, "t")

    assert values_of(again.records) == [b"0"]


async def test_receive_buffers_are_given_back_after_a_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_manager, "BUFFERS_INTERVAL_MS", 20)
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        pool = broker.server.receive_buffers._pool
        views = [pool.take() for _ in range(4)]
        await create_topic(client, "t")
        await produce(client, "t", bytes(500_000))
        assert pool.count > 4
        views.clear()

        await until(broker, lambda: pool.count == 1)
