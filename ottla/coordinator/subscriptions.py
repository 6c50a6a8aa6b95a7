"""Which topics a group consumes, as far as its members' metadata tells (docs/semantics §5.8)."""

from ottla.coordinator.group import Group
from ottla.protocol.consumer_protocol import PROTOCOL_TYPE, parse_subscribed_topics
from ottla.protocol.primitives import DecodeError


def consumes(group: Group) -> bool:
    """Its members speak the consumer protocol, so that their metadata can be read."""
    return group.protocol_type == PROTOCOL_TYPE


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """None when it cannot be known: then it may be any topic. Asked rarely, so it is worked out anew each time."""
    if not group.members:
        return frozenset()
    if not consumes(group) or group.protocol_name is None:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        try:
            topics.update(parse_subscribed_topics(member.metadata_for(group.protocol_name)))
        except DecodeError:
            return None
    return frozenset(topics)
