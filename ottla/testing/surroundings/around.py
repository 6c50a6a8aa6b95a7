"""Links and disks of all brokers of a testbed: what is handed to each of them when it starts."""

from pathlib import Path

from ottla.broker.assembly import Parts
from ottla.broker.local_cluster import Surroundings
from ottla.cluster.store import MetadataStore
from ottla.testing.surroundings.disk_files import DiskFileSystem, DiskState
from ottla.testing.surroundings.link_network import LinkMap, LinkNetwork
from ottla.testing.surroundings.link_store import LinkStore
from ottla.testing.surroundings.ways import STORE, Ways


class AllSurroundings:
    """Everything here runs on the loop of the brokers."""

    def __init__(self) -> None:
        self.ways = Ways()
        self._links = LinkMap(self.ways)
        self.disks: dict[int, DiskState] = {}
        """By node id. What is wrong with one stays when its broker starts again."""

    def of_broker(self, node_id: int, directory: Path, session: MetadataStore) -> Surroundings:
        """For one of several brokers that starts."""
        store = LinkStore(session, self.ways, node_id)
        return Surroundings(store, self.network_of(node_id), self.files_of(node_id, directory))

    def network_of(self, node_id: int) -> LinkNetwork:
        return self._links.network_of(node_id)

    def files_of(self, node_id: int, directory: Path) -> DiskFileSystem:
        disk = self.disks.setdefault(node_id, DiskState(directory))
        return DiskFileSystem(disk)

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
