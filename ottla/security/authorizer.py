"""What a principal may do, by the rules of Kafka's standard authorizer (KIP-11, KIP-290, KIP-801).

Super users may do everything. For the others all ACLs that are about the resource count, whatever their order: one that
denies decides, else one that allows; where no ACL at all is about the resource, the default decides.
"""

from typing import NamedTuple

from ottla.security.acl import (
    EVERYBODY,
    WILDCARD,
    AclBinding,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.security.acl_index import AclIndex
from ottla.security.authentication import Principal

_IMPLIED: dict[AclOperation, frozenset[AclOperation]] = {
    AclOperation.DESCRIBE: frozenset({AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
}
"""Which operations, when they are allowed, allow this one too. To deny them denies nothing else."""
_PROBE = "hardcode"
"""The name by which Kafka asks about a type at large: super users and the default answer for it as for any other."""


class Decision(NamedTuple):
    is_allowed: bool
    why: str
    """For the log: `super user`, `acl`, `default` or `no acl`."""
    acl: AclBinding | None = None
    """The one that has decided."""


_SUPER_USER = Decision(True, "super user")
_NO_ACL = Decision(False, "no acl")


class Authorizer:
    """Made for one set of ACLs and never changed: who reads it sees the whole set."""

    def __init__(self, acls: AclIndex, super_users: frozenset[Principal], *, allows_without_acl: bool = False) -> None:
        """`allows_without_acl`: whether what no ACL is about is open to everybody."""
        self.acls = acls
        self._super_users = super_users
        self._default = Decision(allows_without_acl, "default")

    def decide(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> Decision:
        """`host`: the client's address as `normal_host` writes it; `name`: of one resource, no pattern."""
        if principal in self._super_users:
            return _SUPER_USER
        is_about = False
        allowed: AclBinding | None = None
        for by_principal in self.acls.about(resource_type, name):
            is_about = True
            for whose in (str(principal), EVERYBODY):
                for from_host, acl in by_principal.get(whose, ()):
                    if from_host not in (WILDCARD, host) or not _fits(acl, operation):
                        continue
                    if acl.permission is Permission.DENY:
                        return Decision(False, "acl", acl)
                    allowed = acl
        if allowed is not None:
            return Decision(True, "acl", allowed)
        return _NO_ACL if is_about else self._default

    def decide_for_some(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> Decision:
        """Whether the principal may do it with at least one resource of the type, whatever its name."""
        at_large = self.decide(principal, host, operation, resource_type, _PROBE)
        if at_large.is_allowed:
            return at_large
        fitting = [
            acl
            for from_host, acl in self.acls.of_principal(resource_type, str(principal))
            if from_host in (WILDCARD, host) and acl.operation in (operation, AclOperation.ALL)
        ]
        denied = {(acl.pattern_type, acl.name): acl for acl in fitting if acl.permission is Permission.DENY}
        if (everything := denied.get((PatternType.LITERAL, WILDCARD))) is not None:
            return Decision(False, "acl", everything)
        longest = max((len(name) for kind, name in denied if kind is PatternType.PREFIXED), default=0)
        for acl in fitting:
            if acl.permission is Permission.ALLOW and not _is_denied(acl, denied, longest):
                return Decision(True, "acl", acl)
        return _NO_ACL


def _fits(acl: AclBinding, operation: AclOperation) -> bool:
    if acl.operation in (operation, AclOperation.ALL):
        return True
    return acl.permission is Permission.ALLOW and acl.operation in _IMPLIED.get(operation, ())


def _is_denied(acl: AclBinding, denied: dict[tuple[PatternType, str], AclBinding], longest: int) -> bool:
    """Whether nothing is left of what it allows. A literal name that is denied leaves the rest of a prefix."""
    if acl.pattern_type is PatternType.LITERAL:
        if acl.name == WILDCARD:
            return False
        if (PatternType.LITERAL, acl.name) in denied:
            return True
    lengths = range(1, min(len(acl.name), longest) + 1)
    return any((PatternType.PREFIXED, acl.name[:length]) in denied for length in lengths)
