"""Who asks, and whether the ACLs of this moment allow what is asked (§60).

An `Access` belongs to one request; decisions are shared by all requests of one principal from one host, until the ACLs
change. An ACL that changes is in force with the next request; requests that wait are not checked again.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ottla.broker.authorization.decision_log import DecisionLog
from ottla.broker.authorization.refusals import refuse_targets
from ottla.broker.runtime import Runtime
from ottla.cluster.image import MetadataImage
from ottla.replication.fetch_session import NEVER_SENT, FetchContext
from ottla.security.acl import CLUSTER_NAME, OPERATIONS_OF, AclOperation, ResourceType, normal_host
from ottla.security.acl_index import NO_ACLS
from ottla.security.authentication import Principal
from ottla.security.authorizer import Authorizer, Decision

T = TypeVar("T")

VIEWS_MAX = 1_000
"""Principals, each from a host, whose decisions are kept."""
DECISIONS_MAX = 1_000
"""Kept of each of them."""
_FAILED = Decision(False, "error")
_SOME_NAME = "*"


class View:
    """What has been decided for one principal from one host, by one set of ACLs."""

    __slots__ = ("_authorizer", "decisions", "who")

    def __init__(self, authorizer: Authorizer, principal: Principal, host: str) -> None:
        self.who = principal, normal_host(host) or host
        self._authorizer = authorizer
        self.decisions: dict[tuple[AclOperation, ResourceType, str], Decision] = {}

    def decide(self, operation: AclOperation, resource_type: ResourceType, name: str) -> Decision:
        """What is not among `decisions`, where it is kept."""
        decision = self._authorizer.decide(*self.who, operation, resource_type, name)
        if len(self.decisions) >= DECISIONS_MAX:
            self.decisions.clear()
        self.decisions[operation, resource_type, name] = decision
        return decision

    def decide_for_some(self, operation: AclOperation, resource_type: ResourceType) -> Decision:
        return self._authorizer.decide_for_some(*self.who, operation, resource_type)


class Access:
    """Of one request: what its sender may do, and what is to be added to its response about what it may not."""

    __slots__ = ("_amendments", "_api", "_log", "_logs_allowed", "_view", "closes_with", "creates_topics", "image")

    def __init__(self, view: View, image: MetadataImage, api: str, log: DecisionLog, *, creates_topics: bool) -> None:
        """`creates_topics`: whether the broker creates topics that clients ask for."""
        self.image = image
        self.creates_topics = creates_topics
        self.closes_with: str | None = None
        """Why the connection closes once the request has been handled, where there is no response to say it."""
        self._view = view
        self._api = api
        self._log = log
        self._logs_allowed = log.has_allowed
        self._amendments: list[Callable[[Any], None]] | None = None

    # Decisions.

    def allows(
        self, operation: AclOperation, resource_type: ResourceType, name: str, *, is_logged: bool = True
    ) -> bool:
        """`is_logged`: a refusal refuses something that was asked for, and does not only leave something out."""
        view = self._view
        decision = view.decisions.get((operation, resource_type, name))
        if decision is None:
            try:
                decision = view.decide(operation, resource_type, name)
            except Exception:
                self._log.failed(view.who[0], operation, resource_type, name)
                decision = _FAILED
        if is_logged and (self._logs_allowed or not decision.is_allowed):
            self._log.decided(view.who, decision, operation, resource_type, name, self._api)
        return decision.is_allowed

    def allows_cluster(self, operation: AclOperation, *, is_logged: bool = True) -> bool:
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, is_logged=is_logged)

    def allows_topic(self, operation: AclOperation, name: str, *, is_logged: bool = True) -> bool:
        return self.allows(operation, ResourceType.TOPIC, name, is_logged=is_logged)

    def allows_some(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether there is a resource of the type with which the sender may do it."""
        decision = self._view.decide_for_some(operation, resource_type)
        self._log.decided(self._view.who, decision, operation, resource_type, _SOME_NAME, self._api)
        return decision.is_allowed

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """The bits of an `authorized_operations` field: bit n stands for operation n."""
        return sum(
            1 << operation
            for operation in OPERATIONS_OF[resource_type]
            if self.allows(operation, resource_type, name, is_logged=False)
        )

    def denied_names(
        self, operation: AclOperation, resource_type: ResourceType, names: Iterable[str], *, is_logged: bool = True
    ) -> set[str]:
        """Each name is asked about once."""
        return {
            name
            for name in dict.fromkeys(names)
            if not self.allows(operation, resource_type, name, is_logged=is_logged)
        }

    def take_denied(
        self, operation: AclOperation, resource_type: ResourceType, items: list[T], name: Callable[[T], str]
    ) -> list[T]:
        """Takes out of `items` those whose resource is denied, and gives them."""
        denied = self.denied_names(operation, resource_type, map(name, items))
        if not denied:
            return []
        refused = [item for item in items if name(item) in denied]
        items[:] = [item for item in items if name(item) not in denied]
        return refused

    # The response.

    def amend(self, amendment: Callable[[Any], None]) -> None:
        """To be called with the response, when there is one, before it is built."""
        if self._amendments is None:
            self._amendments = []
        self._amendments.append(amendment)

    def amended(self, response: Any) -> Any:
        """Once per response."""
        if self._amendments is not None:
            amendments, self._amendments = self._amendments, None
            for amendment in amendments:
                amendment(response)
        return response

    def forget_amendments(self) -> None:
        """Another response than the handler's is sent."""
        self._amendments = None

    def leave_denied_out(self, fetch: FetchContext) -> None:
        """Of one fetch of a consumer, in a session or not, what it may not read, which the response says. A session
        keeps it, and it is looked at again in the next fetch."""
        for target in fetch.targets:
            target.topic = target.topic or self.image.name_of(target.topic_id)
        named = (target.topic for target in fetch.targets if target.topic)
        names = self.denied_names(AclOperation.READ, ResourceType.TOPIC, named)
        if not names:
            return
        denied = [target for target in fetch.targets if target.topic in names]
        fetch.targets = [target for target in fetch.targets if target.topic not in names]
        for target in denied:
            target.last_sent_high_watermark = NEVER_SENT
        self.amend(lambda response: refuse_targets(response, denied))


class Authorization:
    """The authorizer of a broker: the ACLs of its image, its super users, its default."""

    def __init__(self, runtime: Runtime, image: Callable[[], MetadataImage], super_users: frozenset[Principal]) -> None:
        self._config = runtime.config
        self._image = image
        self._super_users = super_users
        self._log = DecisionLog(runtime)
        self._authorizer = self._new_authorizer()
        self._views: dict[tuple[Principal, str], View] = {}

    def access(self, principal: Principal, host: str, api: str) -> Access:
        """Of a request that has just arrived."""
        image = self._image()
        if (image.acl_index or NO_ACLS) is not self._authorizer.acls:
            self._authorizer = self._new_authorizer()
            self._views = {}
        view = self._views.get((principal, host))
        if view is None:
            if len(self._views) >= VIEWS_MAX:
                self._views.clear()
            view = self._views[principal, host] = View(self._authorizer, principal, host)
        return Access(view, image, api, self._log, creates_topics=self._config.auto_create_topics_enable)

    def _new_authorizer(self) -> Authorizer:
        is_open = self._config.allow_everyone_if_no_acl_found
        return Authorizer(self._image().acl_index or NO_ACLS, self._super_users, allows_without_acl=is_open)
