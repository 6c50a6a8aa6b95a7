"""Reading consumers' subscriptions and assignments, with the version in front.

Versions from the future are read as the newest known one, and bytes after the last field are ignored: new versions
may only add fields at the end. So does every Kafka client, since members of different ages share a group.
"""

from typing import Final, TypeVar

from ottla.protocol.codec import decode
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.protocol.primitives import Buffer, DecodeError
from ottla.protocol.schema import Message

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of groups whose members speak this."""

_VERSION_BYTES: Final = 2

M = TypeVar("M", bound=Message)


def parse_subscription(data: Buffer) -> ConsumerProtocolSubscription:
    """What a member wants to read; DecodeError when the bytes are not a subscription."""
    return _parse(ConsumerProtocolSubscription, data)


def parse_subscribed_topics(data: Buffer) -> list[str]:
    """The topics of a subscription; DecodeError when not even a version 0 can be read.

    As Kafka's coordinator does, it reads the fields of version 0, with which all versions begin, whatever version the
    bytes say: kafkajs says 1 and ends before `owned_partitions`."""
    if len(data) < _VERSION_BYTES:
        raise DecodeError("the data ends inside its version")
    subscription, _ = decode(ConsumerProtocolSubscription, 0, data, _VERSION_BYTES)
    return subscription.topics


def parse_assignment(data: Buffer) -> ConsumerProtocolAssignment:
    """What a member was given. No bytes at all are an assignment of nothing."""
    return _parse(ConsumerProtocolAssignment, data) if len(data) else ConsumerProtocolAssignment()


def _parse(cls: type[M], data: Buffer) -> M:
    if len(data) < _VERSION_BYTES:
        raise DecodeError("the data ends inside its version")
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if version < 0:
        raise DecodeError(f"version {version} of the consumer protocol")
    message, _ = decode(cls, min(version, cls.VERSIONS[1]), data, _VERSION_BYTES)
    return message
