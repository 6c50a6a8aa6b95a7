"""A toy controller of one partition: it commits states, elects leaders, and answers what a leader asks of the ISR."""

import itertools
from dataclasses import dataclass, replace
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.replication.isr import IsrChange

BROKERS = (1, 2, 3)
NO_LEADER = -1


@dataclass(frozen=True)
class State:
    """What is committed: the partition, and who is registered."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    elr: frozenset[int]
    broker_epochs: dict[int, int]
    live: frozenset[int]

    def epoch_of(self, broker_id: int) -> int:
        return self.broker_epochs.get(broker_id, -1)

    def may_join_isr(self, broker_id: int, broker_epoch: int) -> bool:
        return broker_id in self.live and broker_epoch in (-1, self.epoch_of(broker_id))


class Controller:
    """§19.3, §19.4.3, as far as one partition needs it. Every commit is kept, for brokers to learn in order."""

    def __init__(self, min_isr: int) -> None:
        self.min_isr = min_isr
        self.history = [State(1, 0, 0, BROKERS, frozenset(), dict.fromkeys(BROKERS, 0), frozenset(BROKERS))]
        self._epochs = itertools.count(1)

    @property
    def state(self) -> State:
        return self.history[-1]

    def _commit(self, **changes: Any) -> None:
        state = replace(self.state, **changes)
        if "isr" in changes or "leader" in changes:
            state = replace(state, partition_epoch=state.partition_epoch + 1)
        if state.leader != self.state.leader or changes.get("begins_term"):
            state = replace(state, leader_epoch=state.leader_epoch + 1)
        self.history.append(state)

    def _with_isr(self, isr: tuple[int, ...], elr: frozenset[int]) -> dict[str, Any]:
        """Who leaves while too few are in sync still has everything that was acknowledged."""
        if len(isr) >= self.min_isr:
            return {"isr": isr, "elr": frozenset()}
        return {"isr": isr, "elr": (elr | (set(self.state.isr) - set(isr))) - set(isr)}

    def alter_isr(self, sender: int, change: IsrChange) -> tuple[ErrorCode, State | None]:
        """§19.3.3"""
        state = self.state
        if change.leader_epoch < state.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH, None
        if sender != state.leader:
            return ErrorCode.INVALID_REQUEST, None
        if change.partition_epoch < state.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION, None
        if not all(state.may_join_isr(member.broker_id, member.broker_epoch) for member in change.isr):
            return ErrorCode.INELIGIBLE_REPLICA, None
        self._commit(**self._with_isr(tuple(member.broker_id for member in change.isr), state.elr))
        return ErrorCode.NONE, self.state

    def fence(self, broker: int) -> None:
        state = self.state
        changes: dict[str, Any] = {"live": state.live - {broker}}
        if broker in state.isr and len(state.isr) > 1:
            changes |= self._with_isr(tuple(r for r in state.isr if r != broker), state.elr)
        if state.leader == broker:
            changes["leader"] = NO_LEADER
        self._commit(**changes)
        self.maybe_elect()

    def register(self, broker: int, *, was_clean: bool) -> int:
        if broker in self.state.live:
            self.fence(broker)
        state = self.state
        epoch = next(self._epochs)
        changes: dict[str, Any] = {
            "broker_epochs": {**state.broker_epochs, broker: epoch},
            "live": state.live | {broker},
        }
        if not was_clean and broker in (*state.isr, *state.elr):
            changes |= {"isr": tuple(r for r in state.isr if r != broker), "elr": state.elr - {broker}}
        self._commit(**changes)
        self.maybe_elect()
        return epoch

    def maybe_elect(self) -> None:
        if self.state.leader == NO_LEADER:
            self.elect(self.candidates()[:1])

    def candidates(self) -> list[int]:
        state = self.state
        in_sync = [r for r in BROKERS if r in state.isr and r in state.live]
        return in_sync or [r for r in BROKERS if r in state.elr and r in state.live]

    def elect(self, candidates: list[int]) -> None:
        state = self.state
        for leader in candidates:
            changes = {} if leader in state.isr else self._with_isr((leader,), state.elr)
            self._commit(leader=leader, **changes)
