"""Start and stop of a broker, by itself and inside a program."""

import asyncio
import errno
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla import Broker as EmbeddedBroker
from ottla import BrokerThread
from ottla.broker.broker import Broker
from ottla.broker.config.options import ConfigError
from ottla.broker.config.server import ServerConfig
from ottla.broker.runtime import StartError
from ottla.broker.server.network import address_for_clients
from ottla.cli.operations.serve import ServeOptions, run
from ottla.cluster.embedded import EmbeddedStore
from ottla.cluster.metadata_file import MetadataFile
from ottla.cluster.store import Change
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.storage.files import OsFile
from tests.broker.asking import close_nothing_cleanly
from tests.broker.wire import (
    RecordingLog,
    batch,
    client_of,
    create_topic,
    fetch,
    fetch_request,
    parked_fetch,
    produce,
    running_broker,
    values_of,
)
from tests.served import ServedBroker


async def test_records_topics_and_the_cluster_id_survive_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", 2)
        await produce(client, "t", b"a", index=1)
        cluster_id = broker.cluster_id

    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        fetched = await fetch(client, "t", index=1)
        assert broker.cluster_id == cluster_id
        assert broker.log_directory.was_closed_cleanly

    assert values_of(fetched.records) == [b"a"]
    assert fetched.high_watermark == 1


async def test_parked_requests_are_answered_when_the_broker_stops(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        connecting = client_of(broker)
        client = await connecting.__aenter__()
        await create_topic(client, "t")
        client.send(fetch_request("t", max_wait_ms=60_000), 11)
        await parked_fetch(broker)

    response = await client.receive(FetchResponse, 11)
    assert response.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await client.is_closed_by_broker()
    client.close()


async def test_no_timer_is_left_when_the_broker_has_stopped(tmp_path: Path) -> None:
    """I-19."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        await fetch(client, "t", max_wait_ms=5)

    assert len(broker.runtime.wheel) == 0


async def test_port_in_use_is_one_sentence_and_unlocks_the_directory(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        broker = Broker(ServerConfig(), data_dir=tmp_path, port=port)

        with pytest.raises(StartError, match=f"^cannot listen on 127.0.0.1:{port}: "):
            await broker.start()

    async with running_broker(tmp_path):
        pass


async def test_a_directory_in_use_is_one_sentence(tmp_path: Path) -> None:
    async with running_broker(tmp_path):
        with pytest.raises(StartError, match=r"is in use by another broker$"):
            await Broker(ServerConfig(), data_dir=tmp_path, port=0).start()


def test_serve_says_in_one_sentence_why_it_cannot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "letters.txt").write_text("dear")
    refused = [
        ServeOptions(data_dir=str(foreign)),
        ServeOptions(data_dir=str(tmp_path / "x"), config=str(tmp_path / "none.properties")),
        ServeOptions(data_dir=str(tmp_path / "y"), settings=("num.partitons=3",)),
        ServeOptions(data_dir=str(tmp_path / "z"), listen="203.0.113.1:9092"),
    ]

    assert [run(options) for options in refused] == [1] * 4
    captured = capsys.readouterr()
    assert captured.out == ""
    assert all(line.startswith("ottla: ") for line in captured.err.splitlines())
    assert len(captured.err.splitlines()) == 4


async def test_embedded_on_the_callers_loop(tmp_path: Path) -> None:
    async with EmbeddedBroker(settings={"num.partitions": 2, "auto.create.topics.enable": False}) as broker:
        host, port = broker.bootstrap.rsplit(":", 1)
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()
        assert broker.cluster_id


def test_embedded_in_a_thread_of_its_own() -> None:
    with BrokerThread(settings={"num.partitions": 2}) as broker:
        host, port = broker.bootstrap.rsplit(":", 1)
        socket.create_connection((host, int(port))).close()
        assert "ottla" in [thread.name for thread in threading.enumerate()]

    assert "ottla" not in [thread.name for thread in threading.enumerate()]


def test_embedded_broker_that_cannot_start_leaves_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(StartError):
        BrokerThread(listen=f"127.0.0.1:{taken.getsockname()[1]}").start()
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        EmbeddedBroker(settings={"num.partitons": 2})

    assert "ottla" not in [thread.name for thread in threading.enumerate()]


def test_who_listens_everywhere_is_reached_by_a_name() -> None:
    assert address_for_clients("10.0.0.1") == "10.0.0.1"
    assert address_for_clients("0.0.0.0") not in ("", "0.0.0.0")


def test_the_start_imports_nothing_it_does_not_need() -> None:
    """structlog alone would double the time of a start."""
    slow = ["structlog", "rich", "click", "aiokafka", "ottla.coordinator"]
    code = f"import sys, ottla.cli.operations.serve; print([name for name in {slow} if name in sys.modules])"

    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert printed == "[]\n"


async def test_a_start_reads_the_metadata_of_all_logs_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for the configs of the logs, once for the producer ids' or the topics' own sake, however many logs."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", 20, segment_bytes=2_000_000)
    reads: list[str] = []
    read = EmbeddedStore.read
    monkeypatch.setattr(EmbeddedStore, "read", lambda *arguments: (reads.append(arguments[1]), read(*arguments)))

    async with running_broker(tmp_path) as broker:
        log = broker.replicas.partition("t", 19).log

    assert log.config.segment_bytes == 2_000_000
    assert len(reads) <= 3


async def test_lone_broker_writes_metadata_once_per_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write is synced to disk, and somebody waits for it."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", 3)
    written: list[int] = []
    write = MetadataFile.write

    def counted(file: MetadataFile, transactions: Sequence[tuple[Sequence[Change], int]]) -> str | None:
        written.extend(revision for _, revision in transactions)
        return write(file, transactions)

    monkeypatch.setattr(MetadataFile, "write", counted)

    async with running_broker(tmp_path) as broker:
        assert broker.image.controller_id == broker.node_id
        assert broker.replicas.partition("t", 2).is_leader
        at_start = len(written)

    assert (at_start, len(written)) == (1, 1)


def test_serve_takes_as_many_descriptors_as_it_may() -> None:
    """Every partition and every connection takes one, and systems set a limit of 1024 that programs may raise."""
    code = """
import resource
from ottla.cli.operations.broker_process import raise_file_limit
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
raise_file_limit()
print(resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most))
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert printed == "True\n"


