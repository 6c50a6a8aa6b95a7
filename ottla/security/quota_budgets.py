"""What clients have used of the budgets that quotas give them: one rate, or one bucket, for each budget.

A budget is made when its quota counts for the first time, and forgotten when it was not used for an hour, or when there
are more than `BUDGETS_MAX` of a key: client ids are chosen by clients. A quota that changes holds from the next record
on; what was recorded before it stays.
"""

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from ottla.security.acl import normal_host
from ottla.security.quotas import ClientQuotas, Quota, QuotaEntity
from ottla.security.rates import Rate, TokenBucket, Window

BUDGETS_MAX = 10_000
"""Of a key, about 1 KB each."""
IDLE_MS_MAX = 3_600_000
FOUND_MAX = 10_000
# Looked at whenever another one is made.
_EXPIRED_AT_ONCE = 2
UNLIMITED = 2**31 - 1

M = TypeVar("M", bound=Rate | TokenBucket)


class QuotaBudget(Generic[M]):
    __slots__ = ("last_ms", "measure", "throttled_ms")

    def __init__(self, measure: M, now_ms: int) -> None:
        self.measure = measure
        self.last_ms = now_ms
        self.throttled_ms = 0
        """Of all throttles so far, the sum."""


class Budgets(Generic[M]):
    """Of one key of quotas, by who shares them; the one used last is the last."""

    def __init__(self, make: Callable[[Quota, int], M]) -> None:
        self._make = make
        self._budgets: OrderedDict[QuotaEntity, QuotaBudget[M]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._budgets)

    def get(self, quota: Quota, now_ms: int) -> QuotaBudget[M]:
        budget = self._budgets.get(quota.shared_by)
        if budget is None:
            self.expire(now_ms, _EXPIRED_AT_ONCE)
            if len(self._budgets) >= BUDGETS_MAX:
                self._budgets.popitem(last=False)
            budget = self._budgets[quota.shared_by] = QuotaBudget(self._make(quota, now_ms), now_ms)
        else:
            budget.last_ms = now_ms
            self._budgets.move_to_end(quota.shared_by)
        return budget

    def expire(self, now_ms: int, at_most: int) -> None:
        """Forgets those that were not used for an hour, and no more than `at_most`."""
        for _ in range(min(at_most, len(self._budgets))):
            if now_ms - next(iter(self._budgets.values())).last_ms < IDLE_MS_MAX:
                return
            self._budgets.popitem(last=False)

    def used_last(self, at_most: int) -> list[tuple[QuotaEntity, QuotaBudget[M]]]:
        """Those used last."""
        return list(islice(reversed(self._budgets.items()), at_most))


