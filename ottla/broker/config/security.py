"""How clients log in on each listener, and how brokers do on each other's: what the properties say together.

Nothing of it changes while a broker runs. What cannot work is refused at the start, with a sentence that shows no
secret (§51.4–51.6).
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from ottla.broker.config.options import ConfigError
from ottla.broker.config.server import ServerConfig
from ottla.broker.config.server_network import PLAINTEXT, WITH_SASL, protocols
from ottla.broker.config.server_oauth import OAUTHBEARER
from ottla.broker.config.server_security import (
    ENABLED_MECHANISMS,
    INTER_BROKER_MECHANISM,
    JAAS_CONFIG,
    NO_MECHANISM,
    NO_MECHANISM_OF_BROKERS,
    USERS_FILE,
)
from ottla.security.authentication import PLAIN
from ottla.security.client import LoginCredentials, Secret

if TYPE_CHECKING:
    from ottla.broker.config.oauth import OAuthSettings

_USER = "user_"
_OWN_OPTIONS = {"username", "password"}
_OF_OTHERS = 0o077


class UsersFile(NamedTuple):
    path: Path
    property_name: str
    """The property that has named it."""


class MechanismSettings(NamedTuple):
    reauthentication_ms: int
    """After which a client has to log in again; 0: never."""
    passwords: Mapping[str, Secret]
    """Of PLAIN, by user. SCRAM's users are in the metadata store."""
    oauth: "OAuthSettings | None" = None
    """Of OAUTHBEARER."""
    users_file: UsersFile | None = None
    """Where those passwords come from; None: from the login module."""


class SaslSettings(NamedTuple):
    """Of one listener."""

    mechanisms: Mapping[str, MechanismSettings]
    """Those enabled, in order."""
    receive_bytes_max: int
    """Of a frame before the login."""
    failure_delay_ms: int


def inter_broker_listener(config: ServerConfig, names: list[str]) -> str:
    """The name of the listener by which brokers reach each other: by default the first of `names`."""
    name, protocol = config.inter_broker_listener_name, config.security_inter_broker_protocol
    if name is not None and protocol is not None:
        raise ConfigError(
            "inter.broker.listener.name and security.inter.broker.protocol both say which listener brokers use: give "
            "one of them"
        )
    key = "inter.broker.listener.name" if name is not None else "security.inter.broker.protocol"
    wanted = name or protocol
    if wanted is None:
        return names[0]
    if wanted.upper() not in names:
        raise ConfigError(f"{key}={wanted} is not among the listeners {', '.join(names)}")
    return wanted.upper()


def sasl_of_listeners(config: ServerConfig, names: Iterable[str]) -> dict[str, SaslSettings]:
    """Of the listeners with SASL. Raises ConfigError for any that cannot be served."""
    names = list(names)
    for each in config.listener_properties:
        if each.listener not in names:
            raise ConfigError(f"{each.name}: there is no listener {each.listener}, only {', '.join(names)}")
    found: dict[str, SaslSettings] = {}
    for name in names:
        if protocol_of(config, name) in WITH_SASL:
            found[name] = _sasl_settings(config, name)
    if found and config.connection_failed_authentication_delay_ms >= config.connections_max_idle_ms:
        raise ConfigError("connection.failed.authentication.delay.ms is not less than connections.max.idle.ms")
    return found


def protocol_of(config: ServerConfig, listener: str) -> str:
    return protocols(config.listener_security_protocol_map).get(listener, PLAINTEXT)


def inter_broker_login(config: ServerConfig, listener: str) -> LoginCredentials | None:
    """What this broker logs in with to others; None where `listener`, theirs, has no SASL. Raises ConfigError."""
    if protocol_of(config, listener) not in WITH_SASL:
        return None
    mechanism = config.sasl_mechanism_inter_broker_protocol
    if mechanism is None:
        why = NO_MECHANISM_OF_BROKERS
        raise ConfigError(f"brokers log in to each other on {listener}; {INTER_BROKER_MECHANISM}: {why}")
    if mechanism not in _enabled(config, listener):
        raise ConfigError(f"{INTER_BROKER_MECHANISM}={mechanism} is not among the {ENABLED_MECHANISMS} of {listener}")
    name = _property_name(listener, mechanism, JAAS_CONFIG)
    options = _jaas_options(config, listener, mechanism)
    if not (options.get("username") and options.get("password")):
        raise ConfigError(f"{name} needs username and password: brokers log in to each other on {listener}")
    return LoginCredentials(mechanism, options["username"], Secret(options["password"]))


def _sasl_settings(config: ServerConfig, listener: str) -> SaslSettings:
    enabled = _enabled(config, listener)
    if not enabled:
        raise ConfigError(f"{ENABLED_MECHANISMS} of the listener {listener}: {NO_MECHANISM}")
    return SaslSettings(
        {mechanism: _mechanism_settings(config, listener, mechanism) for mechanism in enabled},
        _number(config, listener, None, "sasl.server.max.receive.size", config.sasl_server_max_receive_size),
        config.connection_failed_authentication_delay_ms,
    )


