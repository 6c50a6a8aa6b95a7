"""What whole brokers export: the table, the documents and a scrape agree, and the numbers are right."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.admin.metrics.families import FAMILIES
from ottla.broker.admin.metrics.group_labels import GroupLabels
from ottla.broker.admin.metrics.group_source import _NOT_COUNTED, GroupSource
from ottla.broker.admin.metrics.group_waits import GroupWaits
from ottla.broker.admin.metrics.kafka_families import KAFKA_FAMILIES
from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from ottla.broker.logging import LazyLog
from ottla.broker.server.network import TcpNetwork
from ottla.coordinator.classic.states import GroupState
from ottla.coordinator.facts import Cause, Fact, GenerationCompleted, GenerationStarted, GroupLoaded, RebalanceStarted
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.broker.admin.pages import get
from tests.broker.clusters import ask, create_topic, running_cluster, until
from tests.broker.virtual_cluster import Cluster
from tests.broker.wire import client_of, fetch, fetch_request, produce, running_broker

DOCS = Path(__file__).parents[3] / "docs/metrics.md"
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def scraped(url: str) -> Series:
    answer = await get(TcpNetwork(), url, "/metrics")
    assert answer.status == 200, answer.body
    found: Series = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        for sample in family.samples:
            key = sample.name, frozenset((k, v) for k, v in sample.labels.items() if (k, v) != ("broker", "0"))
            assert key not in found, key
            found[key] = sample.value
    return found


def value(found: Series, name: str, **labels: object) -> float | None:
    return found.get((f"ottla_{name}", frozenset((key, str(each)) for key, each in labels.items())))


@asynccontextmanager
async def observed(path: Path, **settings: object) -> AsyncIterator[Broker]:
    named: dict[str, Any] = {"ottla_admin_listener": "127.0.0.1:0", "offsets_topic_num_partitions": 1, **settings}
    async with running_broker(path, **named) as broker:
        yield broker


def test_page_and_table_have_the_same_metrics() -> None:
    documented = re.findall(r"^\| `([a-z_]+)` \| (\w+) \|", DOCS.read_text(), re.MULTILINE)
    assert sorted(documented) == sorted((family.name, family.kind) for family in FAMILIES + KAFKA_FAMILIES)


async def test_scrape_has_what_the_table_names(tmp_path: Path) -> None:
    async with observed(tmp_path, ottla_events_enable="true") as broker:
        await create_topic(broker, "t", [0])
        admin = broker._admin.broker
        assert admin is not None
        assert admin.metrics is not None
        site = broker._admin.own_site
        assert site is not None
        found = await scraped(broker.admin_url)
        names = {re.sub("_(bucket|sum|count)$", "", name) for name, _ in found}
        known = {family.name for family in FAMILIES}
        of_kafka = {family.name for family in KAFKA_FAMILIES}

        assert admin.metrics.names | site._pages_from_inside.process.names == known | of_kafka
        assert names <= known
        assert known - names <= {
            # Nothing of the kind has happened yet.
            "ottla_authentication_total",
            "ottla_reauthentication_total",
            "ottla_authorization_denied_total",
            "ottla_tls_handshakes_total",
            "ottla_request_errors_total",
            "ottla_client_software_info",
            "ottla_connections_closed_total",
            "ottla_compaction_dirty_ratio_max",
            "ottla_follower_lag_records",
            "ottla_follower_lag_seconds",
            "ottla_isr_changes_total",
            "ottla_leader_changes_total",
            "ottla_log_directory_bytes",
            *(name for name in known if name.startswith("ottla_quota")),
            *(name for name in known if name.startswith("ottla_group")),
            "ottla_topic_records_in_total",
            "ottla_transactional_ids",
            "ottla_transaction_oldest_seconds",
            "ottla_transaction_markers_queued",
            "ottla_transaction_verification_failures_total",
        }


async def test_requests_are_counted_each_once(tmp_path: Path) -> None:
    """Runs of one API in a read event, other APIs between them, parked ones, and refused ones."""
    async with observed(tmp_path) as broker:
        await create_topic(broker, "t", [0])
        heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        async with client_of(broker) as client:
            for _ in range(50):
                client.send(heartbeat, 4)
                client.send(heartbeat, 4)
                client.send(heartbeat, 3)
                client.send(FetchRequest(max_wait_ms=1, min_bytes=1), 4)
                client.send(heartbeat, 4)
            for _ in range(50):
                for version in (4, 4, 3):
                    await client.receive(HeartbeatResponse, version)
                await client.receive_frame()
                await client.receive(HeartbeatResponse, 4)
        found = await scraped(broker.admin_url)

        assert value(found, "request_duration_seconds_count", api="Heartbeat", where="direct") == 200
        fetches = [
            value(found, "request_duration_seconds_count", api="Fetch", where=where) or 0
            for where in ("direct", "parked")
        ]
        assert sum(fetches) == 50
        assert value(found, "connections", listener="PLAINTEXT") == 0
        assert (value(found, "connections_opened_total", listener="PLAINTEXT") or 0) >= 2


async def test_records_and_bytes_are_those_of_the_topic(tmp_path: Path) -> None:
    async with observed(tmp_path) as broker:
        await create_topic(broker, "t", [0], [0])
        async with client_of(broker) as client:
            for index in (0, 1, 1):
                assert (await produce(client, "t", b"one", b"two", index=index)).error_code == 0
            assert (await produce(client, "t", b"one", index=9)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await client.call(fetch_request("t", 0, index=1), FetchResponse, 12)
        found = await scraped(broker.admin_url)
        sizes = [value(found, "partition_size_bytes", topic="t", partition=index) or 0 for index in (0, 1)]

        assert value(found, "topic_records_in_total", topic="t") == 6
        assert value(found, "partition_log_end_offset", topic="t", partition=1) == 4
        assert value(found, "topic_bytes_in_total", topic="t") == sum(sizes)
        assert value(found, "topic_bytes_out_total", topic="t", to="consumer") == sizes[1]
        assert value(found, "topic_bytes_out_total", topic="t", to="follower") == 0
        assert value(found, "request_errors_total", api="Produce", error="UNKNOWN_TOPIC_OR_PARTITION") == 1


async def test_errors_are_counted_as_they_are_answered(tmp_path: Path) -> None:
    """An offset beyond the log of a leader whose session has ended is no OFFSET_OUT_OF_RANGE."""
    async with observed(tmp_path) as broker:
        await create_topic(broker, "t", [0])
        broker.parts.lifecycle._registration._session_ends_ms = 0
        async with client_of(broker) as client:
            assert (await fetch(client, "t", 9)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        found = await scraped(broker.admin_url)

        assert value(found, "request_errors_total", api="Fetch", error="NOT_LEADER_OR_FOLLOWER") == 1
        assert value(found, "request_errors_total", api="Fetch", error="OFFSET_OUT_OF_RANGE") is None


async def test_lag_is_what_is_not_committed_and_never_negative(tmp_path: Path) -> None:
    async with observed(tmp_path) as broker:
        await create_topic(broker, "t", [0])
        async with client_of(broker) as client:
            await produce(client, "t", b"one", b"two", b"three")
        lags = []
        for offset in (1, 3, 7):
            assert await committed(broker, "g", offset) == 0
            found = await scraped(broker.admin_url)
            lags.append(value(found, "group_lag_records", group="g", topic="t", partition=0))

        assert lags == [2, 0, 0]
        assert value(found, "groups", state="Empty", protocol_type="") == 1
        assert value(found, "group_commits_total", group="g") == 3


async def test_lags_beyond_the_budget_are_summed_by_topic(tmp_path: Path) -> None:
    """And those of so many topics."""
    beyond = {"group": "_other", "partition": "_other"}
    async with observed(tmp_path, ottla_metrics_lag_max=1, ottla_metrics_topics_max=2) as broker:
        for topic in ("a", "b", "c"):
            await create_topic(broker, topic, [0])
            async with client_of(broker) as client:
                await produce(client, topic, b"one", b"two", b"three")
            for number in range(2):
                assert await committed(broker, f"g{number}", number, topic) == 0
        found = await scraped(broker.admin_url)

        assert value(found, "group_lag_records", group="g0", topic="a", partition=0) == 3
        # Topics come as their groups are met.
        lags = {topic: value(found, "group_lag_records", topic=topic, **beyond) for topic in ("a", "b", "c", "_other")}
        summed = [each for each in lags.values() if each is not None]
        assert sum(summed) == 2 + (3 + 2) * 2
        assert len(summed) == 3
        assert lags["_other"] is not None
        assert value(found, "metrics_overflow", kind="lags") == 5


async def committed(broker: Broker, group: str, offset: int, topic: str = "t") -> int:
    """The error code, once the coordinator is there."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])])
    passing = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    while True:
        await ask(broker, FindCoordinatorRequest(coordinator_keys=[group]))
        response = await ask(broker, request, 8)
        code = int(response.topics[0].partitions[0].error_code)
        if code not in passing:
            return code