class _Finder:
    """The quotas of one key, with what was found of them for clients."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._quotas = ClientQuotas()
        self._found: dict[tuple[str, str], Quota | None] = {}

    @property
    def is_active(self) -> bool:
        """Whether anybody has a quota."""
        return self.key in self._quotas.limited_keys

    def take(self, quotas: ClientQuotas) -> None:
        """They count from now on, in place of those before."""
        self._quotas = quotas
        self._found.clear()

    def find(self, user: str, client_id: str) -> Quota | None:
        client = user, client_id
        if client in self._found:
            return self._found[client]
        if len(self._found) >= FOUND_MAX:
            self._found.clear()
        found = self._found[client] = self._quotas.find(self.key, user, client_id)
        return found


class ThrottleCount:
    """Throttles of one key, for metrics."""

    __slots__ = ("count", "sum_ms")

    def __init__(self) -> None:
        self.count = self.sum_ms = 0

    def add(self, throttle_ms: int) -> None:
        self.count += 1
        self.sum_ms += throttle_ms


class RateQuotas(_Finder):
    """Of bytes, or of the time that requests take: what a client does is recorded, then compared."""

    def __init__(self, key: str, window: Window, *, throttle_ms_max: int = UNLIMITED) -> None:
        super().__init__(key)
        self.window = window
        self.throttles = ThrottleCount()
        self.budgets = Budgets[Rate](lambda quota, now_ms: Rate(window))  # noqa: ARG005
        self._throttle_ms_max = throttle_ms_max

    def record(self, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """For how long the client must rest, ms."""
        quota = self.find(user, client_id)
        if quota is None:
            return 0
        budget = self.budgets.get(quota, now_ms)
        budget.measure.record(amount, now_ms)
        throttle_ms = min(budget.measure.throttle_ms(quota.limit, now_ms), self._throttle_ms_max)
        if throttle_ms:
            budget.throttled_ms += throttle_ms
            self.throttles.add(throttle_ms)
        return throttle_ms

    def record_unchecked(self, user: str, client_id: str, amount: float, now_ms: int) -> None:
        """A negative amount takes one back."""
        quota = self.find(user, client_id)
        if quota is not None:
            self.budgets.get(quota, now_ms).measure.record(amount, now_ms)

    def most_at_once(self, user: str, client_id: str) -> int:
        """What a client that has rested may get without a throttle (§64.15)."""
        quota = self.find(user, client_id)
        if quota is None:
            return UNLIMITED
        window = self.window
        return min(int(quota.limit * (window.samples - 1) * window.sample_ms / 1000), UNLIMITED)


class AddressQuotas:
    """Of new connections, by the address they come from."""

    def __init__(self, window: Window) -> None:
        self.throttles = ThrottleCount()
        self.budgets = Budgets[Rate](lambda quota, now_ms: Rate(window))  # noqa: ARG005
        self._throttle_ms_max = window.sample_ms
        self._quotas = ClientQuotas()

    def take(self, quotas: ClientQuotas) -> None:
        """They count from now on, in place of those before."""
        self._quotas = quotas

    def record(self, ip: str, now_ms: int) -> int:
        """A connection has come. For how long it is kept before it is closed, ms; 0: it is welcome. One that is not
        does not count."""
        address = normal_host(ip) or ip
        limit = self._quotas.find_for_address(address)
        if limit is None:
            return 0
        budget = self.budgets.get(Quota(limit, QuotaEntity(ip=address)), now_ms)
        budget.measure.record(1, now_ms)
        throttle_ms = min(budget.measure.throttle_ms(limit, now_ms), self._throttle_ms_max)
        if throttle_ms:
            budget.measure.record(-1, now_ms)
            budget.throttled_ms += throttle_ms
            self.throttles.add(throttle_ms)
        return throttle_ms


class MutationQuotas(_Finder):
    """Of changes of topics, counted in partitions."""

    def __init__(self, key: str, window: Window) -> None:
        super().__init__(key)
        self.throttles = ThrottleCount()
        self.budgets = Budgets[TokenBucket](lambda quota, now_ms: TokenBucket(window, quota.limit, now_ms))

    def of_request(self, user: str, client_id: str, *, is_strict: bool) -> "MutationQuota | None":
        """None: there is no limit."""
        quota = self.find(user, client_id)
        return None if quota is None else MutationQuota(self, quota, is_strict=is_strict)


class Throttle(NamedTuple):
    duration_ms: int
    since_ms: int


class MutationQuota:
    """What one request may change. A strict one refuses a topic while the budget is in debt; another one records it,
    and its client rests."""

    __slots__ = ("_is_strict", "_quota", "_quotas", "_throttle")

    def __init__(self, quotas: MutationQuotas, quota: Quota, *, is_strict: bool) -> None:
        self._quotas = quotas
        self._quota = quota
        self._is_strict = is_strict
        self._throttle = Throttle(0, 0)

    def record(self, partitions: int, now_ms: int) -> bool:
        """Of one topic. False: it must not be changed, and nothing is recorded."""
        quota = self._quota
        bucket = self._quotas.budgets.get(quota, now_ms).measure
        if self._is_strict:
            debt_ms = bucket.throttle_ms(quota.limit, now_ms)
            if debt_ms:
                self._throttle = Throttle(debt_ms, now_ms)
                return False
            bucket.take(partitions, quota.limit, now_ms)
            return True
        bucket.take(partitions, quota.limit, now_ms)
        debt_ms = bucket.throttle_ms(quota.limit, now_ms)
        if debt_ms:
            self._throttle = Throttle(debt_ms, now_ms)
        return True

    def throttle_ms(self, now_ms: int) -> int:
        """For how long the client must rest from now on: what the request took since is over."""
        duration_ms, since_ms = self._throttle
        left_ms = max(duration_ms - (now_ms - since_ms), 0)
        if left_ms:
            self._quotas.throttles.add(left_ms)
            self._quotas.budgets.get(self._quota, now_ms).throttled_ms += left_ms
        return left_ms
