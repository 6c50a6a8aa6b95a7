"""The brokers of a handle: one, or a cluster, on a loop of their own, with what looks at them attached.

Their log is kept in memory, for failure reports. A broker that is killed and restarted is another one with the same
node id: what looks at brokers is attached to each again.
"""

from collections import deque
from collections.abc import Callable, Mapping
from io import TextIOBase
from pathlib import Path
from typing import TextIO, cast

from ottla.broker.assembly import Parts
from ottla.broker.broker import Broker
from ottla.broker.local_cluster import LocalCluster
from ottla.broker.logging import LazyLog
from ottla.testing.embedded import FaultHost, kill_broker, restart_broker, shut_down_broker
from ottla.testing.options import ParsedOptions, checked_count
from ottla.testing.surroundings.around import AllSurroundings
from ottla.testing.worker import NotRunningError

LOOPBACK = "127.0.0.1"
LOG_LINES = 400
ALONE = 0
"""The node id of a broker by itself."""


class LogLines(TextIOBase):
    """The last lines of a log."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LOG_LINES)
        self.count = 0
        """Of all lines so far."""

    def write(self, text: str, /) -> int:
        for line in text.splitlines():
            self._lines.append(line)
            self.count += 1
        return len(text)

    def since(self, count: int) -> list[str]:
        """Those that followed the first `count`, as far as they are kept."""
        kept = list(self._lines)
        return kept[max(len(kept) - (self.count - count), 0) :]


class HostedBrokers:
    """`await start()` first, on the loop that is to serve; `await stop()` at the end."""

    def __init__(
        self,
        settings: Mapping[str, object],
        brokers: int,
        attach: Callable[[Parts], None],
        fault_host: FaultHost,
        around: AllSurroundings,
    ) -> None:
        """`attach` is called with the parts of every broker that has started. Raises ConfigError."""
        options = ParsedOptions({"settings": settings})
        self.config = options.config
        self.count = checked_count(brokers, None)
        self.log_lines = LogLines()
        self._log = LazyLog("console", "warning", cast("TextIO", self.log_lines))
        self._attach = attach
        self.fault_host = fault_host
        self._around = around
        self._data_dir = Path()
        self._one: Broker | None = None
        self._cluster: LocalCluster | None = None

    async def start(self, data_dir: Path) -> None:
        """Raises StartError."""
        if self.count == 1:
            await self._start_one(data_dir, port=0)
            return
        cluster = LocalCluster(
            self.config,
            data_dir=data_dir,
            brokers=self.count,
            host=LOOPBACK,
            port=0,
            log=self._log,
            opened=lambda broker: self._attach(broker.parts),
            new_dispatcher=self.fault_host.new_dispatcher,
            new_surroundings=self._around.of_broker,
        )
        await cluster.start()
        self._cluster = cluster

    async def _start_one(self, data_dir: Path, port: int) -> None:
        self._data_dir = data_dir
        one = Broker(
            self.config,
            data_dir=data_dir,
            host=LOOPBACK,
            port=port,
            log=self._log,
            new_dispatcher=self.fault_host.new_dispatcher,
            network=self._around.network_of(ALONE),
            files=self._around.files_of_one(ALONE, data_dir),
        )
        await one.start()
        self._one = one
        self._attach(one.parts)

    async def stop(self) -> None:
        one, self._one = self._one, None
        cluster, self._cluster = self._cluster, None
        if one is not None:
            await one.stop()
        if cluster is not None:
            await cluster.stop()

    @property
    def bootstrap(self) -> str:
        if self._cluster is not None:
            return self._cluster.bootstrap
        return self._broker().bootstrap

    @property
    def cluster_id(self) -> str:
        return self._cluster.cluster_id if self._cluster is not None else self._broker().cluster_id

    @property
    def node_ids(self) -> list[int]:
        """Of all brokers, also those that do not run at the moment."""
        return [ALONE] if self._cluster is None else self._cluster.node_ids

    def parts(self) -> dict[int, Parts]:
        """Of the brokers that run, by node id."""
        if self._cluster is not None:
            return {node_id: broker.parts for node_id, broker in self._cluster.brokers.items()}
        return {} if self._one is None else {self._one.node_id: self._one.parts}

    def informed(self) -> list[Parts]:
        """Of the brokers that hear what the metadata store says: those that run, but are neither cut off nor paused."""
        return [each for node_id, each in self.parts().items() if self._around.hears_store(node_id)]

    async def kill(self, node_id: int) -> None:
        """As `kill -9` does. Raises NotRunningError."""
        await kill_broker(self._several(), node_id)

    async def shut_down(self, node_id: int) -> None:
        """It hands over what it leads first. Raises NotRunningError."""
        await shut_down_broker(self._several(), node_id)

    async def restart(self, node_id: int) -> None:
        """On its port, with its data; one that runs is shut down before. Raises NotRunningError, StartError."""
        await restart_broker(self._several(), node_id)

    async def start_again(self, node_id: int) -> None:
        """As `restart`, of a broker by itself too. Raises StartError."""
        if self._cluster is not None:
            await self.restart(node_id)
            return
        one = self._broker()
        port = one.listeners.opened[0].port
        await self.stop()
        await self._start_one(self._data_dir, port)

    def _several(self) -> LocalCluster:
        if self._cluster is None:
            raise NotRunningError("a broker by itself is not killed or restarted: a test with brokers=3 can do that")
        return self._cluster

    def _broker(self) -> Broker:
        if self._one is None:
            raise NotRunningError("the broker is not open")
        return self._one
