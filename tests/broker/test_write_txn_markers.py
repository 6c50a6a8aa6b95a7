"""WriteTxnMarkers over the wire: what a coordinator gets for its markers (§39)."""

from pathlib import Path

import pytest

from ottla.broker.replicas.transaction_markers import APPENDS_PER_STEP, MarkerAppend, TransactionMarkers
from ottla.broker.server.peer_connection import BROKER_CLIENT_ID
from ottla.coordinator.facts import Fact
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from ottla.protocol.records.batch import iterate_batches
from ottla.protocol.records.control import TransactionMarker
from ottla.security.acl import CLUSTER_NAME
from tests.broker.authorization.world import CLUSTER, acl, with_topics
from tests.broker.transactions import ended, mark, marker, written
from tests.broker.virtual_cluster import Cluster
from tests.broker.wire import client_of, create_topic, fetch, running_broker
from tests.simulation.links import Cut

NONE = ErrorCode.NONE
ABORT, COMMIT = False, True
TIMEOUT_MS = 7_000


@pytest.mark.parametrize("version", [1, 2])
async def test_marker_ends_the_transaction_and_is_answered(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", partitions=2)
        for index in (0, 1):
            written(broker, "t", "a", producer=7, index=index)
        assert broker.replicas.partition("t", 1).last_stable_offset == 0

        results = await mark(client, marker("t", producer=7, commit=COMMIT, indexes=(0, 1)), version=version)

        assert results == [(7, "t", 0, NONE), (7, "t", 1, NONE)]
        partition = broker.replicas.partition("t", 1)
        assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)
        data, control = (header for _, header in iterate_batches(memoryview((await fetch(client, "t")).records)))
        assert not data.is_control
        assert (control.is_control, control.is_transactional, control.producer_id, control.base_sequence) == (
            True,
            True,
            7,
            -1,
        )
        assert control.partition_leader_epoch == partition.leader_epoch


async def test_request_without_markers_is_answered_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        assert await client.call(WriteTxnMarkersRequest(), WriteTxnMarkersResponse, 2) == WriteTxnMarkersResponse()


async def test_each_partition_has_an_outcome_of_its_own(tmp_path: Path) -> None:
    """§39.1.1; the results of one producer id are one element."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        written(broker, "t", "a", producer=7)
        request = WriteTxnMarkersRequest(
            markers=[
                marker("t", producer=7, commit=ABORT, indexes=(0, 9)),
                marker("absent", producer=7, commit=ABORT),
                marker("t", producer=8, commit=ABORT),
            ]
        )

        response = await client.call(request, WriteTxnMarkersResponse, 2)

        assert [
            (each.producer_id, [(of.name, [part.error_code for part in of.partitions]) for of in each.topics])
            for each in response.markers
        ] == [(7, [("t", [0, 3]), ("absent", [3])]), (8, [("t", [0])])]


async def test_marker_that_comes_again_is_appended_again(tmp_path: Path) -> None:
    """§39.4.1: the first answer may have been lost."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        written(broker, "t", "a", producer=7)

        for version in (0, 2):
            again = marker("t", producer=7, commit=ABORT, epoch=1, transaction_version=version)
            assert await mark(client, again) == [(7, "t", 0, NONE)]

        log = broker.replicas.partition("t", 0).log
        assert log.log_end_offset == 3
        assert [entry.last_offset for entry in log.aborted_transactions(0, 3)] == [1]


@pytest.mark.parametrize(
    ("late", "code"),
    [
        ({"epoch": 2}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"epoch": 3, "transaction_version": 2}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"epoch": 3, "coordinator_epoch": 4}, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        ({"epoch": 3, "coordinator_epoch": 5}, NONE),
        ({"epoch": 4, "coordinator_epoch": 6, "transaction_version": 2}, NONE),
    ],
)
async def test_late_markers_are_refused(tmp_path: Path, late: dict[str, int], code: ErrorCode) -> None:
    """§39.2 a, b, d: a newer coordinator, or a newer epoch of the producer, is at work."""
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        written(broker, "t", "a", producer=7, epoch=3)
        await mark(client, marker("t", producer=7, commit=COMMIT, epoch=3, coordinator_epoch=5))
        written(broker, "t", "b", producer=7, epoch=3)

        assert await mark(client, marker("t", producer=7, commit=COMMIT, **late)) == [(7, "t", 0, code)]  # type: ignore[arg-type]

        is_over = code is NONE
        assert broker.replicas.partition("t", 0).last_stable_offset == (4 if is_over else 2)


