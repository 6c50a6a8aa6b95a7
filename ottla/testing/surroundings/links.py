"""The links between brokers, the metadata store and clients, as a test sees them: `kafka.links`."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from ottla.testing.surroundings.around import FaultSteps
from ottla.testing.surroundings.ways import CLIENTS, STORE, LinkState, Place, Ways


class LinkError(Exception):
    """A link that there is not, or a fault that it cannot have: one sentence."""


class Caller(Protocol):
    """Runs steps on the loop of the brokers: `ottla.testing.testbed.Testbed`."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any: ...


class Links:
    """Every method takes a link by its two ends: `(1, to=2)` is the way from broker 1 to broker 2, `(1, 2)` both ways.
    An end is a node id, `"store"` or `"clients"`; of clients only the way to a broker can be had here, as the rules of
    `kafka.fault` are there for answers. All may be called from any thread, and raise LinkError."""

    def __init__(self, caller: Caller, ways: Ways, steps: FaultSteps, node_ids: Callable[[], Sequence[int]]) -> None:
        self._caller = caller
        self._ways = ways
        self._steps = steps
        self._node_ids = node_ids

    def cut(self, one: Place, other: Place | None = None, *, to: Place | None = None, reset: bool = False) -> None:
        """What is sent is swallowed, as by a firewall: the sender gets no answer, and no error. Connections that have
        lost something break when the link is healed. `reset`: they break at once, and new ones are refused."""

        def change(way: LinkState) -> None:
            way.is_cut, way.resets = True, reset

        self._change(one, other, to, "cut with resets" if reset else "cut", change)

    def delay(self, one: Place, other: Place | None = None, *, to: Place | None = None, ms: float) -> None:
        """What is sent arrives so much later, in order."""

        def change(way: LinkState) -> None:
            way.delay_ms = ms

        self._change(one, other, to, f"delay {ms:g} ms", change)

    def bandwidth(self, one: Place, other: Place | None = None, *, to: Place | None = None, bytes_per_s: float) -> None:
        """What is sent arrives no faster. Not of links to the store."""
        check_bandwidth(bytes_per_s)

        def change(way: LinkState) -> None:
            way.bytes_per_s = bytes_per_s

        if STORE in (one, other, to):
            raise LinkError("a link to the store has no bandwidth: calls go over it, not bytes")
        self._change(one, other, to, f"bandwidth {bytes_per_s:g} bytes/s", change)

    def lossless_pause(self, one: Place, other: Place | None = None, *, to: Place | None = None) -> None:
        """What is sent waits, and arrives when the link is healed."""

        def change(way: LinkState) -> None:
            way.is_paused = True

        self._change(one, other, to, "pause", change)

    def in_force(self) -> list[tuple[Place, Place, LinkState]]:
        """From where, to where, and what happens to all that is sent there."""
        found: list[tuple[Place, Place, LinkState]] = self._caller.call(lambda: list(self._ways.in_force()))
        return found

    def heal(self, *places: Place) -> None:
        """All links; those of one broker; or the link between two."""
        check_ends(places)

        def heal() -> None:
            for place in places:
                self._check(place)
            self._note(f"heal {' ↔ '.join(map(str, places)) or 'all links'}")
            self._ways.heal(*places)

        self._caller.call(heal)

    def isolate(self, node_id: int) -> None:
        """Cuts a broker off from all others and from the store, both ways; clients still reach it."""

        def isolate() -> None:
            self._check(node_id)
            others: list[Place] = [each for each in self._node_ids() if each != node_id]
            if not others:
                raise LinkError("there is one broker alone, which has no others to be cut off from")
            self._note(f"isolate {node_id}")
            for other in (*others, STORE):
                self._ways.altered(node_id, other).is_cut = True
                self._ways.altered(other, node_id).is_cut = True
            self._ways.changed()

        self._caller.call(isolate)

    def _change(
        self, one: Place, other: Place | None, to: Place | None, what: str, change: Callable[[LinkState], None]
    ) -> None:
        check_way(what, one, other, to)

        def alter() -> None:
            pairs = [(one, to)] if to is not None else [(one, other), (other, one)]
            ends = [(self._check(source), self._check(target)) for source, target in pairs]
            for source, target in ends:
                self._check_pair(source, target)
            self._note(f"{what} {one} {'→' if to is not None else '↔'} {to if to is not None else other}")
            for source, target in ends:
                change(self._ways.altered(source, target))
            self._ways.changed()

        self._caller.call(alter)

    def _check(self, place: Place | None) -> Place:
        known = self._node_ids()
        if place is not None and (place in known or place in (STORE, CLIENTS)):
            return place
        raise LinkError(f"there is no broker {place!r}, only {', '.join(map(str, known))}, 'store' and 'clients'")

    def _check_pair(self, source: Place, target: Place) -> None:
        if target == CLIENTS:
            raise LinkError("the way to clients is not held here: a fault rule drops and delays answers")
        if source == target or {source, target} == {STORE, CLIENTS}:
            raise LinkError(f"there is no link from {source} to {target}")
        if STORE in (source, target) and len(self._node_ids()) == 1:
            raise LinkError("a broker alone keeps its metadata itself: only several have a link to the store")

    def _note(self, what: str) -> None:
        self._steps.note(f"links: {what}")


MOST_ENDS: Final = 2


def check_way(what: str, one: Place, other: Place | None, to: Place | None) -> None:
    """Raises LinkError."""
    if (other is None) == (to is None):
        raise LinkError(f"{what}: expected ({one}, OTHER) for both ways, or ({one}, to=OTHER) for one")


def check_ends(places: Sequence[Place]) -> None:
    """Raises LinkError."""
    if len(places) > MOST_ENDS:
        raise LinkError(f"heal{tuple(places)}: a link has two ends")


def check_bandwidth(bytes_per_s: float) -> None:
    """Raises LinkError."""
    if bytes_per_s <= 0:
        raise LinkError(f"bytes_per_s={bytes_per_s!r}: expected more than 0; cut() lets nothing through")
