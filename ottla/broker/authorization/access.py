"""Who asks, and whether the ACLs of this moment allow what is asked (§60).

An `Access` belongs to one request; decisions are shared by all requests of one principal from one host, until the ACLs
change. An ACL that changes is in force with the next request; requests that wait are not checked again.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from typing import Any, Protocol, TypeVar

from ottla.broker.authorization.decision_log import DecisionLog
from ottla.broker.authorization.refusals import refuse_targets
from ottla.broker.config.server import ServerConfig
from ottla.broker.runtime import Runtime, StartError
from ottla.cluster.image import MetadataImage
from ottla.replication.fetch_session import NEVER_SENT, FetchContext
from ottla.security.acl import (
    CLUSTER_NAME,
    NAME_LENGTH_MAX,
    OPERATIONS_OF,
    AclOperation,
    Permission,
    ResourceType,
    normal_host,
)
from ottla.security.acl_index import NO_ACLS
from ottla.security.authentication import Principal
from ottla.security.authorizer import Authorizer, Decision

T = TypeVar("T")

Amendment = Callable[[Any], Iterator[None] | None]
"""Changes a response; of one that may be long a little at a time, and yields in between."""

VIEWS_MAX = 1_000
"""Principals, each from a host, whose decisions are kept."""
DECISIONS_MAX = 1_000
"""Kept of each of them, of names that an ACL may have."""
DECISIONS_PER_STEP = 1_024
"""About what a response has. Each takes 1 to 2 µs."""
_FAILED = Decision(False, "error")
_SOME_NAME = "*"
_READ, _TOPIC = AclOperation.READ, ResourceType.TOPIC
_READ_TOPIC = _READ, _TOPIC


class View:
    """What has been decided for one principal from one host, by one set of ACLs."""

    __slots__ = ("_decisions_for_some", "allowed", "authorizer", "decisions", "logs_allowed", "who")

    def __init__(self, authorizer: Authorizer, principal: Principal, host: str, *, logs_allowed: bool) -> None:
        """`logs_allowed`: whether what is allowed gets a line in the log too."""
        self.who = principal, normal_host(host) or host
        self.authorizer = authorizer
        self.logs_allowed = logs_allowed
        self.decisions: dict[tuple[AclOperation, ResourceType, str], Decision] = {}
        self.allowed: defaultdict[tuple[AclOperation, ResourceType], set[str]] = defaultdict(set)
        """Names that are known to be allowed, of which nothing is to be logged."""
        self._decisions_for_some: dict[tuple[AclOperation, ResourceType], Decision] = {}

    def decide(self, operation: AclOperation, resource_type: ResourceType, name: str) -> Decision:
        """What is not among `decisions`, where it is kept."""
        decision = self.authorizer.decide(*self.who, operation, resource_type, name)
        if len(name) > NAME_LENGTH_MAX:
            # No ACL has such a name, and clients may choose thousands of them.
            return decision
        if len(self.decisions) >= DECISIONS_MAX:
            self.decisions.clear()
            self.allowed.clear()
        self.decisions[operation, resource_type, name] = decision
        if decision.is_allowed and not self.logs_allowed:
            self.allowed[operation, resource_type].add(name)
        return decision

    def decide_for_some(self, operation: AclOperation, resource_type: ResourceType) -> Decision:
        """Kept, for each looks at all ACLs of the type."""
        decision = self._decisions_for_some.get((operation, resource_type))
        if decision is None:
            decision = self.authorizer.decide_for_some(*self.who, operation, resource_type)
            self._decisions_for_some[operation, resource_type] = decision
        return decision


class Access:
    """Of one request: what its sender may do, and what is to be added to its response about what it may not.

    One that has been answered serves the next request of its connection too, while all it was made from is the same."""

    __slots__ = ("_config", "_log", "amendments", "api", "closes_with", "image", "principal", "view")

    def __init__(
        self, view: View, principal: Principal, image: MetadataImage, api: str, log: DecisionLog, config: ServerConfig
    ) -> None:
        self.view = view
        self.principal = principal
        self.image = image
        self.api = api
        self._log = log
        self._config = config
        self.closes_with: str | None = None
        """Why the connection closes once the request has been handled, where there is no response to say it."""
        self.amendments: list[Amendment] | None = None
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
        if name in view.allowed[operation, resource_type]:
            return True
        decision = view.decisions.get((operation, resource_type, name))
        if decision is None:
            try:
                decision = view.decide(operation, resource_type, name)
            except Exception:
                self._log.failed(view.who[0], operation, resource_type, name)
                decision = _FAILED
        if is_logged and (view.logs_allowed or not decision.is_allowed):
            self._log.decided(view.who, decision, operation, resource_type, name, self.api)
        return decision.is_allowed

    def allows_cluster(self, operation: AclOperation, *, is_logged: bool = True) -> bool:
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, is_logged=is_logged)

    def allows_topic(self, operation: AclOperation, name: str, *, is_logged: bool = True) -> bool:
        return self.allows(operation, ResourceType.TOPIC, name, is_logged=is_logged)

    def allows_some(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether there is a resource of the type with which the sender may do it."""
        try:
            decision = self.view.decide_for_some(operation, resource_type)
        except Exception:
            self._log.failed(self.view.who[0], operation, resource_type, _SOME_NAME)
            decision = _FAILED
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
        self, operation: AclOperation, resource_type: ResourceType, names: Collection[str], *, is_logged: bool = True
    ) -> set[str]:
        """Each name is asked about once."""
        if self.view.allowed[operation, resource_type].issuperset(names):
            return set()
        names = dict.fromkeys(names)
        if len(names) > DECISIONS_MAX:
            return self._denied_of_many(operation, resource_type, names, is_logged=is_logged)
        return {name for name in names if not self.allows(operation, resource_type, name, is_logged=is_logged)}

    def _denied_of_many(
        self, operation: AclOperation, resource_type: ResourceType, names: Collection[str], *, is_logged: bool
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
            elif self.view.logs_allowed and is_logged:
                self._log.decided(who, decision, operation, resource_type, name, self.api)
        if refused and is_logged:
            self._log.denied(who, refused, operation, resource_type, self.api)
        return {name for name, _ in refused}

    def take_denied(
        self, operation: AclOperation, resource_type: ResourceType, items: list[T], name: Callable[[T], str]
    ) -> list[T]:
        """Takes out of `items` those whose resource is denied, and gives them."""
        denied = self.denied_names(operation, resource_type, [*map(name, items)])
        if not denied:
            return []
        refused = [item for item in items if name(item) in denied]
        items[:] = [item for item in items if name(item) not in denied]
        return refused

    def drop_denied(
        self, operation: AclOperation, resource_type: ResourceType, items: list[T], name: Callable[[T], str]
    ) -> Iterator[None]:
        """Leaves in `items`, of a response that lists what there is, those whose resource is allowed."""
        kept: list[T] = []
        for number, item in enumerate(items, 1):
            if self.allows(operation, resource_type, name(item), is_logged=False):
                kept.append(item)
            if number % DECISIONS_PER_STEP == 0:
                yield
        items[:] = kept

    # The response.

    def amend(self, amendment: Amendment) -> None:
        """To be called with the response, when there is one, before it is built."""
        if self.amendments is None:
            self.amendments = []
        self.amendments.append(amendment)

    def amended(self, response: Any) -> Any:
        """Once per response."""
        if self.amendments is not None:
            for _ in self.amending(response):
                pass
        return response

    def amending(self, response: Any) -> Iterator[None]:
        """The same, for a response that may be long: others are served wherever it yields."""
        amendments, self.amendments = self.amendments or (), None
        for amendment in amendments:
            steps = amendment(response)
            if steps is not None:
                yield from steps

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
        # What is known to be allowed is looked at here, without a call.
        if self.view.allowed[_READ_TOPIC].issuperset(named):
            return
        names = self.denied_names(_READ, _TOPIC, named)
        if not names:
            return
        denied = [target for target in fetch.targets if target.topic in names]
        fetch.targets = [target for target in fetch.targets if target.topic not in names]
        for target in denied:
            target.last_sent_high_watermark = NEVER_SENT
        self.amend(lambda response: refuse_targets(response, denied))


_FIRST_RIGHTS = frozenset((AclOperation.ALL, AclOperation.ALTER, AclOperation.CLUSTER_ACTION))


def check_first_rights(config: ServerConfig, image: MetadataImage) -> None:
    """Raises StartError where no client could ever be given a right, and no broker may copy (§51.6)."""
    if config.super_users or config.allow_everyone_if_no_acl_found:
        return
    for acl in image.acls.values():
        is_of_cluster = acl.resource_type is ResourceType.CLUSTER and acl.permission is Permission.ALLOW
        if is_of_cluster and acl.operation in _FIRST_RIGHTS:
            return
    raise StartError(
        "with authorizer.class.name, and neither super.users nor an ACL that allows ALTER or CLUSTER_ACTION on the "
        "cluster, no client could do anything: name an administrator and the principal of the brokers in super.users"
    )


class ImageSource(Protocol):
    image: MetadataImage


class Authorization:
    """The authorizer of a broker: the ACLs of its image, its super users, its default."""

    def __init__(self, runtime: Runtime, metadata: ImageSource, super_users: frozenset[Principal]) -> None:
        self.runtime = runtime
        self.metadata = metadata
        self._config = runtime.config
        self._super_users = super_users
        self.decisions = DecisionLog(runtime)
        self._begin()
        runtime.log.levels.on_change.append(self._begin)

    def access(self, principal: Principal, host: str, api: str) -> Access:
        """Of a request that has just arrived."""
        image = self.metadata.image
        if (image.acl_index or NO_ACLS) is not self.authorizer.acls:
            self._begin()
        view = self._views.get((principal, host))
        if view is None:
            if len(self._views) >= VIEWS_MAX:
                self._views.clear()
            view = View(self.authorizer, principal, host, logs_allowed=self.decisions.has_allowed)
            self._views[principal, host] = view
        return Access(view, principal, image, api, self.decisions, self._config)

    def _begin(self) -> None:
        """With other ACLs, or when something else is to be logged: what is known of decisions is out of date."""
        is_open = self._config.allow_everyone_if_no_acl_found
        acls = self.metadata.image.acl_index or NO_ACLS
        self.authorizer = Authorizer(acls, self._super_users, allows_without_acl=is_open)
        self._views: dict[tuple[Principal, str], View] = {}