def test_rebalances_are_counted_by_cause_and_not_when_loaded() -> None:
    """Facts of a group that is loaded happened elsewhere."""
    groups = GroupSource(
        SimpleNamespace(config=ServerConfig(), log=LazyLog()), None, SimpleNamespace(loaded_shards=list), GroupLabels()
    )  # type: ignore[arg-type]
    started = {"group_id": "g", "generation": 1, "member_id": None, "client_reason": None, "members": 1}
    for cause in (Cause.MEMBER_JOINED, Cause.MEMBER_JOINED, Cause.SESSION_EXPIRED):
        groups.observe(RebalanceStarted(cause=cause, join_deadline_ms=5, **started), 0)  # type: ignore[arg-type]
    groups.observe(GroupLoaded(group_id="l", generation=3, state=GroupState.STABLE, members=2, offsets=0), 0)
    members = {"leader_id": "m", "member_ids": ("m",)}
    groups.observe(
        GenerationStarted(group_id="g", generation=2, protocol_name="range", join_phase_ms=300, **members),  # type: ignore[arg-type]
        300,
    )
    groups.observe(GenerationCompleted(group_id="g", generation=2, sync_phase_ms=20, **members), 320)  # type: ignore[arg-type]

    assert groups._counts.keys() == {"g"}
    assert groups._counts["g"].rebalances == {"member joined": 2, "session expired": 1}
    assert groups._counts["g"].last_ms == {"join": 300, "sync": 20, "total": 320}
    assert {phase: each.sum_ns for phase, each in groups._phases.items()} == {
        "join": 300_000_000,
        "sync": 20_000_000,
        "total": 320_000_000,
    }


