"""A broker inside another program: on the caller's loop, or on a loop and thread of its own.

    async with Broker() as broker:                    with BrokerThread() as broker:
        producer = AIOKafkaProducer(                      producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap)               bootstrap_servers=broker.bootstrap)

Without arguments: a free port of 127.0.0.1, and a temporary directory that is removed at the end.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, TypedDict, Unpack

from ottla.broker import broker as core
from ottla.broker.config.server import ServerConfig
from ottla.broker.errors import StartError
from ottla.broker.logging import LazyLog

if TYPE_CHECKING:
    from ottla.coordinator.facts import Fact

__all__ = ["Broker", "BrokerThread", "StartError"]


class BrokerOptions(TypedDict, total=False):
    """What `Broker` and `BrokerThread` can be told."""

    listen: str
    """HOST:PORT; by default a free port of 127.0.0.1, unless `settings` name the listeners."""
    data_dir: str | Path
    settings: Mapping[str, object]
    """Kafka's server properties: `{"group.initial.rebalance.delay.ms": 0, "num.partitions": 3}`."""
    advertise: str
    """HOST:PORT that clients are told, where it is not the one listened on."""
    node_id: int
    log_level: str
    log_format: str
    observers: "Iterable[Callable[[Fact], None]]"
    """Called on the broker's loop with every fact about its groups (`ottla.coordinator.facts`); must not block."""


class Broker:
    """An asynchronous context manager; `bootstrap` is HOST:PORT while it is open.

    Raises ConfigError for settings that do not exist, and StartError, on entering, where a broker cannot start.
    """

    def __init__(self, **options: Unpack[BrokerOptions]) -> None:
        settings = options.get("settings", {})
        self._config = ServerConfig({name: _text(value) for name, value in settings.items()})
        self._listen = _listen(options, self._config)
        self._advertise = split_address(options["advertise"]) if "advertise" in options else None
        self._data_dir = Path(options["data_dir"]) if "data_dir" in options else None
        self._node_id = options.get("node_id", 0)
        self._log = LazyLog(options.get("log_format", "console"), options.get("log_level", "warning"))
        self._observers = tuple(options.get("observers", ()))
        self._temporary: TemporaryDirectory[str] | None = None
        self._core: core.Broker | None = None

    @property
    def bootstrap(self) -> str:
        """What to give clients as `bootstrap.servers`."""
        assert self._core is not None, "the broker is not open"
        return self._core.bootstrap

    @property
    def cluster_id(self) -> str:
        assert self._core is not None, "the broker is not open"
        return self._core.cluster_id

    async def start(self) -> None:
        """As entering the context. Raises StartError."""
        assert self._core is None, "the broker is open already"
        data_dir = self._data_dir
        if data_dir is None:
            self._temporary = TemporaryDirectory(prefix="ottla-")
            data_dir = Path(self._temporary.name)
        host, port = self._listen or (None, None)
        broker = core.Broker(
            self._config,
            data_dir=data_dir,
            host=host,
            port=port,
            advertise=self._advertise,
            node_id=self._node_id,
            log=self._log,
        )
        try:
            await broker.start()
        except StartError:
            self._remove_temporary()
            raise
        broker.groups.observers += self._observers
        self._core = broker

    async def stop(self) -> None:
        """As leaving the context: requests under way are answered, the data is closed."""
        broker, self._core = self._core, None
        if broker is not None:
            await broker.stop()
        self._remove_temporary()

    async def __aenter__(self) -> "Broker":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None


class BrokerThread:
    """The same for programs without a loop: the broker runs on uvloop in a thread of its own."""

    def __init__(self, **options: Unpack[BrokerOptions]) -> None:
        self._broker = Broker(**options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def bootstrap(self) -> str:
        """What to give clients as `bootstrap.servers`."""
        return self._broker.bootstrap

    @property
    def cluster_id(self) -> str:
        return self._broker.cluster_id

    def start(self) -> None:
        """As entering the context. Raises StartError."""
        import uvloop

        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ottla", daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._broker.start(), self._loop).result()
        except BaseException:
            self._end_loop()
            raise

    def stop(self) -> None:
        """As leaving the context."""
        if self._loop is not None:
            try:
                asyncio.run_coroutine_threadsafe(self._broker.stop(), self._loop).result()
            finally:
                self._end_loop()

    def __enter__(self) -> "BrokerThread":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _end_loop(self) -> None:
        assert self._loop is not None, "there is no loop to end"
        assert self._thread is not None, "a loop runs in its thread"
        asyncio.run_coroutine_threadsafe(self._loop.shutdown_default_executor(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None


def _listen(options: BrokerOptions, config: ServerConfig) -> tuple[str, int] | None:
    if "listen" in options:
        return split_address(options["listen"])
    return None if config.listeners else ("127.0.0.1", 0)


def split_address(address: str) -> tuple[str, int]:
    """HOST:PORT, the host in brackets if it contains colons."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _text(value: object) -> str:
    """Settings are text; Python's booleans are written as Kafka writes them."""
    return str(value).lower() if isinstance(value, bool) else str(value)
