"""What a caller may do, as bit sets of Kafka's AclOperation numbers. Without ACLs everybody may do everything."""

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
