"""TxnOffsetCommit over the wire, and markers in `__consumer_offsets`."""

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.coordinators import loading
from ottla.broker.replicas.transaction_verification import Answered, TopicPartition
from ottla.coordinator import durable_state
from ottla.coordinator.runtime.effects import ProducerIdAndEpoch
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import iterate_batches
from ottla.storage.log import Log
from tests.broker.asking import Asking, messages, running
from tests.broker.test_coordinator_topic import ONE, loaded
from tests.broker.test_group_handlers import codes, committed, fetch, fetched, found, stable
from tests.broker.test_topic_admin import creatable, created
from tests.broker.transactions import marker

txn = messages("txn_offset_commit")
markers = messages("write_txn_markers")
PRODUCER = ProducerIdAndEpoch(7, 3)
OFFSETS = "__consumer_offsets"


class Coordinator:
    """Stands in for the transaction coordinators: says what the test wants, at once or when the test lets it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[int, int], list[TopicPartition], bool]] = []
        self.says: ErrorCode | None = ErrorCode.NONE
        self.answer: Callable[[ErrorCode], None]

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        answered: Answered,
        *,
        registers: bool,
    ) -> None:
        self.asked.append((transactional_id, (producer_id, producer_epoch), list(partitions), registers))
        self.answer = lambda code: answered(dict.fromkeys(partitions, code))
        if self.says is not None:
            self.answer(self.says)


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@asynccontextmanager
async def serving(tmp_path: Path, coordinator: Coordinator, **settings: str) -> AsyncIterator[Asking]:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    async with running(tmp_path, ONE | named) as asking:
        asking.broker.parts.transaction_verification._verifier = coordinator
        await found(asking)
        await created(asking, creatable("a", 2))
        yield asking


@pytest.fixture
async def broker(tmp_path: Path, coordinator: Coordinator) -> AsyncIterator[Asking]:
    async with serving(tmp_path, coordinator) as asking:
        yield asking


def request(
    offset: int = 5, group_id: str = "g", topic: str = "a", producer: tuple[int, int] = PRODUCER, **fields: Any
) -> Any:
    partition = txn.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata="note"
    )
    return txn.TxnOffsetCommitRequest(
        transactional_id="id",
        group_id=group_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        topics=[txn.TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        **fields,
    )


async def error_of(broker: Asking, version: int = 5, **fields: Any) -> int:
    (code,) = codes(await broker.ask(request(**fields), version)).values()
    return code


async def stable_offset(broker: Asking) -> tuple[int, int]:
    """The committed offset and the error of an OffsetFetch that requires stable ones."""
    topics = [fetch.OffsetFetchRequestTopic(name="a", partition_indexes=[0])]
    answer = await broker.ask(fetch.OffsetFetchRequest(group_id="g", topics=topics, require_stable=True), 7)
    ((partition,),) = [topic.partitions for topic in answer.topics]
    return partition.committed_offset, partition.error_code


async def write_marker(broker: Asking, *, commit: bool) -> None:
    """Done when the high watermark has passed it."""
    producer, epoch = PRODUCER
    written = markers.WriteTxnMarkersRequest(markers=[marker(OFFSETS, producer=producer, epoch=epoch, commit=commit)])
    answer = await broker.ask(written, 2)
    errors = [each.error_code for result in answer.markers for topic in result.topics for each in topic.partitions]
    assert errors == [0]


def offsets_log(broker: Asking) -> Log:
    return broker.broker.replicas.partition(OFFSETS, 0).log


@pytest.mark.parametrize("version", range(6))
async def test_offsets_are_stored_in_a_transactional_batch(
    broker: Asking, coordinator: Coordinator, version: int
) -> None:
    response = await broker.ask(request(), version)

    assert codes(response) == {("a", 0): 0}
    assert coordinator.asked == [("id", PRODUCER, [(OFFSETS, 0)], version >= 5)]
    log = offsets_log(broker)
    ((_, header),) = iterate_batches(log.read(0, 1 << 20, upper_bound=log.log_end_offset).records)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
    assert header.is_transactional
    assert not header.is_control


@pytest.mark.parametrize(("commit", "offset"), [(True, 5), (False, 1)])
async def test_offsets_show_with_the_commit_marker(broker: Asking, commit: bool, offset: int) -> None:
    await committed(broker, "g", {("a", 0): 1})
    await broker.ask(request(5), 3)
    assert await stable_offset(broker) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)

    await write_marker(broker, commit=commit)

    assert await stable_offset(broker) == (offset, 0)


async def test_marker_is_found_in_the_log_by_the_next_coordinator(broker: Asking) -> None:
    await broker.ask(request(5), 3)
    broker.groups.topic.resigned(0)
    assert await error_of(broker) == ErrorCode.NOT_COORDINATOR
    await write_marker(broker, commit=True)
    broker.groups.topic.elected(0)
    await loaded(broker)

    assert await stable_offset(broker) == (5, 0)


async def test_marker_counts_that_comes_while_groups_are_loaded(broker: Asking) -> None:
    """The end of the log may have been read by then, and the groups are still being made of it."""
    await broker.ask(request(5), 3)
    broker.groups.topic.resigned(0)
    broker.groups.topic.elected(0)
    broker.broker.parts.group_loader.on_marker(OFFSETS, 0, *PRODUCER, True)
    await loaded(broker)

    assert await stable_offset(broker) == (5, 0)


@pytest.mark.parametrize(("resigns", "error"), [(False, ErrorCode.NONE), (True, ErrorCode.NOT_COORDINATOR)])
async def test_large_marker_is_loaded_in_slices(
    broker: Asking, monkeypatch: pytest.MonkeyPatch, resigns: bool, error: ErrorCode
) -> None:
    """Another broker may be elected between two of them."""
    await broker.ask(request(5), 3)
    await write_marker(broker, commit=True)
    topic = broker.groups.topic
    topic.resigned(0)
    monkeypatch.setattr(durable_state, "OFFSETS_PER_SLICE", 1)
    slices: list[float] = []

    async def between_slices(wait_s: float) -> None:
        slices.append(wait_s)
        if resigns:
            topic.resigned(0)

    with monkeypatch.context() as patch:
        patch.setattr(loading.asyncio, "sleep", between_slices)
        topic.elected(0)
        await loaded(broker)

    assert slices == [0]
    answer = await fetched(broker, "g", 7, {"a": [0]})
    assert answer.error_code == error
    (partition,) = answer.topics[0].partitions
    assert (partition.committed_offset, partition.error_code) == ((-1, error) if resigns else (5, error))


async def test_member_of_another_generation_is_fenced(broker: Asking) -> None:
    """§46.10"""
    member = await stable(await broker.client())
    fields = {"member_id": member.member_id, "group_instance_id": None}

    assert await error_of(broker, generation_id=1, **fields) == 0
    assert await error_of(broker, generation_id=0, **fields) == ErrorCode.ILLEGAL_GENERATION
    assert await error_of(broker, generation_id=1, member_id="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert await error_of(broker, 2) == 0, "version 2 names no member"


@pytest.mark.parametrize(
    ("outcome", "version", "answer"),
    [
        (ErrorCode.NETWORK_EXCEPTION, 5, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NETWORK_EXCEPTION, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 5, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 5, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.PRODUCER_FENCED, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 0, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 3, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 2, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
    ],
)
async def test_refusal_of_the_transaction_coordinator_is_passed_on(
    broker: Asking, coordinator: Coordinator, outcome: ErrorCode, version: int, answer: ErrorCode
) -> None:
    """§46.2"""
    coordinator.says = outcome

    assert await error_of(broker, version) == answer
    assert offsets_log(broker).log_end_offset == 0


async def test_request_waits_for_the_transaction_coordinator(broker: Asking, coordinator: Coordinator) -> None:
    coordinator.says = None
    client = await broker.client()
    client.send(request(), 5)
    # On another connection, which is read later.
    assert await stable_offset(broker) == (-1, 0)
    assert len(coordinator.asked) == 1
    broker.broker.runtime.soon(lambda: coordinator.answer(ErrorCode.NONE))

    assert codes(await client.answer()) == {("a", 0): 0}


async def test_nothing_is_asked_about_what_is_refused(broker: Asking, coordinator: Coordinator) -> None:
    assert await error_of(broker, topic="b") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await error_of(broker, group_id="") == ErrorCode.INVALID_GROUP_ID
    broker.groups.topic.resigned(0)
    assert await error_of(broker) == ErrorCode.NOT_COORDINATOR
    assert coordinator.asked == []


async def test_open_transaction_needs_no_further_question(broker: Asking, coordinator: Coordinator) -> None:
    for offset in (5, 6):
        assert codes(await broker.ask(request(offset), 3)) == {("a", 0): 0}

    assert len(coordinator.asked) == 1
    await write_marker(broker, commit=True)
    assert await stable_offset(broker) == (6, 0)


async def test_answer_before_a_marker_begins_no_transaction(broker: Asking, coordinator: Coordinator) -> None:
    """It was about a transaction that is over: no marker would end this one (§40.3.5)."""
    coordinator.says = None
    client = await broker.client()
    client.send(request(), 3)
    await stable_offset(broker)
    await write_marker(broker, commit=False)
    broker.broker.runtime.soon(lambda: coordinator.answer(ErrorCode.NONE))

    assert codes(await client.answer()) == {("a", 0): ErrorCode.INVALID_TXN_STATE}
    assert offsets_log(broker).last_stable_offset(1) == 1


async def test_older_epoch_is_refused_without_a_question(broker: Asking, coordinator: Coordinator) -> None:
    await broker.ask(request(), 3)

    assert await error_of(broker, producer=(7, 2)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert len(coordinator.asked) == 1


@pytest.mark.parametrize(("version", "questions"), [(4, 0), (5, 1)])
async def test_without_verification_the_coordinator_only_registers(
    tmp_path: Path, coordinator: Coordinator, version: int, questions: int
) -> None:
    """§40.2.2"""
    async with serving(tmp_path, coordinator, transaction_partition_verification_enable="false") as broker:
        assert await error_of(broker, version) == 0
        assert len(coordinator.asked) == questions


async def test_producer_without_id_or_epoch_is_refused_unverified(tmp_path: Path, coordinator: Coordinator) -> None:
    async with serving(tmp_path, coordinator, transaction_partition_verification_enable="false") as broker:
        assert await error_of(broker, 4, producer=(7, -1)) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await error_of(broker, 4, producer=(-1, 0)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert coordinator.asked == []


async def test_epoch_below_zero_is_asked_about(broker: Asking, coordinator: Coordinator) -> None:
    coordinator.says = ErrorCode.PRODUCER_FENCED

    assert await error_of(broker, producer=(7, -1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert len(coordinator.asked) == 1


async def test_markers_of_other_topics_concern_no_group(broker: Asking) -> None:
    await broker.ask(request(5), 3)
    broker.broker.parts.group_loader.on_marker("a", 0, *PRODUCER, True)

    assert await stable_offset(broker) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