@pytest.mark.parametrize("kind", sorted(_NOT_COUNTED, key=lambda kind: kind.__name__))
def test_facts_that_are_left_out_would_change_nothing(kind: type[Fact]) -> None:
    assert kind not in GroupWaits.handlers()
    assert kind not in GroupSource._counters(cast("Any", GroupSource))


async def test_beyond_the_budget_sums_are_exported(tmp_path: Path) -> None:
    async with observed(tmp_path, ottla_metrics_partitions_max=2, ottla_metrics_topics_max=1) as broker:
        await create_topic(broker, "z", [0], [0])
        await create_topic(broker, "a", [0], [0])
        found = await scraped(broker.admin_url)

        assert value(found, "partition_isr", topic="z", partition=1) == 1
        assert value(found, "partition_isr", topic="a", partition=0) is None
        assert value(found, "partition_segments", topic="_other", partition="_other") == 2
        assert value(found, "metrics_overflow", kind="partitions") == 2
        assert value(found, "metrics_overflow", kind="topics") == 1


async def test_partition_is_exported_by_its_leader_alone(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, 2, ottla_admin_listener="127.0.0.1:0") as cluster:
        await create_topic(cluster.brokers[0], "t", [0, 1], [1, 0])
        await until(lambda: all(broker.image.topic("t") is not None for broker in cluster.brokers.values()))
        for _ in range(2):
            answer = await get(TcpNetwork(), cluster.admin_url, "/metrics")
            exported = re.findall(
                r'ottla_partition_isr\{broker="(\d)",topic="t",partition="(\d)"\}', answer.body.decode()
            )
            leaders = {index: str(cluster.leader_of("t", int(index))) for _, index in exported}
            assert sorted(exported) == sorted((leader, index) for index, leader in leaders.items())
            assert answer.body.count(b"ottla_controller_active{") == len(cluster.brokers)
            if 1 in cluster.brokers:
                await cluster.stop_broker(1)
            await until(lambda: cluster.leader_of("t", 1) == 0)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.loop.close()


def test_changes_of_leaders_and_isr_are_counted(cluster: Cluster) -> None:
    async def story() -> None:
        first, second, third = await cluster.started(1, 2, 3)
        await cluster.create(first, "t", 6, 3)
        cluster.kill(third)
        await cluster.until(lambda: all(3 not in first.partition("t", i).isr for i in range(6)))
        changes = first.broker.controller.leader_changes + second.broker.controller.leader_changes
        assert set(changes) == {"failure"}
        await cluster.stop(second)
        changes = first.broker.controller.leader_changes + second.broker.controller.leader_changes
        assert set(changes) <= {"failure", "shutdown"}
        assert sum(changes.values()) >= 4
        await cluster.stop(first)

    cluster.run(story())
