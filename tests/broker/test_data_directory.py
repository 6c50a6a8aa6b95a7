"""A broker's logs are opened and closed in threads, and the mark of a clean stop says the truth all the same."""

import asyncio
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from ottla.cli.operations.serve import ServeOptions, run
from ottla.cluster.embedded import EmbeddedStore
from ottla.protocol.errors import KafkaStorageError
from ottla.storage.files import OsFile
from ottla.storage.log_directory import CLEAN_SHUTDOWN_FILE, LogDirectory
from tests.broker.wire import RecordingLog, client_of, create_topic, fetch, produce, values_of

PARTITIONS = 20
KAFKAS = Path(__file__).parents[1] / "golden" / "kafka_4_1"


def a_broker(tmp_path: Path, store: EmbeddedStore) -> Broker:
    """One of several that share a loop, as far as it knows."""
    return Broker(ServerConfig(), data_dir=tmp_path, port=0, store=store.session(), log=RecordingLog())


async def with_records(broker: Broker) -> None:
    async with client_of(broker) as client:
        await create_topic(client, "t", PARTITIONS)
        for index in range(PARTITIONS):
            await produce(client, "t", b"%d" % index, index=index)


def when_synced(patch: pytest.MonkeyPatch, look: Callable[[OsFile], None]) -> None:
    sync = OsFile.fsync

    def looked_at(file: OsFile) -> None:
        look(file)
        sync(file)

    patch.setattr(OsFile, "fsync", looked_at)


async def test_a_stop_syncs_in_threads_and_marks_what_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EmbeddedStore()
    broker = a_broker(tmp_path, store)
    await broker.start()
    await with_records(broker)
    marked: list[bool] = []
    threads: set[threading.Thread] = set()

    def look(file: OsFile) -> None:
        marked.append((tmp_path / CLEAN_SHUTDOWN_FILE).exists())
        threads.add(threading.current_thread())

    when_synced(monkeypatch, look)
    assert await broker.stop()

    assert len(marked) > PARTITIONS
    assert not any(marked)
    assert threading.main_thread() not in threads
    assert len(threads) > 1
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists()


async def test_failed_sync_prevents_the_mark_but_not_other_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EmbeddedStore()
    broker = a_broker(tmp_path, store)
    await broker.start()
    await with_records(broker)
    broken = broker.replicas.partition("t", 7).log
    with monkeypatch.context() as patch:

        def refuse() -> Any:
            raise KafkaStorageError("cannot flush the log: Input/output error")

        patch.setattr(broken, "flush", refuse)
        assert not await broker.stop()

    assert not (tmp_path / CLEAN_SHUTDOWN_FILE).exists()
    others = [log for log in broker.log_directory.logs.values() if log is not broken]
    assert all(log.flushed_offset == log.log_end_offset == 1 for log in others)
    # Its session ends by itself; here there is no time.
    store.revoke(broker.lifecycle.lease_id, lambda _: None)
    again = a_broker(tmp_path, store)
    await again.start()
    assert not again.log_directory.was_closed_cleanly
    async with client_of(again) as client:
        assert values_of((await fetch(client, "t", index=7)).records) == [b"7"]
    await again.stop()


async def test_start_cancelled_while_logs_load_unlocks_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EmbeddedStore()
    reading, go_on = threading.Event(), threading.Event()
    load = LogDirectory._load

    def slow(directory: LogDirectory, now_wall_ms: int) -> None:
        reading.set()
        assert go_on.wait(20)
        load(directory, now_wall_ms)

    with monkeypatch.context() as patch:
        patch.setattr(LogDirectory, "_load", slow)
        starting = asyncio.create_task(a_broker(tmp_path, store).start())
        assert await asyncio.to_thread(reading.wait, 20)
        starting.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await starting

    broker = a_broker(tmp_path, store)
    await broker.start()
    assert await broker.stop()


async def test_a_broker_by_itself_reads_its_logs_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop may be its user's, who has other work on it."""
    threads: list[threading.Thread] = []
    load = LogDirectory._load

    def seen(directory: LogDirectory, now_wall_ms: int) -> None:
        threads.append(threading.current_thread())
        load(directory, now_wall_ms)

    monkeypatch.setattr(LogDirectory, "_load", seen)
    for _ in range(2):
        broker = Broker(ServerConfig(), data_dir=tmp_path, port=0, log=RecordingLog())
        await broker.start()
        await broker.stop()

    assert len(threads) == 2
    assert threading.main_thread() not in threads


def contents(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


@pytest.mark.parametrize("found", ["__cluster_metadata-0", "bootstrap.checkpoint", "a meta.properties written by Java"])
def test_data_directory_of_kafka_is_refused_and_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], found: str
) -> None:
    path = tmp_path / "kafka"
    shutil.copytree(KAFKAS, path)
    if found == "__cluster_metadata-0":
        (path / found).mkdir()
        (path / found / "00000000000000000000.log").write_bytes(b"records")
    elif found == "bootstrap.checkpoint":
        (path / found).write_bytes(b"records")
    before = contents(path)

    status = run(ServeOptions(data_dir=str(path), listen="127.0.0.1:0", node_id=1))

    assert status == 1
    assert capsys.readouterr().err == (
        f"ottla: directory {path} holds {found}: it is a data directory of Apache Kafka, whose topics Ottla cannot "
        "take over from there; use another directory\n"
    )
    assert contents(path) == before
