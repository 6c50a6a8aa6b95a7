"""The rebalances of groups, put together from the facts that brokers report about them."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic_ns
from typing import TYPE_CHECKING

from ottla.coordinator.classic.causes import Cause
from ottla.testing.views import GroupRebalance

if TYPE_CHECKING:
    from ottla.coordinator.facts import Fact, RebalanceStarted

REBALANCES_KEPT = 200
FACTS_KEPT = 2000
"""Of one group."""
ALL_FACTS_KEPT = 50_000
"""Of all groups: the one that nothing was heard of for longest is forgotten."""


class GroupHistories:
    def __init__(self) -> None:
        self.generation_max = 0
        """Of all groups."""
        self.listeners: list[Callable[[Fact, int], None]] = []
        """Called with every fact of a group, and its time."""
        self._rebalances: dict[str, deque[GroupRebalance]] = {}
        # The one that was heard of last is the last one.
        self._facts: dict[str, deque[tuple[int, Fact]]] = {}
        self._fact_count = 0
        self._removed: dict[str, dict[str, Cause]] = {}

    def observe(self, fact: "Fact", now_ms: int) -> None:
        """For the observers of a group coordinator."""
        # Imported here, as below: a first record has no group.
        from ottla.coordinator import facts

        group_id = getattr(fact, "group_id", None)
        if group_id is None:
            return
        self._keep(group_id, now_ms, fact)
        for listener in tuple(self.listeners):
            listener(fact, now_ms)
        match fact:
            case facts.RebalanceStarted():
                self._begin(fact, now_ms)
            case facts.MemberRemoved():
                self._removed.setdefault(group_id, {})[fact.member_id] = fact.cause
            case facts.GenerationStarted():
                self._change(group_id, fact.generation, join_phase_ms=fact.join_phase_ms, members=fact.member_ids)
            case facts.GenerationCompleted():
                self._change(group_id, fact.generation, sync_phase_ms=fact.sync_phase_ms)
            case _:
                pass

    def of(self, group_id: str) -> list[GroupRebalance]:
        """The oldest first."""
        return list(self._rebalances.get(group_id, ()))

    def facts_of(self, group_id: str) -> "Sequence[tuple[int, Fact]]":
        """Each with its time by the broker's clock."""
        return tuple(self._facts.get(group_id, ()))

    def state_since(self, group_id: str) -> int | None:
        """When the group came into the state that it is in; None where that was not seen."""
        from ottla.coordinator.facts import StateChanged

        for now_ms, fact in reversed(self._facts.get(group_id, ())):
            if isinstance(fact, StateChanged):
                return now_ms
        return None

    def group_ids(self) -> list[str]:
        return list(self._rebalances)

    def clear(self) -> None:
        self._rebalances.clear()
        self._facts.clear()
        self._fact_count = 0
        self._removed.clear()

    def _keep(self, group_id: str, now_ms: int, fact: "Fact") -> None:
        facts = self._facts.pop(group_id, None) or deque(maxlen=FACTS_KEPT)
        self._facts[group_id] = facts
        self._fact_count += len(facts) < FACTS_KEPT
        facts.append((now_ms, fact))
        while self._fact_count > ALL_FACTS_KEPT:
            oldest = next(iter(self._facts))
            self._fact_count -= len(self._facts.pop(oldest))
            self._rebalances.pop(oldest, None)
            self._removed.pop(oldest, None)

    def _begin(self, fact: "RebalanceStarted", now_ms: int) -> None:
        rebalances = self._rebalances.setdefault(fact.group_id, deque(maxlen=REBALANCES_KEPT))
        rebalances.append(
            GroupRebalance(
                generation=fact.generation,
                cause=fact.cause,
                member_id=fact.member_id,
                client_reason=fact.client_reason,
                started_ms=now_ms,
                started_ns=monotonic_ns(),
                removed=self._removed.pop(fact.group_id, {}),
            )
        )

    def _change(
        self,
        group_id: str,
        generation: int,
        *,
        join_phase_ms: int | None = None,
        sync_phase_ms: int | None = None,
        members: tuple[str, ...] = (),
    ) -> None:
        self.generation_max = max(self.generation_max, generation)
        rebalances = self._rebalances.get(group_id)
        if not rebalances:
            return
        last = rebalances[-1]
        removed = {**(last.removed or {}), **self._removed.pop(group_id, {})}
        rebalances[-1] = replace(
            last,
            generation=generation,
            join_phase_ms=last.join_phase_ms if join_phase_ms is None else join_phase_ms,
            sync_phase_ms=last.sync_phase_ms if sync_phase_ms is None else sync_phase_ms,
            members=members or last.members,
            removed=removed,
        )
