"""Subscriptions and assignments as consumers write them, with the version in front."""

from ottla.protocol.codec import encode
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription


def build_subscription(subscription: ConsumerProtocolSubscription, version: int) -> bytes:
    """The bytes of a subscription, as JoinGroup carries them."""
    return version.to_bytes(2, "big") + encode(subscription, version)


def build_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    """The bytes of an assignment, as SyncGroup carries them."""
    return version.to_bytes(2, "big") + encode(assignment, version)
