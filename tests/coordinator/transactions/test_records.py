"""Records of `__transaction_state` against bytes of Apache Kafka's `TransactionLogKey` and `TransactionLogValue`."""

import pytest

from ottla.coordinator.transactions.entry import TransactionMetadata, TransactionState
from ottla.coordinator.transactions.participants import Participants
from ottla.coordinator.transactions.records import (
    build_transaction_key,
    build_transaction_value,
    parse_transaction_key,
    parse_transaction_value,
)
from ottla.protocol.primitives import DecodeError

ONGOING = TransactionMetadata(
    producer_id=1000,
    producer_epoch=5,
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=Participants.of({("t", 0), ("t", 3)}),
    last_update_ms=2000,
    start_ms=1500,
    client_version=2,
)
EMPTY = TransactionMetadata(producer_id=1000, producer_epoch=0, timeout_ms=60_000, last_update_ms=1000)
EXHAUSTED = ONGOING._replace(
    producer_epoch=32767,
    state=TransactionState.PREPARE_COMMIT,
    previous_producer_id=1000,
    next_producer_id=2000,
)
VECTORS = [
    (0, EMPTY, "0000 00000000000003e8 0000 0000ea60 00 ffffffff 00000000000003e8 ffffffffffffffff"),
    (
        1,
        ONGOING,
        (
            "0001 00000000000003e8 0005 0000ea60 01 02 02 74 03 00000000 00000003 00 00000000000007d0 00000000000005dc"
            "01 02 02 0002"
        ),
    ),
    (
        1,
        EXHAUSTED,
        (
            "0001 00000000000003e8 7fff 0000ea60 02 02 02 74 03 00000000 00000003 00 00000000000007d0 00000000000005dc"
            "03 00 08 00000000000003e8 01 08 00000000000007d0 02 02 0002"
        ),
    ),
]
every_vector = pytest.mark.parametrize(("version", "metadata", "data"), VECTORS, ids=["empty", "ongoing", "exhausted"])


def test_a_key_is_the_bytes_of_kafka() -> None:
    assert build_transaction_key("tx") == bytes.fromhex("0000 0002 7478")
    assert parse_transaction_key(bytes.fromhex("0000 0002 7478")) == "tx"


@every_vector
def test_values_are_the_bytes_of_kafka(version: int, metadata: TransactionMetadata, data: str) -> None:
    assert build_transaction_value(metadata, version) == bytes.fromhex(data)
    assert parse_transaction_value(bytes.fromhex(data)) == metadata


def test_a_key_of_another_kind_is_passed_over() -> None:
    assert parse_transaction_key(bytes.fromhex("0001 0002 7478")) is None


def test_a_value_of_an_unknown_version_is_refused() -> None:
    with pytest.raises(DecodeError, match="version 2"):
        parse_transaction_value(bytes.fromhex("0002 00"))


def test_a_value_in_an_unknown_state_is_refused() -> None:
    data = bytearray(build_transaction_value(EMPTY, 0))
    data[2 + 8 + 2 + 4] = 9
    with pytest.raises(DecodeError, match="state 9"):
        parse_transaction_value(bytes(data))


def test_partitions_of_several_topics_come_out_in_order() -> None:
    metadata = ONGOING._replace(partitions=Participants.of({("u", 1), ("t", 7), ("t", 2)}))
    assert parse_transaction_value(build_transaction_value(metadata, 1)) == metadata
    assert build_transaction_value(metadata, 1).index(b"\x02t") < build_transaction_value(metadata, 1).index(b"\x02u")


@pytest.mark.parametrize("size", range(2, 35))
def test_a_value_that_was_cut_short_is_refused(size: int) -> None:
    with pytest.raises(DecodeError):
        parse_transaction_value(build_transaction_value(ONGOING, 1)[:size])
