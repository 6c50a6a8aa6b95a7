"""One request of a client that has a quota: what it uses is recorded when its answer is made (§64).

The answer says for how long the client must rest, and leaves at once; its connection is muted for that time (KIP-219).
A fetch that would exceed a quota is answered without records instead, and what it would have sent is not recorded.
"""

from collections.abc import Coroutine, Generator
from copy import copy
from typing import Any

from ottla.broker.quotas.managers import ClientQuotaManagers
from ottla.broker.server.apis import PRODUCE
from ottla.broker.server.dispatch import PreparedFrame
from ottla.broker.server.request_context import RequestContext
from ottla.security.quota_budgets import MutationQuota

METADATA_THROTTLE_SINCE = 3
NS_PER_PERCENT = 10_000_000
"""100 % is one second of the loop in each second."""


class QuotaRecorder:
    """Called by the context of the request."""

    __slots__ = (
        "_began_ns",
        "_client_id",
        "_is_exempt",
        "_is_recorded",
        "_managers",
        "_mutation",
        "_spent_ns",
        "_user",
    )

    def __init__(
        self, managers: ClientQuotaManagers, user: str, client_id: str, began_ns: int, *, is_exempt: bool
    ) -> None:
        """`is_exempt`: its time does not count."""
        self._managers = managers
        self._user = user
        self._client_id = client_id
        # When the present step began that works on it; 0 while none does.
        self._began_ns = began_ns
        # In the steps before.
        self._spent_ns = 0
        self._is_exempt = is_exempt
        self._is_recorded = False
        self._mutation: MutationQuota | None = None

    # While it is handled.

    def cap(self, request: Any) -> None:
        """A fetch of a consumer asks for no more than a client that has rested may get (§64.15)."""
        most = self._managers.consumer.most_at_once(self._user, self._client_id)
        request.max_bytes = min(request.max_bytes, most)
        request.min_bytes = min(request.min_bytes, request.max_bytes)

    def mutation(self, *, is_strict: bool) -> MutationQuota | None:
        """What it may change of topics; None: without a limit."""
        quotas = self._managers.mutation
        self._mutation = quotas.of_request(self._user, self._client_id, is_strict=is_strict)
        return self._mutation

    def creation(self) -> MutationQuota | None:
        """What may be created of topics because it asks for them: one by one, and its client need not rest."""
        return self._managers.mutation.of_request(self._user, self._client_id, is_strict=True)

    def timed(self, coroutine: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
        """The same, whose steps count as time of the request; what it waits does not."""
        return _Timed(self, coroutine) if self._managers.request.is_active else coroutine

    def begin_step(self) -> None:
        self._began_ns = self._managers.now_ns()

    def end_step(self) -> None:
        """Nothing works on it until the next step. After the answer was made, the rest is recorded without a check."""
        self._spent_ns += self._managers.now_ns() - self._began_ns
        self._began_ns = 0
        if self._is_recorded:
            self.spent(self._spent_ns)
            self._spent_ns = 0

    def spent(self, duration_ns: int) -> None:
        """So much time more, which is not compared with the quota now."""
        if not self._is_exempt:
            self._managers.request.record_unchecked(
                self._user, self._client_id, duration_ns / NS_PER_PERCENT, self._managers.now_ms()
            )

    # When the answer is made.

    def answered(self, context: RequestContext, response: Any) -> Any:
        """The response with the time for which the client must rest. None: the request has no answer (acks=0)."""
        if self._is_recorded:
            return response
        now_ms = self._managers.now_ms()
        throttle_ms = 0 if response is None else self._record_time(now_ms)
        if context.route.api.key == PRODUCE:
            used = context.size_bytes
            throttle_ms = max(throttle_ms, self._managers.producer.record(self._user, self._client_id, used, now_ms))
        if self._mutation is not None:
            throttle_ms = max(throttle_ms, self._mutation.throttle_ms(now_ms))
        if response is not None and not context.route.defers_answer and not (context.is_parked and self._began_ns):
            self._managers.building = self
        if not throttle_ms:
            return response
        self._managers.mute(context.connection, throttle_ms)
        return throttled(response, throttle_ms, context)

    def fetched(self, context: RequestContext, size_bytes: int) -> int:
        """For how long the consumer must rest instead of getting so many bytes, ms; 0: it gets them."""
        now_ms = self._managers.now_ms()
        throttle_ms = self._record_time(now_ms)
        consumer = self._managers.consumer
        throttle_ms = max(throttle_ms, consumer.record(self._user, self._client_id, size_bytes, now_ms))
        if throttle_ms:
            consumer.record_unchecked(self._user, self._client_id, -size_bytes, now_ms)
            self._managers.mute(context.connection, throttle_ms)
        return throttle_ms

    def _record_time(self, now_ms: int) -> int:
        self._is_recorded = True
        quotas = self._managers.request
        if self._is_exempt or not quotas.is_active:
            return 0
        spent_ns, self._spent_ns = self._spent_ns, 0
        if self._began_ns:
            now_ns = self._managers.now_ns()
            spent_ns += now_ns - self._began_ns
            self._began_ns = now_ns
        return quotas.record(self._user, self._client_id, spent_ns / NS_PER_PERCENT, now_ms)


def throttled(response: Any, throttle_ms: int, context: RequestContext) -> Any:
    """A copy, for others may have the same one; where the version has no such field, encoding leaves it out."""
    if isinstance(response, PreparedFrame):
        if context.api_version < METADATA_THROTTLE_SINCE:
            return response
        return response.throttled(throttle_ms, after_tags=context.route.has_tagged_header)
    if response is not None and hasattr(response, "throttle_time_ms"):
        response = copy(response)
        response.throttle_time_ms = throttle_ms
    return response


class _Timed(Coroutine[Any, Any, None]):
    __slots__ = ("_coroutine", "_quotas")

    def __init__(self, quotas: QuotaRecorder, coroutine: Coroutine[Any, Any, None]) -> None:
        self._quotas = quotas
        self._coroutine = coroutine

    def send(self, value: Any) -> Any:
        self._quotas.begin_step()
        try:
            return self._coroutine.send(value)
        finally:
            self._quotas.end_step()

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, None, None]:
        return self._coroutine.__await__()
