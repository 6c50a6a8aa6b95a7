"""The brokers of a handle: one, or a cluster, on a loop of their own, with what looks at them attached.

Their log is kept in memory, for failure reports. A broker that is killed and restarted is another one with the same
node id: what looks at brokers is attached to each again.
"""

from collections import deque
from collections.abc import Callable, Mapping
from io import TextIOBase
from pathlib import Path
from typing import NamedTuple, TextIO, cast

from ottla.broker.assembly import Parts
from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from ottla.broker.config.server_network import PLAINTEXT
from ottla.broker.local_cluster import LocalCluster
from ottla.broker.logging import LazyLog
from ottla.broker.server.listeners import DEFAULT_HOST, DEFAULT_PORT
from ottla.testing.clock.broker_times import BrokerTimes
from ottla.testing.embedded import FaultHost, kill_broker, restart_broker, shut_down_broker
from ottla.testing.options import ParsedOptions, checked_count
from ottla.testing.surroundings.around import AllSurroundings
from ottla.testing.wire_capture.connections import CaptureHost
from ottla.testing.worker import NotRunningError

LOOPBACK = "127.0.0.1"
LOG_LINES = 400


class LogLines(TextIOBase):
    """The last lines of a log."""

    def __init__(self, shown_on: TextIO | None = None) -> None:
        """`shown_on`: where they go as well."""
        self._shown_on = shown_on
        self._lines: deque[str] = deque(maxlen=LOG_LINES)
        self.count = 0
        """Of all lines so far."""

    def write(self, text: str, /) -> int:
        # The end of a line is written by itself.
        for line in filter(None, text.splitlines()):
            self._lines.append(line)
            self.count += 1
        if self._shown_on is not None:
            self._shown_on.write(text)
        return len(text)

    def flush(self) -> None:
        if self._shown_on is not None:
            self._shown_on.flush()

    def since(self, count: int) -> list[str]:
        """Those that followed the first `count`, as far as they are kept."""
        kept = list(self._lines)
        return kept[max(len(kept) - (self.count - count), 0) :]


class Hosting(NamedTuple):
    """Where brokers run and how they are configured."""

    config: ServerConfig
    log: LazyLog
    log_lines: LogLines
    """Those of `log`."""
    host: str | None = LOOPBACK
    """None, as is a port of None: the properties name the listeners."""
    port: int | None = 0
    advertise: tuple[str, int] | None = None
    listener_name: str = PLAINTEXT
    first_node_id: int = 0

    @classmethod
    def on_free_ports(cls, settings: Mapping[str, object]) -> "Hosting":
        """For a test in this process. Raises ConfigError."""
        lines = LogLines()
        log = LazyLog("console", "warning", cast("TextIO", lines))
        return cls(ParsedOptions({"settings": settings}).config, log, lines)


class HostedBrokers:
    """`await start()` first, on the loop that is to serve; `await stop()` at the end."""

    def __init__(
        self,
        hosting: Hosting,
        brokers: int,
        attach: Callable[[Parts], None],
        fault_host: FaultHost,
        around: AllSurroundings,
        times: BrokerTimes,
    ) -> None:
        """`attach` is called with the parts of every broker that has started. Raises ConfigError."""
        self.config = hosting.config
        self.config.is_testing = True
        self.count = checked_count(brokers, None)
        self.log_lines = hosting.log_lines
        self._hosting = hosting
        self._attach = attach
        self.fault_host = fault_host
        self._around = around
        self._data_dir = Path()
        self.capture_host = CaptureHost()
        fault_host.hit_observers.append(self.capture_host.note_hit)
        self._times = times
        self._one: Broker | None = None
        self._cluster: LocalCluster | None = None

    async def start(self, data_dir: Path) -> None:
        """Raises StartError."""
        hosting = self._hosting
        if self.count == 1:
            await self._start_one(data_dir, hosting.port)
            return
        cluster = LocalCluster(
            self.config,
            data_dir=data_dir,
            brokers=self.count,
            host=hosting.host or DEFAULT_HOST,
            port=DEFAULT_PORT if hosting.port is None else hosting.port,
            advertise=hosting.advertise,
            listener_name=hosting.listener_name,
            first_node_id=hosting.first_node_id,
            log=hosting.log,
            opened=lambda broker: self._attach(broker.parts),
            new_dispatcher=self.fault_host.new_dispatcher,
            new_connection=self.capture_host.new_connection,
            new_surroundings=self._around.of_broker,
            clock=self._times.machine,
            new_broker_time=self._times.new_broker_time,
        )
        await cluster.start()
        self._cluster = cluster

    async def _start_one(self, data_dir: Path, port: int | None) -> None:
        self._data_dir = data_dir
        hosting = self._hosting
        node_id = hosting.first_node_id
        one = Broker(
            self.config,
            data_dir=data_dir,
            host=hosting.host,
            port=port,
            advertise=hosting.advertise,
            listener_name=hosting.listener_name,
            node_id=node_id,
            network=self._around.network_of(node_id),
            files=self._around.files_of(node_id, data_dir),
            log=hosting.log,
            clock=self._times.machine,
            new_dispatcher=self.fault_host.new_dispatcher,
            new_connection=self.capture_host.new_connection,
            new_broker_time=self._times.new_broker_time,
        )
        await one.start()
        self._one = one
        self._attach(one.parts)

    async def stop(self) -> bool:
        """Whether all data was closed cleanly."""
        one, self._one = self._one, None
        cluster, self._cluster = self._cluster, None
        stopped_cleanly = one is None or await one.stop()
        stopped_cleanly = (cluster is None or await cluster.stop()) and stopped_cleanly
        capture = self.capture_host.end()
        if capture is not None:
            capture.wait()
        return stopped_cleanly

    @property
    def log(self) -> LazyLog:
        return self._hosting.log

    @property
    def admin_url(self) -> str:
        """Of the admin listener; empty where there is none."""
        return self._cluster.admin_url if self._cluster is not None else self._broker().admin_url

    @property
    def listener_urls(self) -> list[str]:
        return self._cluster.listener_urls if self._cluster is not None else self._broker().listener_urls

    @property
    def latest_wall_ms(self) -> int:
        """The latest that their wall clocks have shown since the begin of a test, without skew."""
        return self._times.timeline.latest_wall_ms

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
        return [self._hosting.first_node_id] if self._cluster is None else self._cluster.node_ids

    def parts(self) -> dict[int, Parts]:
        """Of the brokers that run, by node id."""
        if self._cluster is not None:
            return {node_id: broker.parts for node_id, broker in self._cluster.brokers.items()}
        return {} if self._one is None else {self._one.node_id: self._one.parts}

    def running(self) -> list[Parts]:
        """Of one broker at least. Raises NotRunningError."""
        running = list(self.parts().values())
        if not running:
            raise NotRunningError("no broker runs")
        return running

    def first(self) -> Parts:
        """Of a broker that runs, one that is informed if there is one. Raises NotRunningError."""
        return (*self.informed(), *self.running())[0]

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
        await one.stop()
        await self._start_one(self._data_dir, port)

    def _several(self) -> LocalCluster:
        if self._cluster is None:
            raise NotRunningError("a broker by itself is not killed or restarted: a test with brokers=3 can do that")
        return self._cluster

    def _broker(self) -> Broker:
        if self._one is None:
            raise NotRunningError("the broker is not open")
        return self._one
