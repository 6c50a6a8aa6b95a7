"""Access control lists: who may do what with which resources (KIP-11, KIP-290). The numbers are those on the wire."""

from enum import IntEnum
from typing import NamedTuple, Self

from ottla.security.authentication import parse_principal

CLUSTER_NAME = "kafka-cluster"
"""The one resource of the type CLUSTER."""
WILDCARD = "*"
"""As a literal name: every resource of the type; as a host: every host."""
EVERYBODY = "User:*"
"""As the principal of an ACL: every principal of every type."""
NAME_LENGTH_MAX = 1_000


class _WireNumber(IntEnum):
    """A number that stands for nothing is 0, UNKNOWN."""

    @classmethod
    def _missing_(cls, value: object) -> Self:  # noqa: ARG003
        return cls(0)


class ResourceType(_WireNumber):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_WireNumber):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_WireNumber):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


OPERATIONS_OF: dict[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
"""Those that mean something for a resource of the type; of the first three, their bits are in the
`authorized_operations` fields of responses. An ACL with another one can be created, and allows nothing."""


class Permission(_WireNumber):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclBinding(NamedTuple):
    """One ACL: `permission` for `principal` from `host` to do `operation` with what the pattern names."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: Permission


class AclFilter(NamedTuple):
    """Which ACLs to describe or to delete; ANY and None leave a field open."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY

    @property
    def is_known(self) -> bool:
        """False for one with a number that nothing has."""
        return all((self.resource_type, self.pattern_type, self.operation, self.permission))

    def matches(self, acl: AclBinding) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_pattern(self, acl: AclBinding) -> bool:
        if self.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED) and self.pattern_type != acl.pattern_type:
            return False
        if self.name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.name == acl.name
        return is_pattern_for(acl.pattern_type, acl.name, self.name)


def is_pattern_for(pattern_type: PatternType, pattern: str, name: str) -> bool:
    """Whether an ACL with this pattern is about the resource of this name."""
    if pattern_type is PatternType.PREFIXED:
        return name.startswith(pattern)
    return pattern in (name, WILDCARD)


def why_not_created(acl: AclBinding) -> str | None:
    """Why this ACL cannot be created, as a sentence; None: it can. An operation that means nothing for its type can be
    created, as in Kafka."""
    if acl.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        return "the resource type of an ACL is one of TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return "the pattern type of an ACL is LITERAL or PREFIXED"
    if acl.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        return "the operation of an ACL is a certain one, or ALL"
    if acl.permission not in (Permission.DENY, Permission.ALLOW):
        return "the permission of an ACL is DENY or ALLOW"
    return _why_no_names(acl)


def _why_no_names(acl: AclBinding) -> str | None:
    for what, text in (("name", acl.name), ("principal", acl.principal), ("host", acl.host)):
        if not text or len(text) > NAME_LENGTH_MAX or not text.isprintable():
            return f"the {what} of an ACL has 1 to {NAME_LENGTH_MAX:,} characters, and no control characters"
    if acl.resource_type is ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        return f"the only resource of the type CLUSTER is named {CLUSTER_NAME}"
    try:
        parse_principal(acl.principal)
    except ValueError as error:
        return str(error)
    if acl.host != WILDCARD and normal_host(acl.host) is None:
        return "the host of an ACL is an IP address, or * for all"
    return None


def normal_host(text: str) -> str | None:
    """An IP address in the one form in which addresses are compared; None for what is none. A mapped IPv4 address is
    the IPv4 address."""
    import ipaddress  # A broker without an authorizer starts without it.

    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address)
