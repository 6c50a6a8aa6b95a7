"""Routes whose requests fault rules look at first, and those of which something notes requests and answers, as clients
send and get them. Without rules for an API and without notes its routes are the plain ones.

    connection ── NotingRoute ── FaultyRoute ── Route

Connections keep a reference to the dictionary of routes, so a change of rules changes that dictionary in place.
"""

import asyncio
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ottla.broker.server.dispatch import Dispatcher, Guarded, PartOf, Route

if TYPE_CHECKING:
    from ottla.testing.faults.calls import FaultParts
    from ottla.testing.faults.state import FaultState


NotedBy = Callable[[Route], Route]
"""What stands in place of a route and notes what comes and goes by it, whatever fault rules do."""


class FaultyDispatcher(Dispatcher):
    """Without rules it is like any other, and nothing of the rules is imported."""

    def __init__(self, part: PartOf, guarded: Guarded | None = None, noted_by: NotedBy | None = None) -> None:
        """On the loop of its broker."""
        super().__init__(part, guarded)
        self._noted_by = noted_by
        self.loop = asyncio.get_running_loop()
        self._parts: FaultParts | None = None
        self._states: list[FaultState] = []

    @property
    def node_id(self) -> int:
        node_id: int = self._part("runtime").node_id
        return node_id

    @property
    def parts(self) -> "FaultParts":
        if self._parts is None:
            from ottla.testing.faults.calls import FaultParts

            self._parts = FaultParts(self._part)
        return self._parts

    def apply(self, states: "Iterable[FaultState]") -> None:
        """These rules, in this order, are in force from now on."""
        self._states = list(states)
        for state in self._states:
            state.begin(self.parts)
        for api_and_version, route in self.made.items():
            self.routes[api_and_version] = self.in_place_of(route)

    def in_place_of(self, route: Route) -> Route:
        states = [state for state in self._states if state.rule.may_hit(route.api, route.version)]
        served = FaultyRoute(route, self.parts, states) if states else route
        return served if self._noted_by is None else self._noted_by(served)


def of_plain(name: str) -> Any:
    """A field of the route that is stood in for. Reading it calls no Python code: some are read with every request."""
    return property(attrgetter(f"_plain.{name}"))


class StandInRoute(Route):
    """In place of a route. But for what a subclass sets it is that route, as that is at the moment: quotas change
    routes too."""

    __slots__ = ("_plain",)

    decode: Any = of_plain("decode")
    direct: Any = of_plain("direct")

    def __init__(self, plain: Route) -> None:
        self._plain = plain
        # Plain requests look these up often, and they stay as they are.
        self.api = plain.api
        self.version = plain.version
        self.defers_answer = plain.defers_answer
        self.has_tagged_header = plain.has_tagged_header

    def __getattr__(self, name: str) -> Any:
        # Slots of the base that are not filled here.
        return getattr(self._plain, name)

    @property
    def request_bytes(self) -> int:
        return self._plain.request_bytes

    @request_bytes.setter
    def request_bytes(self, size: int) -> None:
        self._plain.request_bytes = size

    @property
    def response_bytes(self) -> int:
        return self._plain.response_bytes

    @response_bytes.setter
    def response_bytes(self, size: int) -> None:
        self._plain.response_bytes = size


class FaultyRoute(StandInRoute):
    """While rules may hit its requests."""

    __slots__ = ("_parts", "_states")

    def __init__(self, plain: Route, parts: "FaultParts", states: "list[FaultState]") -> None:
        super().__init__(plain)
        self._parts = parts
        self._states = states
        self.handle = self._serve

    def _serve(self, context: Any, request: Any) -> Any:
        from ottla.testing.faults.requests import serve

        return serve(self._plain, self._parts, self._states, context, request)
