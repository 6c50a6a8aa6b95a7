"""All ACLs of a cluster, in the order in which decisions look for them. Immutable: who reads it sees a whole set.

Per type of resource there is a dictionary of literal names, and one of prefixes for each length of prefix, so that a
decision looks once per length and never at ACLs about other names. A changed index shares with the one before what no
change has touched.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.security.acl import EVERYBODY, WILDCARD, AclBinding, PatternType, ResourceType, normal_host


class IndexedAcl(NamedTuple):
    host: str
    """In the form in which addresses are compared, or the wildcard."""
    acl: AclBinding


AclsOfName = Mapping[str, tuple[IndexedAcl, ...]]
"""By principal."""


class _AclsOfType:
    """The ACLs about one type of resource: by name, then by principal."""

    __slots__ = ("_owned", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, dict[str, tuple[IndexedAcl, ...]]] = {}
        self.prefixed: dict[int, dict[str, dict[str, tuple[IndexedAcl, ...]]]] = {}
        """By the length of the prefix."""
        # The names that this copy has dictionaries of its own for.
        self._owned: set[tuple[PatternType, str]] = set()

    def copy(self) -> "_AclsOfType":
        copy = _AclsOfType()
        copy.literal = dict(self.literal)
        copy.prefixed = {length: dict(names) for length, names in self.prefixed.items()}
        return copy

    def add(self, acl: AclBinding) -> None:
        indexed = IndexedAcl(acl.host if acl.host == WILDCARD else normal_host(acl.host) or acl.host, acl)
        by_principal = self._names(acl).setdefault(acl.name, {})
        by_principal = self._own(acl, by_principal)
        known = by_principal.get(acl.principal, ())
        if indexed not in known:
            by_principal[acl.principal] = (*known, indexed)

    def remove(self, acl: AclBinding) -> None:
        names = self._names(acl)
        if acl.name not in names:
            return
        by_principal = self._own(acl, names[acl.name])
        left = tuple(each for each in by_principal.get(acl.principal, ()) if each.acl != acl)
        if left:
            by_principal[acl.principal] = left
        else:
            by_principal.pop(acl.principal, None)
        if not by_principal:
            del names[acl.name]
            self._owned.discard((acl.pattern_type, acl.name))
        if not names and acl.pattern_type is PatternType.PREFIXED:
            del self.prefixed[len(acl.name)]

    def _names(self, acl: AclBinding) -> dict[str, dict[str, tuple[IndexedAcl, ...]]]:
        if acl.pattern_type is PatternType.LITERAL:
            return self.literal
        return self.prefixed.setdefault(len(acl.name), {})

    def _own(
        self, acl: AclBinding, by_principal: dict[str, tuple[IndexedAcl, ...]]
    ) -> dict[str, tuple[IndexedAcl, ...]]:
        if (acl.pattern_type, acl.name) not in self._owned:
            self._owned.add((acl.pattern_type, acl.name))
            by_principal = self._names(acl)[acl.name] = dict(by_principal)
        return by_principal


class AclIndex:
    __slots__ = ("_types",)

    def __init__(self, acls: Iterable[AclBinding] = ()) -> None:
        self._types: dict[ResourceType, _AclsOfType] = {}
        for acl in acls:
            self._types.setdefault(acl.resource_type, _AclsOfType()).add(acl)

    def with_changes(self, *, added: Iterable[AclBinding] = (), removed: Iterable[AclBinding] = ()) -> "AclIndex":
        changed = AclIndex()
        copies: dict[ResourceType, _AclsOfType] = {}

        def copy_of(kind: ResourceType) -> _AclsOfType:
            if kind not in copies:
                copies[kind] = self._types.get(kind, _AclsOfType()).copy()
            return copies[kind]

        for acl in removed:
            copy_of(acl.resource_type).remove(acl)
        for acl in added:
            copy_of(acl.resource_type).add(acl)
        changed._types = {**self._types, **copies}
        return changed

    def about(self, resource_type: ResourceType, name: str) -> Iterator[AclsOfName]:
        """Those about the resource of this name: its own, those of all resources of the type, those of prefixes."""
        of_type = self._types.get(resource_type)
        if of_type is None:
            return
        if exact := of_type.literal.get(name):
            yield exact
        if name != WILDCARD and (every := of_type.literal.get(WILDCARD)):
            yield every
        for length, names in of_type.prefixed.items():
            if length <= len(name) and (fitting := names.get(name[:length])):
                yield fitting

    def of_principal(self, resource_type: ResourceType, principal: str) -> Iterator[IndexedAcl]:
        """Those about resources of the type that are for this principal, or for everybody."""
        of_type = self._types.get(resource_type)
        if of_type is None:
            return
        for names in (of_type.literal, *of_type.prefixed.values()):
            for by_principal in names.values():
                yield from by_principal.get(principal, ())
                yield from by_principal.get(EVERYBODY, ())


NO_ACLS = AclIndex()
