"""Produce with transactional batches, before a coordinator that answers as the test says (§40)."""

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.broker.handlers import produce as produce_handler
from ottla.broker.replicas.transaction_verification import Answered, TopicPartition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.broker.transactions import ended, mark, marker
from tests.broker.wire import Client, batch, client_of, create_topic, fetch, produce, running_broker, until, values_of

COMMIT, ABORT = True, False
NONE = ErrorCode.NONE
VERIFY, VERIFY_OLD, REGISTER = 11, 9, 12


class Coordinator:
    """Answers at once with the code of `codes`, or with the next of `script`; `waits` keeps the answers back."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.codes: dict[TopicPartition, ErrorCode] = {}
        self.script: list[ErrorCode] = []
        self.waits = False
        self.asked: list[tuple[str, int, int, list[TopicPartition], bool]] = []
        self._waiting: list[tuple[Answered, dict[TopicPartition, ErrorCode]]] = []

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
        self.asked.append((transactional_id, producer_id, producer_epoch, list(partitions), registers))
        default = self.script.pop(0) if self.script else NONE
        codes = {partition: self.codes.get(partition, default) for partition in partitions}
        if self.waits:
            self._waiting.append((answered, codes))
        else:
            answered(codes)

    def answer(self) -> None:
        """All that wait, as an event of the broker."""
        waiting, self._waiting = self._waiting, []
        self.waits = False
        self._broker.runtime._run(lambda: [answered(codes) for answered, codes in waiting])


@asynccontextmanager
async def running(data_dir: Path, **settings: object) -> AsyncIterator[tuple[Broker, Client, Coordinator]]:
    async with running_broker(data_dir, **settings) as broker, client_of(broker) as client:
        coordinator = Coordinator(broker)
        broker.parts.transaction_verification._verifier = coordinator
        await create_topic(client, "t", partitions=2)
        yield broker, client, coordinator


def in_transaction(
    *sequences: int, producer: int = 7, epoch: int = 0, acks: int = -1, records: Mapping[int, bytes] | None = None
) -> ProduceRequest:
    """One batch for each partition, with these sequences from partition 0 on."""
    batches = {
        index: batch(
            b"%d" % sequence, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=True
        )
        for index, sequence in enumerate(sequences)
    }
    data = [PartitionProduceData(index=index, records=each) for index, each in {**batches, **(records or {})}.items()]
    topics = [TopicProduceData(name="t", partition_data=data)]
    return ProduceRequest(transactional_id="tx", acks=acks, timeout_ms=5000, topic_data=topics)


def codes(response: ProduceResponse) -> list[ErrorCode]:
    return [ErrorCode(each.error_code) for topic in response.responses for each in topic.partition_responses]


async def sent(client: Client, request: ProduceRequest, version: int = VERIFY) -> list[ErrorCode]:
    return codes(await client.call(request, ProduceResponse, version))


@pytest.mark.parametrize(("version", "registers"), [(VERIFY_OLD, False), (VERIFY, False), (REGISTER, True)])
async def test_coordinator_is_asked_once_for_a_transaction(tmp_path: Path, version: int, registers: bool) -> None:
    async with running(tmp_path) as (broker, client, coordinator):
        assert await sent(client, in_transaction(0, 0), version) == [NONE, NONE]
        assert await sent(client, in_transaction(1, 1), version) == [NONE, NONE]

        assert coordinator.asked == [("tx", 7, 0, [("t", 0), ("t", 1)], registers)]
        assert broker.replicas.partition("t", 0).last_stable_offset == 0
        await ended(client, "t", producer=7, commit=COMMIT)
        assert await sent(client, in_transaction(2), version) == [NONE]
        assert len(coordinator.asked) == 2, "the next transaction is asked about again"


async def test_plain_produce_asks_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, client, coordinator):
        assert (await produce(client, "t", b"plain")).error_code == 0
        request = in_transaction(records={0: batch(b"idempotent", producer_id=8, producer_epoch=0, base_sequence=0)})
        assert await sent(client, request) == [NONE]

        assert coordinator.asked == []


async def test_request_waits_for_the_answer_and_so_do_others(tmp_path: Path) -> None:
    """§40.2.8: the order of a connection is kept; other connections go on."""
    async with running(tmp_path) as (broker, client, coordinator), client_of(broker) as other:
        coordinator.waits = True
        client.send(in_transaction(0), VERIFY)
        client.send(in_transaction(1), VERIFY)
        await until(broker, lambda: len(coordinator.asked) == 1)
        assert (await produce(other, "t", b"plain")).base_offset == 0

        coordinator.answer()

        answers = [await client.receive(ProduceResponse, VERIFY) for _ in range(2)]
        assert [codes(each) for each in answers] == [[NONE], [NONE]]
        assert len(coordinator.asked) == 1
        assert values_of((await fetch(other, "t")).records) == [b"plain", b"0", b"1"]


@pytest.mark.parametrize("waits", [False, True])
async def test_records_are_copied_only_to_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool) -> None:
    """A batch may have a megabyte. What a coordinator on the same broker answers at once costs no copy."""
    kept: list[object] = []
    keep = produce_handler._keep_records
    monkeypatch.setattr(produce_handler, "_keep_records", lambda request: (kept.append(request), keep(request)))
    async with running(tmp_path) as (broker, client, coordinator):
        coordinator.waits = waits
        client.send(in_transaction(0), VERIFY)
        await until(broker, lambda: len(coordinator.asked) == 1)
        coordinator.answer()

        assert codes(await client.receive(ProduceResponse, VERIFY)) == [NONE]
        assert len(kept) == waits
        assert values_of((await fetch(client, "t")).records) == [b"0"]


@pytest.mark.parametrize(
    ("answer", "old", "verifying", "registering"),
    [
        (ErrorCode.PRODUCER_FENCED, *[ErrorCode.INVALID_PRODUCER_EPOCH] * 3),
        (
            ErrorCode.TRANSACTION_ABORTABLE,
            ErrorCode.INVALID_TXN_STATE,
            ErrorCode.TRANSACTION_ABORTABLE,
            ErrorCode.TRANSACTION_ABORTABLE,
        ),
        (ErrorCode.NETWORK_EXCEPTION, *[ErrorCode.NOT_ENOUGH_REPLICAS] * 3),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, *[ErrorCode.NOT_ENOUGH_REPLICAS] * 3),
        (
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.CONCURRENT_TRANSACTIONS,
        ),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, *[ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 3),
    ],
)
async def test_producer_gets_what_its_version_knows(
    tmp_path: Path, answer: ErrorCode, old: ErrorCode, verifying: ErrorCode, registering: ErrorCode
) -> None:
    """§40.5; the other partition of the request is appended as usual."""
    settings = {"add_partitions_to_txn_retry_backoff_max_ms": 0}
    async with running(tmp_path, **settings) as (broker, client, coordinator):
        coordinator.codes["t", 1] = answer
        for sequence, (version, expected) in enumerate(
            [(VERIFY_OLD, old), (VERIFY, verifying), (REGISTER, registering)]
        ):
            assert await sent(client, in_transaction(sequence, 0), version) == [NONE, expected]

        assert broker.replicas.partition("t", 0).log.log_end_offset == 3
        assert broker.replicas.partition("t", 1).log.log_end_offset == 0


async def test_transaction_that_is_about_to_end_is_asked_about_again(tmp_path: Path) -> None:
    """§40.2.7: the producer begins its next one while markers of the one before are under way."""
    async with running(tmp_path) as (_, client, coordinator):
        coordinator.script = [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
        assert await sent(client, in_transaction(0), REGISTER) == [NONE]
        assert len(coordinator.asked) == 3

        coordinator.script = [ErrorCode.CONCURRENT_TRANSACTIONS]
        assert await sent(client, in_transaction(0, producer=8), VERIFY) == [ErrorCode.NOT_ENOUGH_REPLICAS]


async def test_marker_before_the_answer_voids_it(tmp_path: Path) -> None:
    """TX23, §40.3.5: the batch would open a transaction that no marker ends."""
    async with running(tmp_path) as (broker, client, coordinator), client_of(broker) as other:
        coordinator.waits = True
        client.send(in_transaction(0), VERIFY)
        await until(broker, lambda: len(coordinator.asked) == 1)
        await ended(other, "t", producer=7, commit=ABORT)

        coordinator.answer()

        assert codes(await client.receive(ProduceResponse, VERIFY)) == [ErrorCode.INVALID_TXN_STATE]
        partition = broker.replicas.partition("t", 0)
        assert partition.last_stable_offset == partition.log.log_end_offset == 1


@pytest.mark.parametrize("version", [VERIFY_OLD, VERIFY])
async def test_late_duplicate_keeps_no_later_batch_out(tmp_path: Path, version: int) -> None:
    """§40.3.6: the coordinator refuses what belongs to no transaction any more."""
    async with running(tmp_path) as (broker, client, coordinator):
        assert await sent(client, in_transaction(0), version) == [NONE]
        await ended(client, "t", producer=7, commit=ABORT)
        coordinator.script = [ErrorCode.TRANSACTION_ABORTABLE]
        (refused,) = await sent(client, in_transaction(0), version)
        assert refused is (ErrorCode.INVALID_TXN_STATE if version < VERIFY else ErrorCode.TRANSACTION_ABORTABLE)

        assert await sent(client, in_transaction(1), version) == [NONE]
        assert broker.replicas.partition("t", 0).log.log_end_offset == 3


async def test_next_transaction_may_begin_before_the_marker_comes(tmp_path: Path) -> None:
    """§39.3.3: with an epoch for each transaction, the marker has that of the next one."""
    async with running(tmp_path) as (broker, client, coordinator), client_of(broker) as other:
        assert await sent(client, in_transaction(0), REGISTER) == [NONE]
        coordinator.waits = True
        client.send(in_transaction(0, epoch=1), REGISTER)
        await until(broker, lambda: len(coordinator.asked) == 2)
        ending = marker("t", producer=7, commit=COMMIT, epoch=1, transaction_version=2)
        assert await mark(other, ending) == [(7, "t", 0, NONE)]

        coordinator.answer()

        assert codes(await client.receive(ProduceResponse, REGISTER)) == [NONE]
        assert broker.replicas.partition("t", 0).last_stable_offset == 2


async def test_partition_that_is_not_here_is_not_asked_about(tmp_path: Path) -> None:
    """§40.2.1"""
    async with running(tmp_path) as (_, client, coordinator):
        request = in_transaction(0)
        request.topic_data[0].partition_data[0].index = 9
        assert await sent(client, request) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert coordinator.asked == []

        assert await sent(client, in_transaction(0, epoch=3)) == [NONE]
        assert await sent(client, in_transaction(1, epoch=2)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert len(coordinator.asked) == 1


async def test_request_without_its_id_or_of_two_producers_is_refused(tmp_path: Path) -> None:
    """§40.1.1"""
    async with running(tmp_path) as (broker, client, _):
        nameless = in_transaction(0, records={1: batch(b"plain")})
        nameless.transactional_id = None
        assert await sent(client, nameless) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2

        other = batch(b"b", producer_id=8, producer_epoch=0, base_sequence=0, transactional=True)
        assert await sent(client, in_transaction(0, records={1: other})) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
        assert broker.replicas.partition("t", 0).log.log_end_offset == 0


async def test_verification_can_be_switched_off(tmp_path: Path) -> None:
    """§40.2.2: not the registration, which is what a producer of that version relies on."""
    settings: dict[str, Any] = {"transaction_partition_verification_enable": "false"}
    async with running(tmp_path, **settings) as (_, client, coordinator):
        assert await sent(client, in_transaction(0)) == [NONE]
        assert coordinator.asked == []
        await ended(client, "t", producer=7, commit=ABORT)

        assert await sent(client, in_transaction(1), REGISTER) == [NONE]
        assert len(coordinator.asked) == 1


async def test_request_without_acks_is_appended_after_the_answer(tmp_path: Path) -> None:
    async with running(tmp_path) as (broker, client, coordinator):
        coordinator.waits = True
        client.send(in_transaction(0, acks=0), VERIFY)
        await until(broker, lambda: len(coordinator.asked) == 1)
        coordinator.answer()

        assert await sent(client, in_transaction(1)) == [NONE]
        coordinator.codes["t", 1] = ErrorCode.TRANSACTION_ABORTABLE
        client.send(in_transaction(2, 0, acks=0), VERIFY)
        assert await client.is_closed_by_broker()


async def test_answer_after_the_client_has_gone_is_used_all_the_same(tmp_path: Path) -> None:
    async with running(tmp_path) as (broker, client, coordinator):
        coordinator.waits = True
        client.send(in_transaction(0), VERIFY)
        await until(broker, lambda: len(coordinator.asked) == 1)
        client.close()
        await until(broker, lambda: not broker.server.connections)

        coordinator.answer()

        assert broker.replicas.partition("t", 0).log.log_end_offset == 1


async def test_log_start_is_returned_only_for_what_reached_the_log(tmp_path: Path) -> None:
    """As in Kafka, where a batch that the coordinator refuses is answered before any log is asked."""
    async with running(tmp_path) as (_, client, coordinator):

        async def log_start(request: ProduceRequest) -> tuple[ErrorCode, int]:
            response = await client.call(request, ProduceResponse, VERIFY)
            ((partition,),) = [topic.partition_responses for topic in response.responses]
            return ErrorCode(partition.error_code), partition.log_start_offset

        coordinator.codes = {("t", 0): ErrorCode.PRODUCER_FENCED}
        assert await log_start(in_transaction(5)) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
        coordinator.codes = {}
        assert await sent(client, in_transaction(0)) == [NONE]
        assert await log_start(in_transaction(5)) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0)
        outside = PartitionProduceData(index=0, records=batch(b"1", producer_id=7, producer_epoch=0, base_sequence=1))
        topic = TopicProduceData(name="t", partition_data=[outside])
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])
        assert await log_start(request) == (ErrorCode.INVALID_TXN_STATE, 0)
