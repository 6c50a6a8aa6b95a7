"""Server properties of how clients and brokers log in, and those that a listener, or a mechanism of it, has by itself.

Kafka's names for the latter are `listener.name.<listener>.<property>` and
`listener.name.<listener>.<mechanism>.<property>`, listener and mechanism in small letters (§51.5).
"""

import re
from typing import Final, NamedTuple

from ottla.broker.config.options import (
    INT_MAX,
    Kind,
    Option,
    Update,
    boolean,
    integer,
    long,
    optional_text,
    secret_option,
    text_option,
)
from ottla.broker.config.server_oauth import LISTENER_OAUTH_OPTIONS, OAUTHBEARER
from ottla.broker.config.server_tls import LISTENER_TLS_OPTIONS
from ottla.security.authentication import PLAIN, parse_super_users
from ottla.security.scram_credential import SCRAM_MECHANISMS

MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)
"""Those that are served."""
OF_BROKERS: Final = (PLAIN, *SCRAM_MECHANISMS)
"""Those by which brokers log in to each other."""
_NO_DEFAULT = "Kafka's default, GSSAPI, is not supported: name some of"
NO_MECHANISM = f"{_NO_DEFAULT} {', '.join(MECHANISMS)}"
NO_MECHANISM_OF_BROKERS = f"{_NO_DEFAULT} {', '.join(OF_BROKERS)}"

JAAS_CONFIG = "sasl.jaas.config"
CALLBACK_CLASS = "sasl.server.callback.handler.class"
USERS_FILE = "plain.users.file"
ENABLED_MECHANISMS = "sasl.enabled.mechanisms"
INTER_BROKER_MECHANISM = "sasl.mechanism.inter.broker.protocol"


def _mechanism(text: str) -> str:
    name = text.strip().upper()
    if name not in MECHANISMS:
        raise ValueError(f"{name or 'an empty name'} is not supported, only {', '.join(MECHANISMS)} are")
    return name


def _mechanism_of_brokers(text: str) -> str:
    name = _mechanism(text)
    if name not in OF_BROKERS:
        raise ValueError(f"brokers log in to each other by {', '.join(OF_BROKERS)}, and by certificates")
    return name


def _mechanisms(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(_mechanism, text.split(",")))) if text else ()


_OAUTH_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
_VALIDATORS = tuple(f"{_OAUTH_PACKAGE}{room}OAuthBearerValidatorCallbackHandler" for room in ("", "secured."))


def _callback_class(text: str) -> str:
    if text and text not in _VALIDATORS:
        raise ValueError(f"Java classes cannot be loaded: {_VALIDATORS[0]}, or nothing, is expected")
    return text


STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_OLD_AUTHORIZERS = ("kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer")


def _authorizer(text: str) -> str:
    if text in _OLD_AUTHORIZERS:
        raise ValueError(f"that of ZooKeeper's time; {STANDARD_AUTHORIZER} has the same rules")
    if text and text != STANDARD_AUTHORIZER:
        raise ValueError(f"Java classes cannot be loaded: {STANDARD_AUTHORIZER}, or nothing, is expected")
    return text


def _super_users(text: str) -> str:
    parse_super_users(text)
    return text


class SecurityOptions:
    authorizer_class_name = Option[str](
        "authorizer.class.name",
        Kind.STRING,
        "",
        "What decides by ACLs what clients may do. Empty: nothing does, and every client may do everything.",
        parse=_authorizer,
        bounds=STANDARD_AUTHORIZER,
        update=Update.READ_ONLY,
    )
    super_users = Option[str](
        "super.users",
        Kind.STRING,
        "",
        "Principals that may do everything, such as User:admin, separated by semicolons.",
        parse=_super_users,
        bounds="principals, each Type:Name",
        update=Update.READ_ONLY,
    )
    allow_everyone_if_no_acl_found = boolean(
        "allow.everyone.if.no.acl.found",
        False,
        "Whether every client may do everything with a resource that no ACL is about.",
    )
    sasl_enabled_mechanisms = Option[tuple[str, ...]](
        ENABLED_MECHANISMS,
        Kind.LIST,
        (),
        "Mechanisms by which clients log in on listeners with SASL, in the order in which clients get them.",
        parse=_mechanisms,
        bounds=f"a list of {', '.join(MECHANISMS)}",
        update=Update.READ_ONLY,
    )
    sasl_mechanism_inter_broker_protocol = Option[str | None](
        INTER_BROKER_MECHANISM,
        Kind.STRING,
        None,
        "Mechanism by which brokers log in to each other, where their listener has SASL.",
        parse=lambda text: _mechanism_of_brokers(text) if text else None,
        bounds=f"one of {', '.join(OF_BROKERS)}",
        update=Update.READ_ONLY,
    )
    security_inter_broker_protocol = optional_text(
        "security.inter.broker.protocol",
        "Brokers use the listener of this name among each other, as with inter.broker.listener.name: Kafka names a "
        "listener by its protocol where nothing else is said.",
    )
    sasl_server_max_receive_size = integer(
        "sasl.server.max.receive.size",
        524288,
        "Maximum size of a request before the login, in bytes.",
        at_least=1024,
    )
    connections_max_reauth_ms = long(
        "connections.max.reauth.ms",
        0,
        "After this many milliseconds a client has to log in again, on the same connection, or is cut off; 0: never.",
        at_least=0,
    )
    connection_failed_authentication_delay_ms = integer(
        "connection.failed.authentication.delay.ms",
        100,
        "A failed login is answered, and its connection closed, after this many milliseconds.",
        at_least=0,
        at_most=INT_MAX,
    )


