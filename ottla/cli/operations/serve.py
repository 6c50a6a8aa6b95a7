"""`ottla serve`: a broker, or several, in this process until a signal stops it."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import uvloop

from ottla.broker.broker import Broker
from ottla.broker.broker_data import METADATA_FILE
from ottla.broker.config.definitions import SERVER_OPTIONS
from ottla.broker.config.etcd import etcd_settings, refuse_etcd_properties
from ottla.broker.config.options import ConfigError
from ottla.broker.config.properties import parse_setting
from ottla.broker.config.security import read_secret
from ottla.broker.config.server import ServerConfig
from ottla.broker.config.server_network import PLAINTEXT
from ottla.broker.config.server_security import listener_property
from ottla.broker.logging import LazyLog
from ottla.broker.runtime import StartError
from ottla.broker.server.connection import Connection
from ottla.broker.server.listeners import DEFAULT_HOST, DEFAULT_PORT
from ottla.cli.operations.broker_process import process_upkeep, raise_file_limit, startup_ms
from ottla.cluster.store import MetadataStore, parse_store_url
from ottla.protocol.address import is_loopback, parse_address

if TYPE_CHECKING:
    from ottla.cli.kafka_image.serving import KafkaImage
    from ottla.cli.operations.secure_serve import SecureServe
    from ottla.testing.control.serving import TestingBrokers
    from ottla.testing.wire_capture.connections import CaptureHost

# Of the image: the testing mode, where its control is, and the names that clients may call it by.
TESTING_VARIABLE, IMAGE_CONTROL = "OTTLA_TESTING", "0.0.0.0:9098"
CONTROL_HOSTS_VARIABLE = "OTTLA_CONTROL_HOSTS"


class ServeOptions(NamedTuple):
    """The command line, read: addresses are HOST:PORT, `settings` are KEY=VALUE, `metadata` is a URL of etcd."""

    listen: str | None = None
    advertise: str | None = None
    data_dir: str = "./ottla-data"
    ephemeral: bool = False
    brokers: int = 1
    node_id: int | None = None
    metadata: str | None = None
    admin: str | None = None
    secure: str | None = None
    config: str | None = None
    settings: tuple[str, ...] = ()
    kafka_env: bool = False
    capture: str | None = None
    capture_secrets: bool = False
    log_format: str | None = None
    log_level: str = "info"
    testing: bool = False
    control: str | None = None
    control_file: str | None = None
    control_open: bool = False
    control_host: tuple[str, ...] = ()
    testing_remote: bool = False
    image: "KafkaImage | None" = None
    """What the variables say, once they have been read; no option fills it."""


class Served(Protocol):
    """One broker or a cluster."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def admin_url(self) -> str: ...

    @property
    def listener_urls(self) -> list[str]: ...

    async def start(self) -> None: ...

    async def stop(self) -> bool: ...


def run(options: ServeOptions) -> int:
    """Serves; returns the exit status. What a user can cause is said in one sentence on standard error."""
    try:
        if options.kafka_env:
            options = _with_variables(options)
        config = _server_config(options)
        if options.metadata is None:
            refuse_etcd_properties(config)
        if options.image is not None:
            options.image.claim_data_dir()
        secure = None if options.secure is None else _secure_serve(options, config)
        if secure is not None:
            config = _server_config(options, secure.settings)
        if options.ephemeral:
            from tempfile import TemporaryDirectory

            with TemporaryDirectory(prefix="ottla-") as directory:
                return _serve(options, config, Path(directory), secure)
        return _serve(options, config, Path(options.data_dir), secure)
    except (ConfigError, StartError) as error:
        print(f"ottla: {error}", file=sys.stderr)
        return 1


def _with_variables(options: ServeOptions) -> ServeOptions:
    """Raises ConfigError."""
    from ottla.cli.kafka_image.serving import kafka_image

    image = kafka_image(Path(options.data_dir), _text_of(options.config))
    node_id, level = image.settings.node_id, image.settings.log_level or options.log_level
    options = options._replace(node_id=node_id, data_dir=str(image.data_dir), log_level=level, image=image)
    if os.environ.get(TESTING_VARIABLE) != "1":
        return options
    # A container's addresses are those of its network: who reaches them needs the token.
    control = options.control or IMAGE_CONTROL
    hosts = tuple(filter(None, os.environ.get(CONTROL_HOSTS_VARIABLE, "").split(",")))
    return options._replace(testing=True, testing_remote=True, control=control, control_host=hosts)


def _secure_serve(options: ServeOptions, config: ServerConfig) -> "SecureServe":
    """Raises ConfigError or StartError."""
    try:
        from ottla.cli.operations.secure_serve import SecureServe, refuse_properties
    except ModuleNotFoundError as error:
        raise StartError(f"--secure needs {error.name}, which comes with: pip install 'ottla[secure]'") from None
    refuse_properties(config)
    data_dir = None if options.ephemeral else Path(options.data_dir)
    listen, advertise = (
        None if address is None else parse_address(address, port_min=0).host
        for address in (options.listen, options.advertise)
    )
    return SecureServe.open(Path(options.secure or ""), data_dir, listen=listen, advertise=advertise)


