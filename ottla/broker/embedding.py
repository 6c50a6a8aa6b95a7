"""A broker inside another program: on the caller's loop, or on a loop and thread of its own.

    async with Broker() as broker:                    with BrokerThread() as broker:
        producer = AIOKafkaProducer(                      producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap)               bootstrap_servers=broker.bootstrap)

Without arguments: a free port of 127.0.0.1, and a temporary directory that is removed at the end.
"""

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

from ottla.broker import broker as core
from ottla.broker.broker import StartError
from ottla.broker.config.server import ServerConfig
from ottla.broker.logging import LazyLog

__all__ = ["Broker", "BrokerThread", "StartError"]


class Broker:
    """An asynchronous context manager; `bootstrap` is HOST:PORT while it is open.

    `settings` are Kafka's server properties: `{"group.initial.rebalance.delay.ms": 0, "num.partitions": 3}`.
    Raises ConfigError for settings that do not exist, and StartError, on entering, where a broker cannot start.
    """

    def __init__(
        self,
        *,
        listen: str = "127.0.0.1:0",
        data_dir: str | Path | None = None,
        settings: Mapping[str, object] | None = None,
        advertise: str | None = None,
        node_id: int = 0,
        log_level: str = "warning",
        log_format: str = "console",
    ) -> None:
        self._config = ServerConfig({name: _text(value) for name, value in (settings or {}).items()})
        self._listen = split_address(listen)
        self._advertise = None if advertise is None else split_address(advertise)
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._node_id = node_id
        self._log = LazyLog(log_format, log_level)
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
        host, port = self._listen
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
    """The same for programs without a loop: the broker runs on uvloop in a thread of its own. Takes what `Broker` takes."""

    def __init__(
        self,
        *,
        listen: str = "127.0.0.1:0",
        data_dir: str | Path | None = None,
        settings: Mapping[str, object] | None = None,
        advertise: str | None = None,
        node_id: int = 0,
        log_level: str = "warning",
        log_format: str = "console",
    ) -> None:
        self._broker = Broker(
            listen=listen,
            data_dir=data_dir,
            settings=settings,
            advertise=advertise,
            node_id=node_id,
            log_level=log_level,
            log_format=log_format,
        )
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


def split_address(address: str) -> tuple[str, int]:
    """HOST:PORT, the host in brackets if it contains colons."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _text(value: object) -> str:
    """Settings are text; Python's booleans are written as Kafka writes them."""
    return str(value).lower() if isinstance(value, bool) else str(value)
