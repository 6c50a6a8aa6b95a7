"""Seeded bugs of authorization, each of which shows or does something that the ACLs deny, or refuses what they allow.

Each is a function that is handed pytest's monkeypatch, as in `seeded_bugs.py`. `docs/seeded-bugs.md` lists them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from ottla.broker.authorization import access, cluster_guards, group_guards, topic_guards
from ottla.broker.authorization.access import Access, Authorization
from ottla.broker.handlers import metadata
from ottla.cluster.image import MetadataImage
from ottla.replication.fetch_session import FetchContext
from ottla.security import authorizer
from ottla.security.acl import AclBinding, PatternType, Permission
from ottla.security.acl_index import AclIndex, AclsOfName
from ottla.security.authorizer import Authorizer

Patch = Any


def authorizes_sessions_once(patch: Patch) -> None:
    """ST-14: what an incremental session fetches on is not looked at again."""
    leave_denied_out = Access.leave_denied_out

    def once(self: Access, fetch: FetchContext) -> None:
        if not fetch.is_incremental:
            leave_denied_out(self, fetch)

    patch.setattr(Access, "leave_denied_out", once)


def shares_answers_of_metadata(patch: Patch) -> None:
    """ST-15: a prepared answer is kept although a client may see less than another."""
    handle = metadata.handle

    def shared(*parts: Any) -> Any:
        *others, answers, creation, context, request = parts
        key, state = metadata._key(context, request), parts[0].image
        known = answers.get(state, ("shared", key))
        if known is not None:
            context.access.forget_amendments()
            return known
        response = handle(*others, answers, creation, context, request)
        if response is not None and request.topics is None:
            answers.put(state, ("shared", key), context.access.amended(response))
        return response

    # The names of its parameters say which parts of the broker it is given.
    patch.setattr(metadata, "handle", _with_signature_of_metadata(shared))


def _with_signature_of_metadata(shared: Callable[..., Any]) -> Callable[..., Any]:
    def handle(
        metadata: Any, runtime: Any, metadata_answers: Any, auto_topic_creation: Any, context: Any, request: Any
    ) -> Any:
        return shared(metadata, runtime, metadata_answers, auto_topic_creation, context, request)

    return handle


def deletes_no_acl(patch: Patch) -> None:
    """A broker's image keeps ACLs that were deleted."""
    with_acls = MetadataImage.with_acls

    def only_more(self: MetadataImage, changed: Any) -> MetadataImage:
        return with_acls(self, {key: acl for key, acl in changed.items() if acl is not None})

    patch.setattr(MetadataImage, "with_acls", only_more)


def keeps_deleted_acls_in_the_index(patch: Patch) -> None:
    """The image lists what there is, and decisions are made by what there was."""
    with_changes = AclIndex.with_changes

    def only_more(self: AclIndex, *, added: Iterable[AclBinding] = (), removed: Iterable[AclBinding] = ()) -> AclIndex:
        list(removed)
        return with_changes(self, added=added)

    patch.setattr(AclIndex, "with_changes", only_more)


def keeps_decisions(patch: Patch) -> None:
    """What was decided for a principal stays decided when ACLs change."""
    new_access = Authorization.access

    def kept(self: Authorization, *arguments: Any) -> Access:
        views = self._views
        found = new_access(self, *arguments)
        self._views = views | self._views if views is not self._views else views
        before = views.get((found.view.who[0], arguments[1]))
        if before is not None:
            found.view = before
        return found

    patch.setattr(Authorization, "access", kept)


def ignores_denials_of_prefixes(patch: Patch) -> None:
    about = AclIndex.about

    def without(self: AclIndex, resource_type: Any, name: str) -> Iterator[AclsOfName]:
        for of_name in about(self, resource_type, name):
            yield {
                whose: tuple(each for each in acls if not _denies_a_prefix(each.acl)) for whose, acls in of_name.items()
            }

    patch.setattr(AclIndex, "about", without)


def _denies_a_prefix(acl: AclBinding) -> bool:
    return acl.pattern_type is PatternType.PREFIXED and acl.permission is Permission.DENY


def shows_names_by_topic_id(patch: Patch) -> None:
    """Metadata by id is not authorized: an id is taken for a permission."""
    take = topic_guards._take_denied_topics

    def by_name_only(given: Access, asked: list[Any], *, by_id: bool) -> list[Any]:
        return [] if by_id else take(given, asked, by_id=by_id)

    patch.setattr(topic_guards, "_take_denied_topics", by_name_only)


def commits_what_it_refuses(patch: Patch) -> None:
    """Offsets of denied topics are refused in the answer, and committed all the same."""
    take_denied = Access.take_denied

    def take(self: Access, operation: Any, kind: Any, items: list[Any], name: Any) -> list[Any]:
        everything = list(items)
        denied = take_denied(self, operation, kind, items, name)
        if denied and self.api == "OffsetCommit":
            items[:] = everything
            self.amend(lambda response: _leave_out(response, {name(each) for each in denied}))
        return denied

    patch.setattr(Access, "take_denied", take)


def _leave_out(response: Any, names: set[str]) -> None:
    response.topics[:] = [topic for topic in response.topics if topic.name not in names]


def finds_super_users_by_prefix(patch: Patch) -> None:
    decide = Authorizer.decide

    def by_prefix(self: Authorizer, principal: Any, *arguments: Any) -> Any:
        if any(str(principal).startswith(str(one)) for one in self._super_users):
            return authorizer._SUPER_USER
        return decide(self, principal, *arguments)

    patch.setattr(Authorizer, "decide", by_prefix)


def forgets_acls_of_a_snapshot(patch: Patch) -> None:
    """A broker that reads everything again decides by no ACLs, until the next one is created."""
    with_acls = MetadataImage.with_acls

    def without_index(self: MetadataImage, changed: Any) -> MetadataImage:
        image = with_acls(self, changed)
        return replace(image, acl_index=None) if self.acl_index is None and len(changed) > 1 else image

    patch.setattr(MetadataImage, "with_acls", without_index)


def authorizes_deletions_by_describe(patch: Patch) -> None:
    """Who may see a topic may delete it."""
    refused = cluster_guards._refused_topic_deletion

    def seen_is_enough(given: Access, name: str | None, topic_id: bytes) -> Any:
        result = refused(given, name, topic_id)
        shown = (
            result is not None
            and result.name is not None
            and given.allows_topic(access.AclOperation.DESCRIBE, result.name, is_logged=False)
        )
        return None if shown else result

    patch.setattr(cluster_guards, "_refused_topic_deletion", seen_is_enough)


def lists_all_groups(patch: Patch) -> None:
    patch.setitem(group_guards.GUARDS, 16, lambda *_: None)


SEEDED_ACL_BUGS: dict[str, Callable[[Patch], None]] = {
    "authorizes sessions once": authorizes_sessions_once,
    "shares answers of metadata": shares_answers_of_metadata,
    "deletes no ACL": deletes_no_acl,
    "keeps deleted ACLs in the index": keeps_deleted_acls_in_the_index,
    "keeps decisions": keeps_decisions,
    "ignores denials of prefixes": ignores_denials_of_prefixes,
    "shows names by topic id": shows_names_by_topic_id,
    "commits what it refuses": commits_what_it_refuses,
    "finds super users by prefix": finds_super_users_by_prefix,
    "forgets ACLs of a snapshot": forgets_acls_of_a_snapshot,
    "authorizes deletions by describe": authorizes_deletions_by_describe,
    "lists all groups": lists_all_groups,
}