def _server_config(options: ServeOptions, further: tuple[str, ...] = ()) -> ServerConfig:
    """`further` are settings that are taken as they stand. Raises ConfigError."""
    admin = () if options.admin is None else (f"ottla.admin.listener={options.admin}",)
    if options.image is not None:
        return ServerConfig({**options.image.settings.properties, **dict(map(parse_setting, admin))})
    properties = _text_of(options.config)
    return ServerConfig.parse(properties, (*map(_with_secret, options.settings), *admin, *further))


def _text_of(config: str | None) -> str | None:
    """Of the file of --config. Raises ConfigError."""
    if config is None:
        return None
    try:
        return Path(config).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"cannot read {config}: {reason}") from None


def _with_secret(setting: str) -> str:
    """`KEY=@PATH` of a secret is the text of that file: arguments stand in the list of processes (§68.4)."""
    if not _is_secret(setting):
        return setting
    name, _, value = setting.partition("=")
    return f"{name}={read_secret(Path(value.strip()[1:]), name.strip())}" if value.strip().startswith("@") else setting


def _is_secret(setting: str) -> bool:
    name = setting.partition("=")[0].strip()
    found = listener_property(name)
    option = SERVER_OPTIONS.get(name) if found is None else found.option()
    return option is not None and option.is_secret


def _serve(options: ServeOptions, config: ServerConfig, data_dir: Path, secure: "SecureServe | None") -> int:
    raise_file_limit()
    if secure is not None:
        secure.store_users(data_dir)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return 0 if runner.run(_until_stopped(options, config, data_dir, secure)) else 1


async def _until_stopped(
    options: ServeOptions, config: ServerConfig, data_dir: Path, secure: "SecureServe | None"
) -> bool:
    """Gives whether the stop was a clean one."""
    log_format = options.log_format or ("console" if sys.stderr.isatty() else "json")
    log = LazyLog(log_format, options.log_level, owns_process=True)
    if options.brokers == 1:
        # Several in one process add their ids themselves.
        log = log.with_fields(broker=options.node_id or 0)
    _warn_of_secrets(options, log)
    loop = asyncio.get_running_loop()
    stop_requested = loop.create_future()

    def stop() -> None:
        if not stop_requested.done():
            stop_requested.set_result(None)

    for number in _stop_signals():
        loop.add_signal_handler(number, stop)
    captures: CaptureHost | None
    if options.testing:
        testing = _served_for_testing(options, config, data_dir, log_format)
        served: Served = testing
        captures = testing.captures
    else:
        captures = None if options.capture is None else _capture_host()
        name = PLAINTEXT if secure is None else secure.listener_name
        served = _served(options, config, data_dir, log, name, captures)
    if options.capture is not None and captures is not None:
        _begin_capture(captures, options, log)
    try:
        return await _serve_until(stop_requested, served, options, log, secure, captures)
    finally:
        if captures is not None:
            _end(captures)


async def _serve_until(
    stop_requested: "asyncio.Future[None]",
    served: Served,
    options: ServeOptions,
    log: LazyLog,
    secure: "SecureServe | None",
    captures: "CaptureHost | None",
) -> bool:
    if not await _started(served, stop_requested):
        log.info("stopped by a signal before the start was over")
        return True
    if captures is not None and isinstance(served, Broker):
        captures.attach(served.parts)
    try:
        if options.image is not None:
            said = options.image.ready_lines()
        else:
            said = [_ready_line(served), *(() if secure is None else secure.ready(served.bootstrap, log))]
        said += getattr(served, "ready_lines", ())
    except StartError:
        await served.stop()
        raise
    with contextlib.suppress(OSError):
        # The terminal, or who reads the pipe, may be gone already: no reason to stop uncleanly.
        print("\n".join(said), flush=True)
    if options.image is not None:
        options.image.report(log)
    log.hold()
    with process_upkeep(asyncio.get_running_loop(), log):
        await stop_requested
    log.release()
    log.info("stopping")
    return await served.stop()


def _warn_of_secrets(options: ServeOptions, log: LazyLog) -> None:
    for setting in filter(_is_secret, options.settings):
        name, _, value = map(str.strip, setting.partition("="))
        if not value.startswith("@"):
            log.warning("a secret stands in the arguments, which others can list: give KEY=@FILE", property=name)


def _capture_host() -> "CaptureHost":
    # Imported here: brokers that serve in production capture nothing.
    from ottla.testing.wire_capture.connections import CaptureHost

    return CaptureHost()


