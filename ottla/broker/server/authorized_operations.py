"""What a caller may do, as bit sets of Kafka's AclOperation numbers. Without ACLs everybody may do everything.

Only brokers may act as brokers, though: whoever could say that a follower has what it has not could lose records."""

from typing import TYPE_CHECKING

from ottla.cluster.image import MetadataImage

if TYPE_CHECKING:
    from ottla.broker.server.request_context import RequestContext

# Bits 3 to 12: READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS,
# IDEMPOTENT_WRITE. Each kind of resource has those that mean something for it.
_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = (1 << bit for bit in range(3, 9))
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = (1 << bit for bit in range(9, 13))

GROUP_OPERATIONS = _READ | _DELETE | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS
TOPIC_OPERATIONS = _READ | _WRITE | _CREATE | _DELETE | _ALTER | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS
CLUSTER_OPERATIONS = (
    _CREATE | _ALTER | _DESCRIBE | _CLUSTER_ACTION | _DESCRIBE_CONFIGS | _ALTER_CONFIGS | _IDEMPOTENT_WRITE
)

NOT_ASKED = -(2**31)
"""The value of an `authorized_operations` field when the client has not asked for it."""


def is_broker(context: "RequestContext", image: MetadataImage, node_id: int, broker_id: int) -> bool:
    """Whether the caller may act as broker `broker_id`, another one than this, which is `node_id` (§3.4)."""
    return context.connection.is_inter_broker and broker_id in image.brokers and broker_id != node_id
