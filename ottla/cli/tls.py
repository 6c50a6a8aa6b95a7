"""How a command speaks TLS to brokers: the options for it, and what they and the client properties mean together."""

from collections.abc import Callable, Mapping
from pathlib import Path
from ssl import SSLContext
from typing import Any

import click

from ottla.broker.config.options import ConfigError, Option
from ottla.cli.client_properties import PROTOCOL, ClientProperties

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_OPTIONS = (
    click.option("--tls", is_flag=True, help="Speak TLS, and trust those whom the operating system trusts."),
    click.option("--ca", metavar="FILE", type=_FILE, help="Speak TLS, and trust the authorities in this PEM file."),
    click.option(
        "--cert", metavar="FILE", type=_FILE, help="Speak TLS, and show the certificate in this PEM file with its key."
    ),
)
TLS_PARAMETERS = ("tls", "ca", "cert")
# By which option, the property that has the file, and those that could stand for it.
_STORES = (
    ("ca", "ssl.truststore.location", ("ssl.truststore.certificates",)),
    ("cert", "ssl.keystore.location", ("ssl.keystore.key", "ssl.keystore.certificate.chain")),
)


def tls_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that `read_tls` reads."""
    for decorate in reversed(_OPTIONS):
        command = decorate(command)
    return command


def read_tls(values: Mapping[str, Any], properties: ClientProperties) -> SSLContext | None:
    """What connections are made with; None: without TLS. `values` are those of the options, which go before the
    properties. Raises ValueError with a sentence."""
    given = [f"--{name}" for name in TLS_PARAMETERS if values.get(name)]
    if given and properties.has_tls is False:
        raise ValueError(f"{given[0]} asks for TLS, and {PROTOCOL}={properties.protocol} for none")
    if not given and not properties.has_tls:
        return None
    # Imported here: most commands speak without TLS.
    from ottla.broker.config.tls import TlsProperties
    from ottla.broker.config.tls_context import client_context

    def value_of(option: Option[object]) -> object:
        for file, location, others in _STORES:
            if values.get(file) is not None and option.name in (location, *others):
                return str(values[file]) if option.name == location else option.default
        text = properties.text(option.name)
        return option.default if text is None else option.parse(text)

    for name in ("ssl.keystore.password", "ssl.truststore.password"):
        if properties.text(name) is not None:
            raise ValueError(f"{name}: stores are PEM files, where only the key has a password: ssl.key.password")
    tls = TlsProperties(value_of)
    try:
        for name in ("ssl.keystore.type", "ssl.truststore.type"):
            tls.get(name)
        return client_context(tls.settings())
    except ConfigError as error:
        raise ValueError(str(error)) from None
