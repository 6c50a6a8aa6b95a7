"""Records of `__transaction_state` that this broker cannot read: their partition is refused, the others are served."""

import shutil
from pathlib import Path

import pytest

from ottla.cluster.image import TRANSACTION_STATE
from ottla.coordinator.runtime.hashing import partition_for
from ottla.coordinator.transactions.records import build_transaction_key
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.records.record import Record, build_batch
from tests.broker.clusters import ask, until
from tests.broker.transaction_requests import TransactionalProducer
from tests.broker.wire import running_broker
from tests.storage.transactional import copy

PARTITIONS = 2
SETTINGS = {"transaction_state_log_num_partitions": PARTITIONS}
# Of two ids with coordinators of their own.
DAMAGED, SOUND = (next(f"id{n}" for n in range(99) if partition_for(f"id{n}", PARTITIONS) == at) for at in (0, 1))
UNKNOWN_VERSION = bytes.fromhex("0063") + bytes(40)
TOO_SHORT = bytes.fromhex("0000 0001")


async def with_a_record(directory: Path, value: bytes) -> None:
    """Both ids have a producer; the state of the first ends with this value."""
    async with running_broker(directory, **SETTINGS) as broker:
        for transactional_id in (DAMAGED, SOUND):
            assert await TransactionalProducer({0: broker}, transactional_id).initialize() is ErrorCode.NONE
        log = broker.replicas.partition(TRANSACTION_STATE, 0).log
        record = Record(timestamp=1, key=build_transaction_key(DAMAGED), value=value)
        copy(log, build_batch([record], base_offset=log.log_end_offset, leader_epoch=0))


@pytest.mark.parametrize("value", [UNKNOWN_VERSION, TOO_SHORT], ids=["unknown version", "too short"])
async def test_unreadable_record_refuses_the_ids_beside_it_alone(tmp_path: Path, value: bytes) -> None:
    """To go on without it would let a fenced producer write."""
    await with_a_record(tmp_path, value)
    async with running_broker(tmp_path, **SETTINGS) as broker:
        await until(lambda: "coordinator could not be loaded" in [event for event, _ in broker.log.events])
        begin = InitProducerIdRequest(transactional_id=DAMAGED, transaction_timeout_ms=1000)
        end = EndTxnRequest(transactional_id=DAMAGED, producer_id=0, producer_epoch=0, committed=True)

        assert (await ask(broker, begin, 5)).error_code == ErrorCode.NOT_COORDINATOR
        assert (await ask(broker, end, 5)).error_code == ErrorCode.NOT_COORDINATOR
        sound = TransactionalProducer({0: broker}, SOUND)
        assert await sound.initialize() is ErrorCode.NONE
        assert sound.producer_epoch == 1


async def test_ids_are_served_again_when_their_directory_is_moved_away(tmp_path: Path) -> None:
    """The way out of docs/troubleshooting.md; what was known of the ids is gone."""
    await with_a_record(tmp_path, UNKNOWN_VERSION)
    shutil.move(tmp_path / f"{TRANSACTION_STATE}-0", tmp_path.with_name("moved away"))

    async with running_broker(tmp_path, **SETTINGS) as broker:
        again = TransactionalProducer({0: broker}, DAMAGED)
        assert await again.initialize() is ErrorCode.NONE
        assert again.producer_epoch == 0
