"""What the server and handlers know of the authorizer, of which `ottla.broker.authorization` has the rest."""

from typing import Any, Protocol

from ottla.replication.fetch_session import FetchContext


class RequestAccess(Protocol):
    """What the sender of one request may do, and what is added to its response about what it may not."""

    def amended(self, response: Any) -> Any: ...

    def forget_amendments(self) -> None:
        """Another response than the handler's is sent."""
        ...

    def leave_denied_out(self, fetch: FetchContext) -> None:
        """Of one fetch of a consumer, what it may not read, which the response says."""
        ...
