"""Links and disks of all brokers of a testbed: what is handed to each of them when it starts, and what a test has done
to them, for the report of its failure."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ottla.broker.assembly import Parts
from ottla.broker.local_cluster import Surroundings
from ottla.cluster.store import MetadataStore
from ottla.testing.audit.findings import LogDamage
from ottla.testing.clock.timeline import BrokerTimeline
from ottla.testing.surroundings.disk_files import DiskFileSystem, DiskState
from ottla.testing.surroundings.link_network import LinkMap, LinkNetwork
from ottla.testing.surroundings.link_store import LinkStore
from ottla.testing.surroundings.ways import STORE, Ways

STEPS_KEPT: Final = 1000


class AllSurroundings:
    """Everything here runs on the loop of the brokers."""

    def __init__(self, before_change: Callable[[int], None], steps: "FaultSteps", *, keeps_unsynced: bool) -> None:
        """`before_change` is called with the descriptor of a file that is about to be changed. `keeps_unsynced`: what
        was never synced is known, and a power cut can take it."""
        self.ways = Ways()
        self._before_change = before_change
        self._steps = steps
        self._keeps_unsynced = keeps_unsynced
        self._links = LinkMap(self.ways)
        self.disks: dict[int, DiskState] = {}
        """By node id. What is wrong with one stays when its broker starts again."""

    def of_broker(self, node_id: int, directory: Path, session: MetadataStore) -> Surroundings:
        """For one of several brokers that starts."""
        store = LinkStore(session, self.ways, node_id)
        files = self.files_of(node_id, directory)
        return Surroundings(store, self.network_of(node_id), files, self.disks[node_id].boot_id)

    def network_of(self, node_id: int) -> LinkNetwork:
        return self._links.network_of(node_id)

    def files_of(self, node_id: int, directory: Path) -> DiskFileSystem:
        if node_id not in self.disks:
            self.disks[node_id] = self._new_disk(node_id, directory)
        disk = self.disks[node_id]
        if disk.journal is None:
            return DiskFileSystem(disk)
        from ottla.testing.surroundings.unsynced_files import JournaledFileSystem

        return JournaledFileSystem(disk)

    def _new_disk(self, node_id: int, directory: Path) -> DiskState:
        if not self._keeps_unsynced:
            return DiskState(directory, self._before_change)
        # Imported here, as above: few tests lose what was not synced.
        from ottla.testing.surroundings.unsynced import HELD_BYTES_MAX, UnsyncedJournal
        from ottla.testing.surroundings.unsynced_files import JOURNALED

        why = f"more than {HELD_BYTES_MAX >> 20} MiB was removed or cut off and not synced"
        full = f"disk {node_id}: {why}: lose_unsynced() is refused until the next reset"
        journal = UnsyncedJournal(directory, lambda: self._steps.note(full))
        return DiskState(directory, self._before_change, kinds=JOURNALED, journal=journal)

    def all_synced(self) -> None:
        """What is on the disks now survives power cuts to come."""
        for disk in self.disks.values():
            if disk.journal is not None:
                disk.journal.all_synced()

    def attach(self, parts: Parts) -> None:
        """To a broker that has started."""
        self._links.attach(parts)

    def hears_store(self, node_id: int) -> bool:
        return not self.ways.between(STORE, node_id).is_cut and not self.ways.is_held(STORE, node_id)

    def heal(self) -> None:
        """Everything but stopped processes: `BrokerControl` continues those."""
        self.ways.heal()
        for disk in self.disks.values():
            disk.heal()


@dataclass(frozen=True, slots=True)
class FaultStep:
    """One step, with both times, in milliseconds since the epoch."""

    what: str
    transport_ms: int
    broker_ms: int
    damage: LogDamage | None = None
    """To logs, where it has done any."""

    def __str__(self) -> str:
        return f"{_text(self.transport_ms)} (broker time {_text(self.broker_ms)})  {self.what}"


class FaultSteps:
    """Everything here runs on the loop of the brokers."""

    def __init__(self, timeline: BrokerTimeline) -> None:
        self._timeline = timeline
        self._steps: deque[FaultStep] = deque(maxlen=STEPS_KEPT)

    def note(self, what: str, damage: LogDamage | None = None) -> None:
        self._steps.append(FaultStep(what, self._timeline.machine.wall_ms(), self._timeline.wall_ms(), damage))

    def damages(self) -> list[LogDamage]:
        """What was done to logs, the oldest first."""
        return [step.damage for step in self._steps if step.damage is not None]

    def since_clear(self) -> list[FaultStep]:
        """The oldest first."""
        return list(self._steps)

    def clear(self) -> None:
        self._steps.clear()


def _text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
