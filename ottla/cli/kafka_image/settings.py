"""What the properties of apache/kafka's image mean for a broker of Ottla's: those that it applies, those that it takes
without an effect, and those that it refuses, because a user would miss what they ask for.

`ottla serve` refuses all of Kafka's properties that it does not have. This leniency is the image's, whose users bring
what was written for another broker.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ottla.broker.config.definitions import SERVER_OPTIONS
from ottla.broker.config.options import ConfigError
from ottla.broker.config.refused import is_idle, is_not_missed, listeners_of_broker, refusal_of
from ottla.broker.config.server_network import PLAINTEXT
from ottla.broker.config.server_security import listener_property, own_part
from ottla.cli.kafka_image.environment import (
    JAVA_OPTIONS,
    KEY_CREDENTIALS,
    KEY_PASSWORD,
    key_password,
    log_level,
    properties_of,
)
from ottla.protocol.address import Address

CLUSTER_ID = "CLUSTER_ID"
DEFAULT_NODE_ID = 1
# Where neither a file nor a variable says anything; one of either, and all of these are gone, as there.
DEFAULTS = {
    "listeners": "PLAINTEXT://:9092",
    "advertised.listeners": "PLAINTEXT://localhost:9092",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
NODE_IDS = ("node.id", "broker.id")
LOG_DIRECTORIES = ("log.dirs", "log.dir")
_LISTS = ("listeners", "advertised.listeners", "listener.security.protocol.map")
_OTHER_VENDOR = "cfg."
# Of other programs in those images, and of their scripts.
_WITHOUT_EFFECT = (
    "auto.include.jmx.reporter",
    "confluent.",
    "jmx.port",
    "rest.",
    "ssl.keystore.credentials",
    "ssl.truststore.credentials",
)
# What a cluster of several asks for.
_SEVERAL = "a cluster of several brokers keeps its metadata in etcd here: compose.yaml of Ottla has one"
_JAVA_STORES = (".jks", ".p12", ".pfx", ".pkcs12")


class ImageSettings(NamedTuple):
    properties: Mapping[str, str]
    """Those that are applied."""
    data_dir: Path | None
    """None: no property says which."""
    node_id: int
    cluster_id: str | None
    log_level: str | None
    without_effect: tuple[str, ...]
    unknown: tuple[str, ...]
    """Neither Kafka nor Ottla knows them; Kafka warns of them too."""
    other_vendor: tuple[str, ...]
    """Properties that came as KAFKA_CFG_*."""


def image_settings(environment: Mapping[str, str], mounted: str = "") -> ImageSettings:
    """`mounted` is the text of /mnt/shared/config/server.properties. Raises ConfigError, a sentence for every property
    that is refused."""
    given = properties_of(environment, mounted) or dict(DEFAULTS)
    given, other_vendor = _without_vendor(given)
    node_id = _node_id(given)
    directories = next((given[name] for name in LOG_DIRECTORIES if given.get(name, "").strip()), "")
    problems = [*_refused_variables(environment), *_several_brokers(given, node_id)]
    applied, idle, unknown = dict[str, str](), list[str](), list[str]()
    for name, value in given.items():
        if name in (*NODE_IDS, *LOG_DIRECTORIES, KEY_CREDENTIALS):
            continue
        problem = _java_store(name, value)
        if problem is not None:
            problems.append(problem)
        elif name in SERVER_OPTIONS or listener_property(name) is not None:
            applied[name] = value
        elif _has_no_effect(name, value):
            idle.append(name)
        elif refusal_of(name) is not None:
            problems.append(f"{name}: {refusal_of(name)}")
        else:
            unknown.append(name)
    if problems:
        raise ConfigError("; ".join(problems))
    if given.get(KEY_CREDENTIALS) and KEY_PASSWORD not in applied:
        applied[KEY_PASSWORD] = key_password(given[KEY_CREDENTIALS])
    first, *further = [each.strip() for each in directories.split(",")]
    return ImageSettings(
        _with_listeners(applied | listeners_of_broker(given)),
        Path(first) if first else None,
        node_id,
        environment.get(CLUSTER_ID, "").strip() or None,
        log_level(environment),
        (*idle, *(f"log.dirs: {each}" for each in further)),
        tuple(unknown),
        other_vendor,
    )


def _without_vendor(given: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """KAFKA_CFG_X of another vendor's images is KAFKA_X, which holds where both are given."""
    own = {name: value for name, value in given.items() if not name.startswith(_OTHER_VENDOR)}
    others = {name.removeprefix(_OTHER_VENDOR): value for name, value in given.items() if name not in own}
    return {**others, **own}, tuple(others)


