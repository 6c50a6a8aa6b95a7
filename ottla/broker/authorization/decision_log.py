"""The authorizer's lines in the log: refusals at level info, so many in a second for each principal; what is allowed
at level debug (§68.6). What is refused is counted, whether it gets a line or not."""

from collections import Counter
from collections.abc import Sequence

from ottla.broker.runtime import Runtime
from ottla.security.acl import AclOperation, ResourceType
from ottla.security.authentication import Principal
from ottla.security.authorizer import Decision

REFUSALS_PER_SECOND = 100
PRINCIPALS_MAX = 1_000


class _Second:
    """What one principal was refused in one second."""

    __slots__ = ("count", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.count = 0


class DecisionLog:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._log = runtime.log.security
        # Of one log for all, who is refused often would hide the refusals of others.
        self._refused = self._log.without_limit()
        self._seconds: dict[Principal, _Second] = {}
        self.refusals: Counter[tuple[AclOperation, ResourceType]] = Counter()
        """What was asked for and is denied, by the operation and the kind of resource."""

    @property
    def has_allowed(self) -> bool:
        """Whether what is allowed gets a line as well."""
        return self._log.writes("debug")

    def decided(
        self,
        who: tuple[Principal, str],
        decision: Decision,
        operation: AclOperation,
        kind: ResourceType,
        name: str,
        api: str,
    ) -> None:
        """`who`: the principal and the host that it is at."""
        principal, host = who
        log = self._log
        if decision.is_allowed:
            write = log.debug
        else:
            self.refusals[operation, kind] += 1
            if not log.writes("info") or not self._has_room(principal):
                return
            write = self._refused.info
        write(
            "authorization",
            result="allowed" if decision.is_allowed else "denied",
            principal=str(principal),
            host=host,
            operation=operation.name,
            resource=f"{kind.name}:LITERAL:{name}",
            api=api,
            rule=_rule(decision),
        )

    def denied(
        self,
        who: tuple[Principal, str],
        decisions: Sequence[tuple[str, Decision]],
        operation: AclOperation,
        kind: ResourceType,
        api: str,
    ) -> None:
        """The same for many names that one request was refused, each with its decision: what gets no line is counted at
        once."""
        for name, decision in decisions[:REFUSALS_PER_SECOND]:
            self.decided(who, decision, operation, kind, name, api)
        left_out = max(len(decisions) - REFUSALS_PER_SECOND, 0)
        self.refusals[operation, kind] += left_out
        if self._log.writes("info"):
            # A second may have begun in between: those that are left out count for the one that goes on.
            self._second_of(who[0]).count += left_out

    def failed(self, principal: Principal, operation: AclOperation, kind: ResourceType, name: str) -> None:
        """A decision that has failed is a refusal."""
        self._log.exception(
            "an authorization failed unexpectedly",
            principal=str(principal),
            operation=operation.name,
            resource=f"{kind.name}:LITERAL:{name}",
        )

    def _has_room(self, principal: Principal) -> bool:
        """Whether this refusal gets a line; those that get none are counted in a line of the next second."""
        second = self._second_of(principal)
        second.count += 1
        return second.count <= REFUSALS_PER_SECOND

    def _second_of(self, principal: Principal) -> _Second:
        number = self._runtime.clock.now_ms() // 1000
        second = self._seconds.get(principal)
        if second is None or second.number != number:
            if second is not None and second.count > REFUSALS_PER_SECOND:
                left_out = second.count - REFUSALS_PER_SECOND
                self._refused.info("authorizations not logged", principal=str(principal), denied=left_out)
            if len(self._seconds) >= PRINCIPALS_MAX:
                self._seconds.clear()
            second = self._seconds[principal] = _Second(number)
        return second


def _rule(decision: Decision) -> str:
    if decision.acl is None:
        return decision.why
    acl = decision.acl
    who = f"{acl.permission.name} {acl.operation.name} to {acl.principal} from {acl.host}"
    return f"{who} on {acl.resource_type.name}:{acl.pattern_type.name}:{acl.name}"
