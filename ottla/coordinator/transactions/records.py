"""The records of `__transaction_state`, byte for byte Kafka's (docs/semantics §13.1.2).

A record holds all that is known of one transactional id; a null value is the tombstone of one that expired. Both
versions are read. Version 0 is written while the cluster's `transaction.version` is 0; it has no room for the previous
and the next producer id. Kafka up to 4.3 writes neither, although it reads both: a producer whose epoch is exhausted
would lose the id that it was promised when the coordinator moves.
"""

from collections import defaultdict
from collections.abc import Set as AbstractSet
from typing import Any, Final

from ottla.coordinator.transactions.entry import TransactionMetadata, TransactionState
from ottla.coordinator.transactions.participants import NO_PARTICIPANTS, Participant, Participants
from ottla.protocol.codec import decode, encode
from ottla.protocol.primitives import DecodeError
from ottla.protocol.schema import Message, define

_KEY_VERSION: Final = 0

ROOM_TO_END_BYTES: Final = 128
"""What the batch that ends a transaction may have beyond the key and the value that registered its last partition: a
batch's header (61), the lengths in its record (17 at most), the three tagged fields (24), and, after a value of version
0, their number and that of topics, which is shorter there."""

_messages = define(
    """
TransactionLogKey  key none  versions 0-0  flexible none
  transactional_id  string  0+

TransactionLogValue  key none  versions 0-1  flexible 1+
  producer_id                           int64                0+
  previous_producer_id                  int64                1+  tag 0  = -1
  next_producer_id                      int64                1+  tag 1  = -1
  producer_epoch                        int16                0+
  transaction_timeout_ms                int32                0+
  transaction_status                    int8                 0+
  transaction_partitions                []PartitionsOfTopic  0+  null
    topic                               string               0+
    partition_ids                       []int32              0+
  transaction_last_update_timestamp_ms  int64                0+
  transaction_start_timestamp_ms        int64                0+
  client_transaction_version            int16                1+  tag 2
""",
    __name__,
)
_by_name: Final[dict[str, Any]] = {cls.__name__: cls for cls in _messages}
_key_message: Final = _by_name["TransactionLogKey"]
_value_message: Final = _by_name["TransactionLogValue"]
# Behind the version, the id, the epoch, the timeout and the state.
_PARTITIONS_AT: Final = 2 + 8 + 2 + 4 + 1


def parse_transaction_key(key: bytes) -> str | None:
    """The transactional id; None for a record of another kind. Raises `DecodeError`."""
    version = _version_of(key)
    return _parse(_key_message, version, key).transactional_id if version == _KEY_VERSION else None


def build_transaction_key(transactional_id: str) -> bytes:
    return _build(_key_message(transactional_id=transactional_id), _KEY_VERSION)


def parse_transaction_value(value: bytes) -> TransactionMetadata:
    """Raises `DecodeError`, for an unknown version too: to take it for absent would let a fenced producer go on."""
    version = _version_of(value)
    first, last = _value_message.VERSIONS
    if not first <= version <= last:
        raise DecodeError(f"a transaction's record of version {version}, at most {last} is known")
    message = _parse(_value_message, version, value)
    try:
        state = TransactionState(message.transaction_status)
    except ValueError:
        raise DecodeError(f"a transaction's record in state {message.transaction_status}") from None
    return TransactionMetadata(
        producer_id=message.producer_id,
        producer_epoch=message.producer_epoch,
        timeout_ms=message.transaction_timeout_ms,
        state=state,
        partitions=Participants.of_topics(
            (topic.topic, topic.partition_ids) for topic in message.transaction_partitions or ()
        ),
        last_update_ms=message.transaction_last_update_timestamp_ms,
        start_ms=message.transaction_start_timestamp_ms,
        previous_producer_id=message.previous_producer_id,
        next_producer_id=message.next_producer_id,
        client_version=message.client_transaction_version,
    )


def build_transaction_value(metadata: TransactionMetadata, version: int) -> bytes:
    """Topics and partitions are in order, so that equal metadata are equal bytes. They come with their bytes."""
    is_empty = metadata.state is TransactionState.EMPTY
    message = _value_message(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=int(metadata.state),
        transaction_partitions=None if is_empty else [],
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.client_version,
    )
    value = _build(message, version)
    if not metadata.partitions:
        return value
    end = _PARTITIONS_AT + len(NO_PARTICIPANTS.encoded(version))
    return b"".join((value[:_PARTITIONS_AT], metadata.partitions.encoded(version), value[end:]))


def by_topic(partitions: AbstractSet[Participant]) -> dict[str, list[int]]:
    """The partitions of each topic, both in order."""
    if isinstance(partitions, Participants):
        return partitions.by_topic()
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        topics[topic].append(partition)
    return {topic: sorted(topics[topic]) for topic in sorted(topics)}


def _version_of(data: bytes) -> int:
    if len(data) < 2:
        raise DecodeError(f"{len(data)} bytes are too few for a version")
    return int.from_bytes(data[:2], "big", signed=True)


def _parse(message: type[Message], version: int, data: bytes) -> Any:
    # Bytes that are left over are let be, as Kafka does.
    return decode(message, version, data, 2)[0]


def _build(message: Message, version: int) -> bytes:
    return version.to_bytes(2, "big") + encode(message, version)