async def test_new_epoch_after_a_crash_shows_where_the_log_was_cut(tmp_path: Path) -> None:
    """A reader beyond the cut must not go on with other records under offsets that it knows (KIP-320)."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        for value in (b"a", b"b", b"lost"):
            await produce(client, "t", value)
        kept_bytes = 2 * len(batch(b"a"))
        close_nothing_cleanly(broker)
    with (tmp_path / "t-0" / f"{0:020d}.log").open("r+b") as log_file:
        log_file.truncate(kept_bytes)

    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        beyond = await fetch(client, "t", 3)
        await produce(client, "t", b"other", b"others")
        request = fetch_request("t", 3)
        request.topics[0].partitions[0].current_leader_epoch = 0
        response = await client.call(request, FetchResponse, 11)
        question = OffsetForLeaderPartition(partition=0, current_leader_epoch=1, leader_epoch=0)
        asked = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[question])])
        epoch_end = await client.call(asked, OffsetForLeaderEpochResponse, 4)

    assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert response.responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    answer = epoch_end.topics[0].partitions[0]
    assert (answer.leader_epoch, answer.end_offset) == (0, 2)


async def test_a_clean_restart_begins_no_new_term(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")

    async with running_broker(tmp_path) as broker:
        assert broker.image.topics["t"].partitions[0].leader_epoch == 0


async def test_stop_without_a_sync_is_logged_and_not_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = RecordingLog()
    broker = Broker(ServerConfig(), data_dir=tmp_path, port=0, log=log)
    await broker.start()
    async with client_of(broker) as client:
        await create_topic(client, "t")
        await produce(client, "t", b"a")

    with monkeypatch.context() as patch:

        def refuse(file: OsFile) -> None:
            raise OSError(errno.EIO, "Input/output error")

        patch.setattr(OsFile, "fsync", refuse)
        assert not await broker.stop()

    assert any("could not be closed cleanly" in event for event, _ in log.events)
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        assert not broker.log_directory.was_closed_cleanly
        assert values_of((await fetch(client, "t")).records) == [b"a"]


def test_serve_that_stops_uncleanly_exits_with_status_1(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with ServedBroker(data_dir) as broker:
        # Where the broker wants to write a file, there is a directory.
        (data_dir / "replication-offset-checkpoint.tmp").mkdir()

        assert broker.stop() == 1

    assert "could not be closed cleanly" in broker.stderr
    assert "Traceback" not in broker.stderr
