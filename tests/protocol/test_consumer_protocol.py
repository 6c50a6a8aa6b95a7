"""Subscriptions and assignments of consumers, of all ages."""

import pytest

from ottla.protocol.consumer_protocol import parse_assignment, parse_subscribed_topics, parse_subscription
from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from ottla.protocol.primitives import DecodeError
from tests.fakes.consumer_protocol import build_assignment, build_subscription

OWNED = [TopicPartition(topic="t", partitions=[0, 2])]


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_is_read_in_the_version_it_says(version: int) -> None:
    subscription = ConsumerProtocolSubscription(topics=["t", "u"], user_data=b"x")
    subscription.owned_partitions = OWNED if version >= 1 else []
    subscription.generation_id = 5 if version >= 2 else -1
    subscription.rack_id = "r" if version >= 3 else None

    assert parse_subscription(build_subscription(subscription, version)) == subscription


@pytest.mark.parametrize("version", range(4))
def test_an_assignment_is_read_in_the_version_it_says(version: int) -> None:
    assignment = ConsumerProtocolAssignment(assigned_partitions=OWNED, user_data=None)

    assert parse_assignment(build_assignment(assignment, version)) == assignment


def test_a_version_from_the_future_is_read_as_the_newest_known() -> None:
    subscription = ConsumerProtocolSubscription(topics=["t"], rack_id="r")
    data = b"\x00\x09" + build_subscription(subscription, 3)[2:] + b"new fields"

    assert parse_subscription(data) == subscription


def test_no_bytes_are_an_assignment_of_nothing() -> None:
    assert parse_assignment(b"") == ConsumerProtocolAssignment()


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\0", b"\0\0\0\0\0\x01", b"\0\0\0\0\0\x01\0\x09t"])
def test_what_is_no_subscription_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_subscription(data)


@pytest.mark.parametrize("version", [b"\0\0", b"\0\1", b"\0\3", b"\0\x09", b"\xff\xff"])
@pytest.mark.parametrize("rest", [b"", b"\0\0", b"\0\0\0\0"], ids=["short", "cut", "whole"])
def test_topics_are_read_whatever_comes_after_version_0(version: bytes, rest: bytes) -> None:
    """Kafka's `ClassicGroup.computeSubscribedTopics` reads the fields of version 0 only."""
    data = version + b"\0\0\0\1\0\1t" + b"\xff\xff\xff\xff" + rest

    assert parse_subscribed_topics(data) == ["t"]


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1", b"\0\1\0\0\0\1\0\1t", b"\0\1\0\0\0\1\0\1t\0\0\0\5"])
def test_topics_of_less_than_version_0_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_subscribed_topics(data)
