"""`ottla serve --testing`: what it refuses, the marker in its data directory, and the brokers with their control.

A clock that was set leaves time stamps from the future, and a reset deletes everything: brokers in testing mode keep
to data, addresses and metadata that are made for that.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, TextIO, cast

from ottla.broker.config.options import ConfigError
from ottla.broker.config.server import ServerConfig
from ottla.broker.logging import LazyLog
from ottla.broker.runtime import StartError
from ottla.broker.server.listeners import DEFAULT_HOST
from ottla.protocol.address import is_loopback
from ottla.storage.files import DIRECTORY_MODE, reason_of
from ottla.storage.meta_properties import TESTING_MARKER
from ottla.testing.control.access import (
    TOKEN_VARIABLE,
    ControlAccess,
    new_token,
    parse_control_address,
    token_of,
    write_control_file,
)
from ottla.testing.control.listener import ControlListener
from ottla.testing.hosting import Hosting, LogLines
from ottla.testing.testbed import Testbed
from ottla.testing.wire_capture.connections import CaptureHost

MARKER_TEXT: Final = "Brokers in testing mode have used this directory: their time may have been set.\n"
SNAPSHOTS: Final = f"{TESTING_MARKER}-snapshots"
REMOTE: Final = "--testing-remote"


class TestingOptions(NamedTuple):
    """Those of `ottla serve`."""

    control: str | None = None
    control_file: str | None = None
    control_open: bool = False
    control_hosts: tuple[str, ...] = ()
    is_remote: bool = False
    """Whether addresses other than loopback are allowed."""


class TestingBrokers:
    """What `ottla serve` starts and stops. `await start()` first."""

    def __init__(self, hosting: Hosting, brokers: int, data_dir: Path, options: TestingOptions) -> None:
        """Raises ConfigError."""
        # Without control no client could ask for an audit.
        audit = "off" if options.control is None else "errors"
        self._bed = Testbed(brokers=brokers, hosting=hosting, audit=audit)
        self._data_dir = data_dir
        self._options = options
        self._hosting = hosting
        self._access = None if options.control is None else access_of(options, os.environ)
        self._control: ControlListener | None = None
        self._written: Path | None = None
        """The control file, once it is there."""
        check_listeners(hosting.config, hosting.host, options)

    @property
    def bootstrap(self) -> str:
        return self._bed.hosted.bootstrap

    @property
    def cluster_id(self) -> str:
        return self._bed.hosted.cluster_id

    @property
    def admin_url(self) -> str:
        return self._bed.hosted.admin_url

    @property
    def listener_urls(self) -> list[str]:
        return self._bed.hosted.listener_urls

    @property
    def captures(self) -> CaptureHost:
        return self._bed.hosted.capture_host

    @property
    def ready_lines(self) -> list[str]:
        """Beside the one of each broker: where control is."""
        return [] if self._control is None else [f"control {self._control.url}"]

    async def start(self) -> None:
        """Raises StartError."""
        mark_directory(self._data_dir)
        self._hosting.log.warning(
            "testing mode: everything can be deleted, faults and time are made; not for production",
            data_dir=str(self._data_dir),
        )
        await self._bed.start_here(self._data_dir, self._data_dir / SNAPSHOTS)
        if self._access is None:
            return
        try:
            await self._open_control(self._access)
        except BaseException:
            await self.stop()
            raise

    async def _open_control(self, access: ControlAccess) -> None:
        """Raises StartError."""
        options = self._options
        assert options.control is not None, "there is access to it"
        control = ControlListener(self._bed, access)
        await control.open(parse_control_address(options.control))
        self._control = control
        if options.control_file is not None:
            path = Path(options.control_file)
            try:
                write_control_file(path, control.url, access.token, self.bootstrap)
            except OSError as error:
                raise StartError(f"cannot write {path} (--control-file): {reason_of(error)}") from None
            self._written = path

    async def stop(self) -> bool:
        """Whether all data was closed cleanly."""
        if self._control is not None:
            await self._control.close()
            self._control = None
        if self._written is not None:
            self._written.unlink(missing_ok=True)
        stopped_cleanly = await self._bed.stop_here()
        self._bed.remove_snapshots()
        return stopped_cleanly


def testing_log(log_format: str, level: str, stream: TextIO) -> tuple[LazyLog, LogLines]:
    """The log of the brokers, which reports show as well."""
    lines = LogLines(stream)
    return LazyLog(log_format, level, cast("TextIO", lines), owns_process=True), lines


def access_of(options: TestingOptions, environment: Mapping[str, str]) -> ControlAccess:
    """Who may control. Raises ConfigError."""
    assert options.control is not None, "there is an address"
    try:
        address = parse_control_address(options.control)
    except ValueError as error:
        raise ConfigError(f"--control: {error}") from None
    hosts = frozenset(each.lower() for each in options.control_hosts)
    if isinstance(address, Path):
        return ControlAccess(None, hosts, is_unix=True)
    if not is_loopback(address.host):
        if not options.is_remote:
            raise ConfigError(f"--control {address} is no loopback address: that needs {REMOTE}")
        if options.control_open:
            raise ConfigError(f"--control-open: {address} is no loopback address, so a token is needed")
    if options.control_open:
        return ControlAccess(None, hosts)
    token = token_of(environment)
    if token is None and options.control_file is None:
        raise ConfigError(
            f"--control needs --control-file, which gets the token, or {TOKEN_VARIABLE}, or --control-open: "
            "else no client could know the token"
        )
    return ControlAccess(token or new_token(), hosts)


def check_listeners(config: ServerConfig, host: str | None, options: TestingOptions) -> None:
    """Raises ConfigError."""
    hosts = [each.host for each in config.listeners] if host is None else [host]
    for each in hosts or [DEFAULT_HOST]:
        if not options.is_remote and not is_loopback(each):
            shown = each or "all addresses"
            raise ConfigError(f"--testing listens on loopback addresses alone, not on {shown}: that needs {REMOTE}")


def mark_directory(path: Path) -> None:
    """Makes it one of tests; what has records and no marker is refused. Raises StartError."""
    marker = path / TESTING_MARKER
    try:
        if not marker.exists() and _has_records(path):
            raise StartError(
                f"data directory {path} has records, and not the file {marker.name}: --testing, which may delete all "
                "of them, needs a directory of its own"
            )
        path.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        marker.write_text(MARKER_TEXT, encoding="utf-8")
    except OSError as error:
        raise StartError(f"cannot use data directory {path}: {reason_of(error)}") from None


def _has_records(path: Path) -> bool:
    return any(segment.stat().st_size > 0 for segment in path.rglob("*.log"))
