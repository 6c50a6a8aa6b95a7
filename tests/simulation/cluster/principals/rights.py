"""A model of Kafka's standard authorizer that looks at every ACL of a set, and shares no code with the broker's (§60).

Its ACLs are the tuples of `ottla.security.acl`: what is written on the wire and in the store.
"""

import ipaddress
from functools import cache

from ottla.broker.config.server_security import STANDARD_AUTHORIZER
from ottla.security.acl import OPERATIONS_OF, AclBinding, AclFilter, AclOperation, PatternType, Permission, ResourceType

SUPER_USERS = frozenset({"User:broker", "User:operator"})
ANY_PRINCIPAL, ANY_HOST, ANY_NAME = "User:*", "*", "*"
UNUSED_NAME = "hardcode"
GIVES = {
    AclOperation.READ: AclOperation.DESCRIBE,
    AclOperation.WRITE: AclOperation.DESCRIBE,
    AclOperation.DELETE: AclOperation.DESCRIBE,
    AclOperation.ALTER: AclOperation.DESCRIBE,
    AclOperation.ALTER_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
}
"""Who is allowed the one is allowed the other."""


def authorizer_settings(*, is_open: bool) -> dict[str, object]:
    """Server properties. `is_open`: whether what no ACL is about is allowed to everybody."""
    return {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": ";".join(sorted(SUPER_USERS)),
        "allow.everyone.if.no.acl.found": str(is_open).lower(),
    }


@cache
def host_of(text: str) -> str:
    """An IPv4 address that is written as one of IPv6 is the same."""
    if text == ANY_HOST:
        return text
    address = ipaddress.ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def is_about(acl: AclBinding, kind: ResourceType, name: str) -> bool:
    if acl.resource_type != kind:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return name[: len(acl.name)] == acl.name
    return acl.name in (name, ANY_NAME)


def matches(one: AclFilter, acl: AclBinding) -> bool:
    """Of filters that name a pattern as it is; not those with MATCH."""
    is_open = (None, ResourceType.ANY, PatternType.ANY, AclOperation.ANY, Permission.ANY)
    return all(wanted in is_open or wanted == had for wanted, had in _pairs(one, acl))


def _pairs(one: AclFilter, acl: AclBinding) -> list[tuple[object, object]]:
    return [
        (one.resource_type, acl.resource_type),
        (one.name, acl.name),
        (one.pattern_type, acl.pattern_type),
        (one.principal, acl.principal),
        (one.host, acl.host),
        (one.operation, acl.operation),
        (one.permission, acl.permission),
    ]


class Rights:
    """What one set of ACLs allows."""

    def __init__(self, acls: frozenset[AclBinding], *, is_open: bool) -> None:
        """`is_open`: whether what no ACL is about is allowed to everybody."""
        self.acls = acls
        self._is_open = is_open
        self._known: dict[tuple[str, str, AclOperation, ResourceType, str], bool] = {}

    def may(self, principal: str, host: str, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        key = principal, host, operation, kind, name
        if key not in self._known:
            self._known[key] = principal in SUPER_USERS or self._may(*key)
        return self._known[key]

    def may_with_some(self, principal: str, host: str, operation: AclOperation, kind: ResourceType) -> bool:
        """With at least one resource of the type, as Kafka's `authorizeByResourceType` sees it."""
        if self.may(principal, host, operation, kind, UNUSED_NAME):
            return True
        mine = [
            acl
            for acl in self._of(principal, host)
            if acl.resource_type == kind and acl.operation in (operation, AclOperation.ALL)
        ]
        allowed = [acl for acl in mine if acl.permission == Permission.ALLOW]
        denied = {(acl.pattern_type, acl.name) for acl in mine if acl.permission == Permission.DENY}
        if (PatternType.LITERAL, ANY_NAME) in denied:
            return False
        return any(self._is_left(acl, denied) for acl in allowed)

    def _is_left(self, acl: AclBinding, denied: set[tuple[PatternType, str]]) -> bool:
        if acl.pattern_type == PatternType.LITERAL:
            if acl.name == ANY_NAME:
                return True
            if (PatternType.LITERAL, acl.name) in denied:
                return False
        prefixes = (acl.name[:end] for end in range(1, len(acl.name) + 1))
        return not any((PatternType.PREFIXED, prefix) in denied for prefix in prefixes)

    def _may(self, principal: str, host: str, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        about = [acl for acl in self.acls if is_about(acl, kind, name)]
        mine = [acl for acl in self._of(principal, host) if is_about(acl, kind, name)]
        if any(acl.permission == Permission.DENY and acl.operation in (operation, AclOperation.ALL) for acl in mine):
            return False
        allowed = {acl.operation for acl in mine if acl.permission == Permission.ALLOW}
        if AclOperation.ALL in allowed or operation in allowed or operation in {GIVES.get(each) for each in allowed}:
            return True
        return self._is_open and not about

    def _of(self, principal: str, host: str) -> list[AclBinding]:
        return [
            acl
            for acl in self.acls
            if acl.principal in (principal, ANY_PRINCIPAL) and host_of(acl.host) in (host_of(host), ANY_HOST)
        ]


class Seen:
    """What one principal at one host may, at one moment of one broker, and which topics the broker had then."""

    def __init__(self, rights: Rights, principal: str, host: str, topics: dict[str, bytes]) -> None:
        self.rights = rights
        self.topics = topics
        self._who = principal, host

    def topic(self, operation: AclOperation, name: str) -> bool:
        return self.rights.may(*self._who, operation, ResourceType.TOPIC, name)

    def group(self, operation: AclOperation, name: str) -> bool:
        return self.rights.may(*self._who, operation, ResourceType.GROUP, name)

    def transactional_id(self, operation: AclOperation, name: str) -> bool:
        return self.rights.may(*self._who, operation, ResourceType.TRANSACTIONAL_ID, name)

    def cluster(self, operation: AclOperation) -> bool:
        return self.rights.may(*self._who, operation, ResourceType.CLUSTER, "kafka-cluster")

    def some_topic(self, operation: AclOperation) -> bool:
        return self.rights.may_with_some(*self._who, operation, ResourceType.TOPIC)

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name, known in self.topics.items() if known == topic_id), None)

    def bits(self, kind: ResourceType, name: str) -> int:
        """Of an `authorized_operations` field."""
        return sum(1 << each for each in OPERATIONS_OF[kind] if self.rights.may(*self._who, each, kind, name))