def _enabled(config: ServerConfig, listener: str) -> tuple[str, ...]:
    own = cast("tuple[str, ...] | None", config.listener_value(listener, None, ENABLED_MECHANISMS))
    return config.sasl_enabled_mechanisms if own is None else own


def _mechanism_settings(config: ServerConfig, listener: str, mechanism: str) -> MechanismSettings:
    key = "connections.max.reauth.ms"
    of_listener = _number(config, listener, None, key, config.connections_max_reauth_ms)
    options = _jaas_options(config, listener, mechanism)
    file = _users_file(config, listener) if mechanism == PLAIN else None
    passwords = _passwords(listener, options, file) if mechanism == PLAIN else {}
    oauth = _oauth(config, listener) if mechanism == OAUTHBEARER else None
    return MechanismSettings(_number(config, listener, mechanism, key, of_listener), passwords, oauth, file)


def _oauth(config: ServerConfig, listener: str) -> "OAuthSettings":
    # Imported here: most brokers start without it.
    from ottla.broker.config.oauth import oauth_settings

    return oauth_settings(config, listener)


def _number(config: ServerConfig, listener: str, mechanism: str | None, name: str, otherwise: int) -> int:
    own = cast("int | None", config.listener_value(listener, mechanism, name))
    return otherwise if own is None else own


def _users_file(config: ServerConfig, listener: str) -> UsersFile | None:
    path = cast("str | None", config.listener_value(listener, None, USERS_FILE))
    return None if path is None else UsersFile(Path(path), _property_name(listener, None, USERS_FILE))


def _passwords(listener: str, options: Mapping[str, str], file: UsersFile | None) -> dict[str, Secret]:
    users = {key[len(_USER) :]: Secret(password) for key, password in options.items() if key.startswith(_USER)}
    file_name, jaas_name = _property_name(listener, None, USERS_FILE), _property_name(listener, PLAIN, JAAS_CONFIG)
    if file is not None:
        if users:
            raise ConfigError(f"{file_name} and {jaas_name} both have users: give them in one of them")
        users = read_users(file.path, file_name)
    if not users:
        raise ConfigError(
            f"PLAIN on the listener {listener} has no users: set {file_name}, or user_NAME in {jaas_name}"
        )
    return users


def read_users(path: Path, name: str) -> dict[str, Secret]:
    """Of a file with a line NAME:PASSWORD for each; `name` is the property that has named it. Raises ConfigError."""
    users: dict[str, Secret] = {}
    for number, line in enumerate(read_secret(path, name).splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        user, colon, password = line.partition(":")
        if not (colon and user and password):
            raise ConfigError(f"{name}: line {number} of {path} is not NAME:PASSWORD")
        if user in users:
            raise ConfigError(f"{name}: line {number} of {path} has a user that an earlier line has")
        users[user] = Secret(password)
    return users


def why_not_secret(path: Path) -> str | None:
    """A sentence where others than the owner may read the file, or open the directory. Raises OSError."""
    if not path.stat().st_mode & _OF_OTHERS:
        return None
    mode = 700 if path.is_dir() else 600
    return f"{path} can be read by others than its owner; chmod {mode} mends that"


def read_secret(path: Path, name: str) -> str:
    """The text of a file that only its owner may read (§68.5). Raises ConfigError."""
    try:
        why = why_not_secret(path)
        if why is not None:
            raise ConfigError(f"{name}: {why}")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{name}: {path} is not UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"{name}: cannot read {path}: {error.strerror}") from None


def _jaas_options(config: ServerConfig, listener: str, mechanism: str) -> Mapping[str, str]:
    """Of the login module of the mechanism; none where it is not set."""
    value = cast("Secret | None", config.listener_value(listener, mechanism, JAAS_CONFIG))
    if value is None:
        return {}
    # Imported here: most brokers start without it.
    from ottla.security.jaas import JaasError, LoginModule, parse_jaas

    name = _property_name(listener, mechanism, JAAS_CONFIG)
    try:
        entry = parse_jaas(value.reveal())
    except JaasError as error:
        raise ConfigError(f"{name}: {error}") from None
    modules = {PLAIN: LoginModule.PLAIN, OAUTHBEARER: LoginModule.OAUTHBEARER}
    wanted = modules.get(mechanism, LoginModule.SCRAM)
    if entry.module is not wanted:
        raise ConfigError(f"{name}: the login module of {mechanism} is {wanted.value}, not {entry.module.value}")
    for option in entry.options:
        is_of_login = option in _OWN_OPTIONS and mechanism != OAUTHBEARER
        if not is_of_login and not (mechanism == PLAIN and option.startswith(_USER)):
            raise ConfigError(f"{name}: {wanted.value} has no option {option}")
    return entry.options


def _property_name(listener: str, mechanism: str | None, name: str) -> str:
    middle = "" if mechanism is None else f"{mechanism.lower()}."
    return f"listener.name.{listener.lower()}.{middle}{name}"
