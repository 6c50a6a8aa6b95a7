"""`ottla serve`: one broker in this process until SIGTERM or SIGINT."""

import asyncio
import contextlib
import gc
import resource
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

import uvloop

from ottla.broker.broker import Broker
from ottla.broker.config.options import ConfigError
from ottla.broker.config.server import ServerConfig
from ottla.broker.errors import StartError
from ottla.broker.logging import LazyLog

# Until then, whoever has waited for the broker has the machine to himself.
SETTLED_AFTER_S = 0.5


class ServeOptions(NamedTuple):
    """The command line, read: addresses are HOST:PORT, `settings` are KEY=VALUE."""

    listen: str | None = None
    advertise: str | None = None
    data_dir: str = "./ottla-data"
    ephemeral: bool = False
    brokers: int = 1
    node_id: int | None = None
    metadata: str | None = None
    config: str | None = None
    settings: tuple[str, ...] = ()
    log_format: str = "console"
    log_level: str = "info"


def run(options: ServeOptions) -> int:
    """Serves; returns the exit status. What a user can cause is said in one sentence on standard error."""
    try:
        config = _server_config(options)
        if options.ephemeral:
            from tempfile import TemporaryDirectory

            with TemporaryDirectory(prefix="ottla-") as directory:
                return _serve(options, config, Path(directory))
        return _serve(options, config, Path(options.data_dir))
    except (ConfigError, StartError) as error:
        print(f"ottla: {error}", file=sys.stderr)
        return 1


def _server_config(options: ServeOptions) -> ServerConfig:
    properties = None
    if options.config is not None:
        try:
            properties = Path(options.config).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ConfigError(f"cannot read {options.config}: {reason}") from None
    return ServerConfig.parse(properties, options.settings)


def _serve(options: ServeOptions, config: ServerConfig, data_dir: Path) -> int:
    log = LazyLog(options.log_format, options.log_level)
    host, port = (None, None) if options.listen is None else _split(options.listen)
    broker = Broker(
        config,
        data_dir=data_dir,
        host=host,
        port=port,
        advertise=None if options.advertise is None else _split(options.advertise),
        node_id=options.node_id or 0,
        log=log,
    )
    _raise_file_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return 0 if runner.run(_until_told_to_stop(broker, log)) else 1


async def _until_told_to_stop(broker: Broker, log: LazyLog) -> bool:
    """Gives whether the stop was a clean one."""
    loop = asyncio.get_running_loop()
    told = loop.create_future()

    def stop() -> None:
        if not told.done():
            told.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    await broker.start()
    print(f"ready bootstrap={broker.bootstrap} cluster_id={broker.cluster_id} startup_ms={_startup_ms()}", flush=True)
    loop.call_later(SETTLED_AFTER_S, loop.run_in_executor, None, _settle, log)
    await told
    log.info("stopping")
    return await broker.stop()


def _settle(log: LazyLog) -> None:
    """What a start need not wait for, in a thread: the import of the log, unless an event has needed it before. Then
    all that was imported leaves the garbage collector's sight, which would look through it for tens of milliseconds,
    again and again, while every client waits."""
    log.prepare()
    gc.freeze()
    log.debug("settled")


def _raise_file_limit() -> None:
    """As far as it may be raised, as Java does it too: every partition and every connection takes a descriptor."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != most:
        # Some systems promise more than they grant (macOS: "unlimited").
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _startup_ms() -> int:
    """Since the process began, by the kernel's books."""
    started_ticks = int(Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000 - started_ticks * 1000 / _ticks_per_second())


def _ticks_per_second() -> int:
    import os

    return os.sysconf("SC_CLK_TCK")


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
