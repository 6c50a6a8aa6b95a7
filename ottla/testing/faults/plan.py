"""What the rules that hit a request say together: one terminal action, or errors for some of its units, and delays."""

from typing import NamedTuple

from ottla.testing.faults.actions import Action, Bandwidth, Delay, Drop, Error, Slice
from ottla.testing.faults.calls import FaultCall, FaultParts
from ottla.testing.faults.error_places import Injected, Place, named_depth, place_of
from ottla.testing.faults.request_units import Unit
from ottla.testing.faults.state import FaultState


class UnitError(NamedTuple):
    """Units of a request that fail with one error."""

    units: list[Unit]
    place: Place
    injected: Injected
    is_applied: bool
    partitions: FaultState | None
    """The rule that chooses among partitions that the response alone names; None: all of them."""


class FaultPlan:
    __slots__ = ("after_ms", "before_ms", "bytes_per_s", "errors", "slices", "states", "terminal", "top")

    def __init__(self) -> None:
        self.terminal: FaultState | None = None
        """The rule whose terminal action is done, other than an error of some units."""
        self.top: Injected | None = None
        """The error of the whole request, where `terminal` is one."""
        self.errors: list[UnitError] = []
        self.before_ms = self.after_ms = 0
        self.bytes_per_s = 0
        self.slices: list[Slice] = []
        self.states: list[FaultState] = []

    @property
    def changes_nothing(self) -> bool:
        """Whether the request is served as it would be without rules."""
        return self.terminal is None and not self.errors and not self.is_delayed and not self._is_slowed

    @property
    def action(self) -> Action | None:
        return None if self.terminal is None else self.terminal.do

    @property
    def is_delayed(self) -> bool:
        return bool(self.before_ms or self.after_ms)

    @property
    def _is_slowed(self) -> bool:
        return bool(self.bytes_per_s or self.slices)


def plan_of(states: list[FaultState], call: FaultCall, parts: FaultParts) -> FaultPlan | None:
    """None where no rule hits it."""
    plan, taken = FaultPlan(), set[int]()
    for state in states:
        if state.do.is_terminal:
            if plan.terminal is not None:
                continue
            place = _unit_place(state, call)
            if plan.errors and place is None:
                continue
            if isinstance(state.do, Drop) and state.do.what == "response" and call.has_no_response:
                continue
            if place is not None and place.depth and not (call.units or call.is_for_all):
                continue
            units = state.take(call, parts, taken if place is not None else set())
            if units is None:
                continue
            _add_terminal(plan, state, call, place, units)
            taken.update(map(id, units))
        elif state.take(call, parts, set()) is not None:
            _add_slowing(plan, state, call.context.size_bytes)
        else:
            continue
        plan.states.append(state)
    return plan if plan.states else None


def injected_by(state: FaultState) -> Injected:
    assert isinstance(state.do, Error), "only errors are injected"
    code = state.do.error_code
    return Injected(code, f"{code.name}, injected by the fault {state.rule.id!r}")


def _unit_place(state: FaultState, call: FaultCall) -> Place | None:
    """Where the error of some units goes; None for any other action."""
    if not isinstance(state.do, Error):
        return None
    api, version = call.route.api, call.version
    # An election of all leaders can only fail as a whole: it does not say which there are.
    is_whole = api.name == "ElectLeaders" and call.is_for_all
    key = (api.key, version, is_whole)
    if key not in state.places:
        at_top = state.do.at == "top" or is_whole
        place = place_of(api, version, state.do.error_code, state.rule.named_units(api), at_top=at_top)
        state.places[key] = place if place is not None and (place.depth or place.each is not None) else None
    return state.places[key]


def _add_terminal(plan: FaultPlan, state: FaultState, call: FaultCall, place: Place | None, units: list[Unit]) -> None:
    if place is None:
        plan.terminal = state
        if isinstance(state.do, Error):
            plan.top = injected_by(state)
        return
    assert isinstance(state.do, Error), "errors alone have places"
    named = state.rule.named_units(call.route.api)
    chooses = named_depth(call.route.api, call.version, named) > len(call.levels)
    partitions = state if place.inner is not None and chooses else None
    plan.errors.append(UnitError(units, place, injected_by(state), state.do.after, partitions))


def _add_slowing(plan: FaultPlan, state: FaultState, request_bytes: int) -> None:
    match state.do:
        case Delay(ms=ms, jitter=jitter, stage=stage):
            wait_ms = ms + (state.random.randrange(jitter + 1) if jitter else 0)
            if stage == "before":
                plan.before_ms += wait_ms
            else:
                plan.after_ms += wait_ms
        case Bandwidth(bytes_per_s=rate, direction="request"):
            plan.before_ms += request_bytes * 1000 // rate
        case Bandwidth(bytes_per_s=rate):
            plan.bytes_per_s = min(plan.bytes_per_s, rate) if plan.bytes_per_s else rate
        case Slice(size=size, delay=delay, direction="request"):
            plan.before_ms += (request_bytes - 1) // size * delay
        case Slice():
            plan.slices.append(state.do)
        case _:
            pass
