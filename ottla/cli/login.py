"""How a command logs in to brokers, and speaks TLS to them: the options for it, and what they mean together with the
client properties."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from ssl import SSLContext
from typing import Any

import click

from ottla.broker.config.client_properties import FILE_VARIABLE, PROTOCOL, ClientProperties
from ottla.broker.config.server_network import WITH_SASL
from ottla.security.client import CLIENT_MECHANISMS, LoginCredentials, Secret

PASSWORD_VARIABLE = "OTTLA_PASSWORD"
# The strongest one: nothing weaker is tried by itself, for a false server would get at the password that way.
DEFAULT_MECHANISM = "SCRAM-SHA-512"

_OPTIONS = (
    click.option(
        "--command-config",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        envvar=FILE_VARIABLE,
        show_envvar=True,
        help="Kafka's client properties: bootstrap.servers, security.protocol, sasl.*, ssl.*.",
    ),
    click.option("--user", metavar="NAME", help="Log in (SASL) as this user."),
    click.option(
        "--password-file",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help=f"Its first line is the password of --user.  [default: the variable {PASSWORD_VARIABLE}]",
    ),
    click.option(
        "--sasl-mechanism",
        metavar="|".join(CLIENT_MECHANISMS),
        type=click.Choice(CLIENT_MECHANISMS, case_sensitive=False),
        help=f"How --user logs in.  [default: {DEFAULT_MECHANISM}]",
    ),
)

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_TLS_OPTIONS = (
    click.option("--tls", is_flag=True, help="Speak TLS, and trust those whom the operating system trusts."),
    click.option("--ca", metavar="FILE", type=_FILE, help="Speak TLS, and trust the authorities in this PEM file."),
    click.option(
        "--cert", metavar="FILE", type=_FILE, help="Speak TLS, and show the certificate in this PEM file with its key."
    ),
)
TLS_PARAMETERS = ("tls", "ca", "cert")
# By option, the property that has the file.
_STORES = {"ca": "ssl.truststore.location", "cert": "ssl.keystore.location"}

LOGIN_PARAMETERS = ("command_config", "user", "password_file", "sasl_mechanism")


def login_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that `read_login` reads."""
    for decorate in reversed(_OPTIONS):
        command = decorate(command)
    return command


def read_login(
    values: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> tuple[LoginCredentials | None, ClientProperties]:
    """By whom to log in, if at all, and the properties that were read; `values` are those of the options, which go
    before the file. Raises ValueError with a sentence."""
    path: Path | None = values.get("command_config")
    properties = ClientProperties({}) if path is None else ClientProperties.read(path)
    user: str | None = values.get("user")
    if user is None:
        for option in ("password_file", "sasl_mechanism"):
            if values.get(option) is not None:
                raise ValueError(f"--{option.replace('_', '-')} needs --user")
        return properties.login, properties
    if properties.protocol is not None and properties.protocol not in WITH_SASL:
        raise ValueError(f"--user logs in, but {PROTOCOL}={properties.protocol} of {path} has no login")
    mechanism = values.get("sasl_mechanism") or properties.mechanism or DEFAULT_MECHANISM
    return LoginCredentials(mechanism, user, _password(values.get("password_file"), environment)), properties


def _password(path: Path | None, environment: Mapping[str, str]) -> Secret:
    """Raises ValueError."""
    if path is None:
        where, text = f"the variable {PASSWORD_VARIABLE}", environment.get(PASSWORD_VARIABLE, "")
        if not text:
            raise ValueError(f"--user needs --password-file, or the password in {where}")
    else:
        where, text = str(path), _first_line(path)
        if not text:
            raise ValueError(f"{where} has no password in its first line")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the password in {where} is not UTF-8") from None
    return Secret(text)


def _first_line(path: Path) -> str:
    """Raises ValueError."""
    try:
        return path.read_text(errors="surrogateescape").partition("\n")[0].removesuffix("\r")
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None


def tls_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that `read_tls` reads."""
    for decorate in reversed(_TLS_OPTIONS):
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
    from ottla.broker.config.client_tls import client_tls

    return client_tls(properties, {location: values[file] for file, location in _STORES.items() if values.get(file)})