def _node_id(given: Mapping[str, str]) -> int:
    found = {name: given[name].strip() for name in NODE_IDS if given.get(name, "").strip()}
    for name, text in found.items():
        if not (text.isascii() and text.isdecimal()):
            raise ConfigError(f"{name}={text}: expected a whole number of 0 or more")
    ids = set(map(int, found.values()))
    if len(ids) > 1:
        raise ConfigError("node.id and broker.id are not the same: give one of them")
    return ids.pop() if ids else DEFAULT_NODE_ID


def _refused_variables(environment: Mapping[str, str]) -> Iterator[str]:
    if "java.security.auth.login.config" in environment.get(JAVA_OPTIONS, ""):
        yield (
            f"{JAVA_OPTIONS}: files of JAAS are not read: set listener.name.<listener>.<mechanism>.sasl.jaas.config, "
            "as KAFKA_LISTENER_NAME_<LISTENER>_<MECHANISM>_SASL_JAAS_CONFIG"
        )


def _several_brokers(given: Mapping[str, str], node_id: int) -> Iterator[str]:
    roles = {role.strip() for role in given.get("process.roles", "").split(",") if role.strip()}
    if roles == {"controller"}:
        yield f"process.roles=controller: there is no controller without a broker; {_SEVERAL}"
    voters = [each.strip() for each in given.get("controller.quorum.voters", "").split(",") if each.strip()]
    if any(voter.partition("@")[0] != str(node_id) for voter in voters):
        yield f"controller.quorum.voters has other nodes than this one, {node_id}: {_SEVERAL}"
    servers = [each for each in given.get("controller.quorum.bootstrap.servers", "").split(",") if each.strip()]
    if len(servers) > 1:
        yield f"controller.quorum.bootstrap.servers has {len(servers)} nodes: {_SEVERAL}"


def _java_store(name: str, value: str) -> str | None:
    own = own_part(name)
    is_store = own in ("ssl.keystore.location", "ssl.truststore.location") and value.lower().endswith(_JAVA_STORES)
    is_kind = own in ("ssl.keystore.type", "ssl.truststore.type") and value.upper() in ("JKS", "PKCS12")
    if not is_store and not is_kind:
        return None
    from ottla.security.pem import CONVERSION

    return f"{name}={value}: key stores are PEM; {CONVERSION}"


def _has_no_effect(name: str, value: str) -> bool:
    """What is refused when somebody asks for it may still be declined."""
    if is_idle(name) or is_not_missed(name) or name.startswith(_WITHOUT_EFFECT):
        return True
    return refusal_of(name) is not None and value.strip().lower() in ("", "false")


def _with_listeners(applied: dict[str, str]) -> dict[str, str]:
    """Commas may stand behind the last of a list. Where nothing says on what to listen, it is what is advertised, on
    all interfaces."""
    for name in _LISTS:
        if name in applied:
            applied[name] = ",".join(part.strip() for part in applied[name].split(",") if part.strip())
            if not applied[name]:
                del applied[name]
    if "listeners" not in applied:
        advertised = applied.get("advertised.listeners")
        wanted = f"{PLAINTEXT}://:9092" if advertised is None else ",".join(map(_everywhere, advertised.split(",")))
        applied["listeners"] = wanted
    return applied


def _everywhere(advertised: str) -> str:
    name, separator, address = advertised.partition("://")
    port = address.rpartition(":")[2]
    return f"{name}{separator}{Address('0.0.0.0', int(port))}" if port.isdecimal() else advertised