async def test_marker_is_not_compressed_as_the_topic_is(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t", compression_type="gzip", cleanup_policy="compact")

        await ended(client, "t", producer=7, commit=COMMIT)

        ((_, header),) = iterate_batches(memoryview((await fetch(client, "t")).records))
        assert (header.codec, header.is_control) == (0, True)


async def test_long_request_is_appended_in_several_steps(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        written(broker, "t", "a", producer=0)

        count = 2 * APPENDS_PER_STEP + 1
        results = await mark(client, *(marker("t", producer=n, commit=ABORT) for n in range(count)))

        assert results == [(n, "t", 0, NONE) for n in range(count)]
        assert broker.replicas.partition("t", 0).high_watermark == count + 1


async def test_marker_on_another_listener_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is for brokers: a client that could end transactions of others would break what they promise."""
    async with running_broker(tmp_path) as broker:
        async with client_of(broker) as client:
            await create_topic(client, "t")
        monkeypatch.setattr(broker.server, "inter_broker_listener", "OTHER")
        async with client_of(broker) as client:
            results = await mark(client, marker("t", producer=7, commit=COMMIT))

        assert results == [(7, "t", 0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
        assert broker.replicas.partition("t", 0).log.log_end_offset == 0


@pytest.mark.parametrize(
    ("operation", "code"),
    [("ALTER", NONE), ("CLUSTER_ACTION", NONE), ("DESCRIBE", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)],
)
async def test_who_may_alter_the_cluster_ends_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str, code: ErrorCode
) -> None:
    """§39.1.4. By a listener of clients too, where an authorizer decides; whatever they call themselves, it is said."""
    async with with_topics(tmp_path) as world:
        await world.set_acls([acl(operation, CLUSTER, CLUSTER_NAME)])
        written(world.broker, "orders", "a", producer=7)
        noted: list[Fact] = []
        monkeypatch.setattr(world.broker.server, "inter_broker_listener", "OTHER")
        monkeypatch.setattr(world.broker.parts.transaction_markers, "report", noted.append)
        alice = await world.client("alice")

        request = WriteTxnMarkersRequest(markers=[marker("orders", producer=7, commit=ABORT)])
        alice._wire._client_id = BROKER_CLIENT_ID
        response = await alice.ask(request, 2)

        assert response.markers[0].topics[0].partitions[0].error_code == code
        is_over = code is NONE
        assert world.broker.replicas.partition("orders", 0).last_stable_offset == (2 if is_over else 0)
        assert len(noted) == is_over


def test_marker_counts_when_all_in_sync_replicas_have_it() -> None:
    """§39.1.3; one that waits too long is answered, and counts when it is replicated all the same."""
    cluster = Cluster()
    noted: list[tuple[str, int, int, int, bool]] = []

    async def story() -> None:
        nodes = await cluster.started(0, 1, replica_lag_time_max_ms=600_000, request_timeout_ms=TIMEOUT_MS)
        topic = await cluster.create(nodes[0], "t", factor=2)
        leader = nodes[topic.partitions[0].leader]
        await cluster.until(lambda: leader.broker.replicas.find("t", 0) is not None)
        parts = leader.broker
        markers = TransactionMarkers(parts.runtime, parts.replicas, lambda *marker: noted.append(marker), print)
        begin = cluster.clock.now_ms()
        assert await cluster.spawn(leader, markers.append_all([committing(7)])) == [NONE]
        assert noted == [("t", 0, 7, 0, True)]
        assert cluster.clock.now_ms() - begin < TIMEOUT_MS

        # The follower's connection is that of a client.
        cuts = Cut.both_ways([leader.host], ["client"])
        cluster.links.cut(*cuts)
        begin = cluster.clock.now_ms()
        assert await cluster.spawn(leader, markers.append_all([committing(8)])) == [ErrorCode.REQUEST_TIMED_OUT]
        assert TIMEOUT_MS <= cluster.clock.now_ms() - begin < 2 * TIMEOUT_MS
        assert noted == [("t", 0, 7, 0, True)]
        cluster.links.heal(*cuts)
        await cluster.until(lambda: len(noted) == 2)
        assert noted[1:] == [("t", 0, 8, 0, True)]
        await cluster.stop_all(*nodes)

    cluster.run(story())


def committing(producer: int) -> MarkerAppend:
    return MarkerAppend("t", 0, producer, 0, TransactionMarker(COMMIT, 0), 0)