def _begin_capture(captures: "CaptureHost", options: ServeOptions, log: LazyLog) -> None:
    """From before the first connection. Raises StartError."""
    from ottla.testing.wire_capture.file_format import CaptureError

    try:
        captures.begin(Path(options.capture or ""), with_secrets=options.capture_secrets, log=log)
    except CaptureError as error:
        raise StartError(f"--capture: {error}") from None


def _end(captures: "CaptureHost") -> None:
    """The brokers have stopped: the file gets what is left."""
    if (capture := captures.end()) is not None:
        capture.wait()


def _ready_line(served: Served) -> str:
    """Programs read its first fields; further ones come last."""
    first = f"ready bootstrap={served.bootstrap} cluster_id={served.cluster_id} startup_ms={startup_ms()}"
    admin = f" admin={served.admin_url}" if served.admin_url else ""
    return f"{first} listeners={','.join(served.listener_urls)}{admin}"


def _stop_signals() -> list[signal.Signals]:
    """SIGHUP, which comes when the terminal goes, is among them unless `nohup` has the process ignore it."""
    hangup = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGTERM, signal.SIGINT, *hangup]


async def _started(served: Served, stop_requested: "asyncio.Future[None]") -> bool:
    """False if a signal asked for a stop first: a start may wait long for a metadata store. Raises StartError."""
    start = asyncio.create_task(served.start(), name="start")
    await asyncio.wait([start, stop_requested], return_when=asyncio.FIRST_COMPLETED)
    if not start.done():
        start.cancel()
        await asyncio.wait([start])
    if start.cancelled():
        return False
    start.result()
    return True


def _served(
    options: ServeOptions,
    config: ServerConfig,
    data_dir: Path,
    log: LazyLog,
    listener_name: str,
    captures: "CaptureHost | None",
) -> Served:
    host, port = (None, None) if options.listen is None else parse_address(options.listen, port_min=0)
    advertise = None if options.advertise is None else parse_address(options.advertise)
    node_id = options.node_id or 0
    new_connection = Connection if captures is None else captures.new_connection
    if options.brokers > 1:
        from ottla.broker.local_cluster import LocalCluster

        return LocalCluster(
            config,
            data_dir=data_dir,
            brokers=options.brokers,
            host=host or DEFAULT_HOST,
            port=DEFAULT_PORT if port is None else port,
            advertise=advertise,
            listener_name=listener_name,
            first_node_id=node_id,
            log=log,
            opened=None if captures is None else lambda broker: captures.attach(broker.parts),
            new_connection=new_connection,
        )
    store = None if options.metadata is None else _etcd_store(options.metadata, config, data_dir, log)
    return Broker(
        config,
        data_dir=data_dir,
        host=host,
        port=port,
        advertise=advertise,
        listener_name=listener_name,
        node_id=node_id,
        store=store,
        log=log,
        new_connection=new_connection,
    )


def _served_for_testing(
    options: ServeOptions, config: ServerConfig, data_dir: Path, log_format: str
) -> "TestingBrokers":
    """Raises ConfigError."""
    # A broker in production imports nothing of the testing kit.
    from ottla.testing.control.serving import TestingBrokers, TestingOptions, testing_log
    from ottla.testing.hosting import Hosting

    host, port = (None, None) if options.listen is None else parse_address(options.listen, port_min=0)
    if host is None and not config.listeners:
        host, port = DEFAULT_HOST, DEFAULT_PORT
    log, log_lines = testing_log(log_format, options.log_level, sys.stderr)
    hosting = Hosting(
        config,
        log,
        log_lines,
        host=host,
        port=port,
        advertise=None if options.advertise is None else parse_address(options.advertise),
        first_node_id=options.node_id or 0,
    )
    testing = TestingOptions(
        control=options.control,
        control_file=options.control_file,
        control_open=options.control_open,
        control_hosts=options.control_host,
        is_remote=options.testing_remote,
    )
    return TestingBrokers(hosting, options.brokers, data_dir, testing)


def _etcd_store(url: str, config: ServerConfig, data_dir: Path, log: LazyLog) -> MetadataStore:
    """Raises ConfigError, StartError."""
    if (data_dir / METADATA_FILE).exists():
        raise StartError(
            f"{data_dir} has metadata of its own ({METADATA_FILE}); a broker of {url} needs another directory"
        )
    try:
        from ottla.cluster.etcd import EtcdStore
        from ottla.cluster.etcd_gateway import EtcdLogin
    except ModuleNotFoundError as error:
        raise StartError(f"--metadata {url} needs {error.name}, which comes with: pip install 'ottla[etcd]'") from None
    endpoints, has_tls = parse_store_url(url)
    tls, login = etcd_settings(config, has_tls=has_tls)
    if login is not None and not has_tls and not all(is_loopback(each.host) for each in endpoints):
        log.warning("the password of etcd is not encrypted", metadata=url)
    return EtcdStore(endpoints, tls=tls, login=None if login is None else EtcdLogin(*login))
