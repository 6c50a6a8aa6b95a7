"""Who asks, and whether the ACLs of this moment allow what is asked (§60).

An `Access` belongs to one request; decisions are shared by all requests of one principal from one host, until the ACLs
change. An ACL that changes is in force with the next request; requests that wait are not checked again.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ottla.broker.authorization.decision_log import DecisionLog
from ottla.broker.authorization.refusals import refuse_targets
from ottla.broker.config.server import ServerConfig
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

    __slots__ = ("authorizer", "decisions", "who")

    def __init__(self, authorizer: Authorizer, principal: Principal, host: str) -> None:
        self.who = principal, normal_host(host) or host
        self.authorizer = authorizer
        self.decisions: dict[tuple[AclOperation, ResourceType, str], Decision] = {}

    def decide(self, operation: AclOperation, resource_type: ResourceType, name: str) -> Decision:
        """What is not among `decisions`, where it is kept."""
        decision = self.authorizer.decide(*self.who, operation, resource_type, name)
        if len(self.decisions) >= DECISIONS_MAX:
            self.decisions.clear()
        self.decisions[operation, resource_type, name] = decision
        return decision

    def decide_for_some(self, operation: AclOperation, resource_type: ResourceType) -> Decision:
        return self.authorizer.decide_for_some(*self.who, operation, resource_type)


class Access:
    """Of one request: what its sender may do, and what is to be added to its response about what it may not."""

    __slots__ = ("_config", "_log", "amendments", "api", "closes_with", "image", "logs_allowed", "view")

    def __init__(
        self,
        view: View,
        image: MetadataImage,
        api: str,
        log: DecisionLog,
        config: ServerConfig,
        *,
        logs_allowed: bool,
    ) -> None:
        """`logs_allowed`: whether what is allowed gets a line in the log too."""
        self.view = view
        self.image = image
        self.api = api
        self.logs_allowed = logs_allowed
        self._log = log
        self._config = config
        self.closes_with: str | None = None
        """Why the connection closes once the request has been handled, where there is no response to say it."""
        self.amendments: list[Callable[[Any], None]] | None = None
        """What is to be done to the response; None: nothing."""

    @property
    def creates_topics(self) -> bool:
        """Whether the broker creates topics that clients ask for."""
        return self._config.auto_create_topics_enable

    # Decisions.

    def allows(
        self, operation: AclOperation, resource_type: ResourceType, name: str, *, is_logged: bool = True
    ) -> bool:
        """`is_logged`: a refusal refuses something that was asked for, and does not only leave something out."""
        view = self.view
        decision = view.decisions.get((operation, resource_type, name))
        if decision is None:
            try:
                decision = view.decide(operation, resource_type, name)
            except Exception:
                self._log.failed(view.who[0], operation, resource_type, name)
                decision = _FAILED
        if is_logged and (self.logs_allowed or not decision.is_allowed):
            self._log.decided(view.who, decision, operation, resource_type, name, self.api)
        return decision.is_allowed

    def allows_cluster(self, operation: AclOperation, *, is_logged: bool = True) -> bool:
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, is_logged=is_logged)

    def allows_topic(self, operation: AclOperation, name: str, *, is_logged: bool = True) -> bool:
        return self.allows(operation, ResourceType.TOPIC, name, is_logged=is_logged)

    def allows_some(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether there is a resource of the type with which the sender may do it."""
        decision = self.view.decide_for_some(operation, resource_type)
        self._log.decided(self.view.who, decision, operation, resource_type, _SOME_NAME, self.api)
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
        names, decisions = dict.fromkeys(names), self.view.decisions
        if not self.logs_allowed:
            # Mostly all are allowed, and it is known.
            for name in names:
                decision = decisions.get((operation, resource_type, name))
                if decision is None or not decision.is_allowed:
                    break
            else:
                return set()
        if len(names) > DECISIONS_MAX:
            return self._denied_of_many(operation, resource_type, names, is_logged=is_logged)
        return {name for name in names if not self.allows(operation, resource_type, name, is_logged=is_logged)}

    def _denied_of_many(
        self, operation: AclOperation, resource_type: ResourceType, names: Iterable[str], *, is_logged: bool
    ) -> set[str]:
        """The same for more names than there are decisions kept: in one loop, and none of them is."""
        decide, who = self.view.authorizer.decide, self.view.who
        refused: list[tuple[str, Decision]] = []
        for name in names:
            try:
                decision = decide(*who, operation, resource_type, name)
            except Exception:
                self._log.failed(who[0], operation, resource_type, name)
                decision = _FAILED
            if not decision.is_allowed:
                refused.append((name, decision))
            elif self.logs_allowed and is_logged:
                self._log.decided(who, decision, operation, resource_type, name, self.api)
        if refused and is_logged:
            self._log.denied(who, refused, operation, resource_type, self.api)
        return {name for name, _ in refused}

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
        if self.amendments is None:
            self.amendments = []
        self.amendments.append(amendment)

    def amended(self, response: Any) -> Any:
        """Once per response."""
        if self.amendments is not None:
            amendments, self.amendments = self.amendments, None
            for amendment in amendments:
                amendment(response)
        return response

    def forget_amendments(self) -> None:
        """Another response than the handler's is sent."""
        self.amendments = None

    def leave_denied_out(self, fetch: FetchContext) -> None:
        """Of one fetch of a consumer, in a session or not, what it may not read, which the response says. A session
        keeps it, and it is looked at again in the next fetch."""
        named: list[str] = []
        for target in fetch.targets:
            if not target.topic:
                target.topic = self.image.name_of(target.topic_id)
            if target.topic:
                named.append(target.topic)
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
        self.runtime = runtime
        self._config = runtime.config
        self._image = image
        self._super_users = super_users
        self._log = DecisionLog(runtime)
        self._levels = runtime.log.levels
        self._level_changes = self._levels.changes
        self._logs_allowed = self._log.has_allowed
        self._authorizer = self._new_authorizer()
        self._views: dict[tuple[Principal, str], View] = {}

    def access(self, principal: Principal, host: str, api: str, before: Access | None = None) -> Access:
        """Of a request that has just arrived. `before`: of a request that came by the same connection and is over; it
        is used again where nothing has changed."""
        image = self._image()
        if (image.acl_index or NO_ACLS) is not self._authorizer.acls:
            self._authorizer = self._new_authorizer()
            self._views = {}
        if self._levels.changes != self._level_changes:
            self._level_changes = self._levels.changes
            self._logs_allowed = self._log.has_allowed
        if before is not None and before.view.who[0] is principal and before.view.authorizer is self._authorizer:
            # Field by field: this is part of every request.
            before.image = image
            before.api = api
            before.logs_allowed = self._logs_allowed
            before.amendments = before.closes_with = None
            return before
        view = self._views.get((principal, host))
        if view is None:
            if len(self._views) >= VIEWS_MAX:
                self._views.clear()
            view = self._views[principal, host] = View(self._authorizer, principal, host)
        return Access(view, image, api, self._log, self._config, logs_allowed=self._logs_allowed)

    def _new_authorizer(self) -> Authorizer:
        is_open = self._config.allow_everyone_if_no_acl_found
        return Authorizer(self._image().acl_index or NO_ACLS, self._super_users, allows_without_acl=is_open)
