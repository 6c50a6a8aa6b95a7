"""How a broker comes to etcd: what the properties say together with the URL of --metadata.

What contradicts it is refused: who sets certificates, or a password, believes that they are used.
"""

import ssl
from typing import NamedTuple

from ottla.broker.config.options import ConfigError
from ottla.broker.config.server import ServerConfig
from ottla.broker.config.server_cluster import ETCD
from ottla.security.client import Secret

_USER, _PASSWORD = f"{ETCD}user", f"{ETCD}password"


class EtcdSettings(NamedTuple):
    tls: ssl.SSLContext | None
    """With which connections are made; None: without TLS."""
    login: tuple[str, Secret] | None
    """User and password; None: the broker does not log in."""


def refuse_etcd_properties(config: ServerConfig) -> None:
    """Of a broker that keeps its metadata itself. Raises ConfigError."""
    _refuse(config, ETCD, "it is for a broker with --metadata etcd://… or etcds://…")


def etcd_settings(config: ServerConfig, *, has_tls: bool) -> EtcdSettings:
    """`has_tls`: the URL is etcds://…. Reads the files of keys and certificates.

    Raises ConfigError."""
    if not has_tls:
        _refuse(config, f"{ETCD}ssl.", "--metadata etcd://… is without TLS; with it the URL is etcds://…")
    return EtcdSettings(_tls(config) if has_tls else None, _login(config))


def _login(config: ServerConfig) -> tuple[str, Secret] | None:
    user, password = config.ottla_metadata_etcd_user, config.ottla_metadata_etcd_password
    if (user is None) != (password is None or not password.reveal()):
        given, missing = (_USER, _PASSWORD) if user is not None else (_PASSWORD, _USER)
        raise ConfigError(f"{given}: it needs {missing}")
    return None if user is None or password is None else (user, password)


def _tls(config: ServerConfig) -> ssl.SSLContext:
    # Imported here: most brokers start without it.
    from ottla.broker.config.tls import prefixed_properties
    from ottla.broker.config.tls_context import client_context

    settings = prefixed_properties(config, ETCD).settings()
    try:
        return client_context(settings)
    except ConfigError as error:
        raise ConfigError(f"TLS with etcd ({ETCD}ssl.…): {error}") from None


def _refuse(config: ServerConfig, prefix: str, why: str) -> None:
    name = next(config.names_set(prefix), None)
    if name is not None:
        raise ConfigError(f"{name}: {why}")