LISTENER_LIMITS = (
    integer(
        "max.connections",
        INT_MAX,
        "Maximum number of open connections of the listener.",
        at_least=1,
        update=Update.CLUSTER_WIDE,
    ),
    integer(
        "max.connection.creation.rate",
        INT_MAX,
        "Maximum number of connections per second that the listener accepts.",
        at_least=1,
        update=Update.CLUSTER_WIDE,
    ),
)
_LISTENER_OPTIONS: dict[str, Option[object]] = {
    option.name: option  # type: ignore[misc]
    for option in (
        SecurityOptions.sasl_enabled_mechanisms,
        SecurityOptions.connections_max_reauth_ms,
        SecurityOptions.sasl_server_max_receive_size,
        *LISTENER_LIMITS,
        optional_text(
            USERS_FILE,
            "File with the users of PLAIN, one name:password a line, that only its owner can read (mode 0600). It is "
            "read again when it changes.",
        ),
    )
}
_LISTENER_OPTIONS.update(LISTENER_TLS_OPTIONS)
_LISTENER_OPTIONS.update(LISTENER_OAUTH_OPTIONS)
_MECHANISM_OPTIONS: dict[str, Option[object]] = {
    option.name: option  # type: ignore[misc]
    for option in (
        secret_option(JAAS_CONFIG, "The login module of the mechanism with its options, as Java's clients write it."),
        SecurityOptions.connections_max_reauth_ms,
        text_option(
            CALLBACK_CLASS,
            "",
            "Kafka's validator of access tokens, which is what OAUTHBEARER does here; no class is loaded.",
            parse=_callback_class,
            bounds="OAuthBearerValidatorCallbackHandler of Kafka",
            update=Update.READ_ONLY,
        ),
    )
}
_PREFIXED = re.compile(
    r"listener\.name\.(?P<listener>[a-z0-9_-]+)\.(?:(?P<mechanism>"
    rf"{'|'.join(each.lower() for each in MECHANISMS)})\.)?(?P<property>.+)"
)


class ListenerProperty(NamedTuple):
    """One that a listener has by itself, by the parts of its name."""

    name: str
    listener: str
    """In capitals, as listeners are named."""
    mechanism: str | None
    own: str
    """Of the name, what is neither listener nor mechanism."""

    def option(self) -> Option[object]:
        options = _LISTENER_OPTIONS if self.mechanism is None else _MECHANISM_OPTIONS
        return options[self.own].named(self.name)


def listener_property(name: str) -> ListenerProperty | None:
    """What `name` means; None for one that no listener, and no mechanism, has."""
    match = _PREFIXED.fullmatch(name)
    if match is None:
        return None
    mechanism, own = match["mechanism"], match["property"]
    if f"{mechanism}.{own}" == USERS_FILE:
        mechanism, own = None, USERS_FILE
    if own not in (_LISTENER_OPTIONS if mechanism is None else _MECHANISM_OPTIONS):
        return None
    return ListenerProperty(name, match["listener"].upper(), None if mechanism is None else mechanism.upper(), own)


def listener_properties() -> dict[str, Option[object]]:
    """All of them, by their names in the manner of `listener.name.<listener>.…`, for the documents."""
    return {
        **{f"listener.name.<listener>.{name}": option for name, option in _LISTENER_OPTIONS.items()},
        **{f"listener.name.<listener>.<mechanism>.{name}": option for name, option in _MECHANISM_OPTIONS.items()},
    }


def own_part(name: str) -> str:
    """The property without the listener and the mechanism that it is for."""
    match = _PREFIXED.fullmatch(name)
    return name if match is None else match["property"]
