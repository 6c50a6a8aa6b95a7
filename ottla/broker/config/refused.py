"""Kafka's properties that the broker does not have: those that it refuses, each with the reason, because what they ask
for is not to be had; and those that mean nothing here and stand in many files, as in the sample `server.properties` of
Kafka. The latter are accepted, and one warning lists them. Of a KRaft node's listeners, those of the controller go as
well.
"""

from collections.abc import Iterable, Mapping, Sequence

from ottla.broker.config.options import ConfigError
from ottla.broker.config.server_security import own_part

_NO_TWO_PHASE_COMMIT = "two-phase commit (KIP-939) is not supported; false is accepted"
_NO_STORE_PASSWORD = "key stores and trust stores are PEM, where only the key has a password: ssl.key.password"
_NO_KERBEROS = "GSSAPI is not supported"
_NO_OAUTH_CLIENT = "brokers do not log in to each other by OAUTHBEARER"
_NO_TOKENS = "delegation tokens are not supported"
_NO_KRAFT = "metadata is kept in a metadata store, not in a KRaft controller quorum"
_NO_CONSUMER_PROTOCOL = "consumer groups of the KIP-848, share and streams protocols are not supported"
_INTER_BROKER = "brokers of other versions are not served"
_NO_PLUGINS = "Java classes cannot be loaded"
_NO_TIERED_STORAGE = "tiered storage is not supported"
_QUOTAS_ELSEWHERE = "quotas are set while brokers run, by AlterClientQuotas, as `ottla quotas` and kafka-configs do"
_NO_THRESHOLD = "the controller moves every leadership back to its preferred replica, without a threshold"
_NO_COORDINATOR_SETTINGS = "the group coordinator has no threads, protocols or linger time to configure"
_NO_REPORTERS = "metrics reporters are not supported"
_NO_TELEMETRY = "client telemetry is not supported"
_NO_OLD_FORMATS = "only the record format of Kafka 0.11 and later (magic 2) is supported"

_REASONS = {
    "offsets.commit.required.acks": "offset commits always wait for all in-sync replicas",
    "principal.builder.class": _NO_PLUGINS,
    "sasl.jaas.config": "it is set for a mechanism of a listener, as "
    "listener.name.<listener>.<mechanism>.sasl.jaas.config",
    "java.security.auth.login.config": "files of JAAS are not read: set "
    "listener.name.<listener>.<mechanism>.sasl.jaas.config",
    "ssl.keystore.password": _NO_STORE_PASSWORD,
    "ssl.truststore.password": _NO_STORE_PASSWORD,
    "log.message.format.version": _NO_OLD_FORMATS,
    "log.message.downconversion.enable": _NO_OLD_FORMATS,
    "message.format.version": _NO_OLD_FORMATS,
    "message.downconversion.enable": _NO_OLD_FORMATS,
    "log.message.timestamp.difference.max.ms": "log.message.timestamp.before.max.ms and .after.max.ms replace it",
    "message.timestamp.difference.max.ms": "message.timestamp.before.max.ms and .after.max.ms replace it",
    "ottla.admin.auth": "what the admin listener asks for follows from ottla.admin.tokens.file and "
    "ottla.admin.ssl.client.auth",
    "create.topic.policy.class.name": _NO_PLUGINS,
    "alter.config.policy.class.name": _NO_PLUGINS,
}

_REASON_OF_PREFIX = {
    "ssl.provider": _NO_PLUGINS,
    "ssl.keymanager.": _NO_PLUGINS,
    "ssl.trustmanager.": _NO_PLUGINS,
    "ssl.secure.random.": _NO_PLUGINS,
    "ssl.engine.": _NO_PLUGINS,
    "sasl.kerberos.": _NO_KERBEROS,
    "sasl.oauthbearer.": _NO_OAUTH_CLIENT,
    "sasl.login.": _NO_PLUGINS,
    "sasl.client.": _NO_PLUGINS,
    "sasl.server.callback.": _NO_PLUGINS,
    "security.providers": _NO_PLUGINS,
    "password.encoder.": "passwords are not kept in the metadata store",
    "delegation.token.": _NO_TOKENS,
    "transaction.two.phase.commit.": _NO_TWO_PHASE_COMMIT,
    "metadata.": _NO_KRAFT,
    "zookeeper.": _NO_KRAFT,
    "inter.broker.protocol.": _INTER_BROKER,
    "leader.imbalance.per.": _NO_THRESHOLD,
    "group.consumer.": _NO_CONSUMER_PROTOCOL,
    "group.coordinator.": _NO_COORDINATOR_SETTINGS,
    "group.share.": _NO_CONSUMER_PROTOCOL,
    "group.streams.": _NO_CONSUMER_PROTOCOL,
    "share.": _NO_CONSUMER_PROTOCOL,
    "remote.": _NO_TIERED_STORAGE,
    "local.retention.": _NO_TIERED_STORAGE,
    "log.local.retention.": _NO_TIERED_STORAGE,
    "quota.producer.": _QUOTAS_ELSEWHERE,
    "quota.consumer.": _QUOTAS_ELSEWHERE,
    "client.quota.": _NO_PLUGINS,
    "metric.": _NO_REPORTERS,
    "metrics.": _NO_REPORTERS,
    "kafka.metrics.": _NO_REPORTERS,
    "telemetry.": _NO_TELEMETRY,
}

# What these are about is Kafka's own make, and how it is watched.
_NOT_MISSED = frozenset(
    {
        _NO_KRAFT,
        _NO_CONSUMER_PROTOCOL,
        _INTER_BROKER,
        _NO_THRESHOLD,
        _NO_COORDINATOR_SETTINGS,
        _NO_REPORTERS,
        _NO_TELEMETRY,
        _NO_OLD_FORMATS,
    }
)

# Of `ottla serve`, which says by these what Kafka reads from its file.
_OPTIONS = {"broker.id": "--node-id", "node.id": "--node-id", "log.dir": "--data-dir", "log.dirs": "--data-dir"}
_IDLE = {
    "background.threads",
    "broker.id",
    "early.start.listeners",
    "group.coordinator.threads",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.threads",
    "log.dir",
    "log.dirs",
    "log.flush.scheduler.interval.ms",
    "node.id",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.alter.log.dirs.threads",
    "process.roles",
    "queued.max.request.bytes",
    "queued.max.requests",
}
_IDLE_PREFIXES = ("controller.", "metadata.log.", "share.coordinator.")
# Refused, but where they ask for nothing.
_MAY_BE_FALSE = {"transaction.two.phase.commit.enable"}
# Of brokers, as these measure changes of topics.
_NOT_IDLE_PREFIX = "controller.quota."
_CONTROLLER_LISTENERS = "controller.listener.names"
_LISTENERS = ("listeners", "advertised.listeners")


def unknown_property(name: str, known: Iterable[str], what: str = "property") -> ConfigError:
    """Why `name` cannot be set: an unsupported feature, or an unknown name, with the most similar known one."""
    own = own_part(name)
    reason = refusal_of(name)
    if reason is None and own != name and own in known:
        reason = f"it cannot be set for one listener alone, but for all as {own}"
    if reason is not None:
        return ConfigError(f"{name}: {reason}")
    import difflib  # Only a refused start pays for it.

    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return ConfigError(f"there is no {what} {name}{hint}")


def refusal_of(name: str) -> str | None:
    """Why one of Kafka's properties is refused; None where nothing is known of it."""
    own = own_part(name)
    return _REASONS.get(own) or next(
        (reason for prefix, reason in _REASON_OF_PREFIX.items() if own.startswith(prefix)), None
    )


def is_not_missed(name: str) -> bool:
    """Whether it is refused, and yet a user who brings it from Kafka would miss nothing."""
    return refusal_of(name) in _NOT_MISSED


def is_idle(name: str) -> bool:
    """Whether it is accepted without an effect."""
    return name in _IDLE or (name.startswith(_IDLE_PREFIXES) and not name.startswith(_NOT_IDLE_PREFIX))


def refused_properties() -> dict[str, str]:
    """Every name with its reason; a trailing `*` stands for all names with that prefix."""
    return _REASONS | {f"{prefix}*": reason for prefix, reason in _REASON_OF_PREFIX.items()}


def without_idle_properties(static: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The properties that have an effect, and the names of the others."""
    idle = tuple(name for name, text in static.items() if is_idle(name) or _asks_for_nothing(name, text))
    kept = {name: text for name, text in static.items() if name not in idle}
    return kept | listeners_of_broker(static), idle


def options_for(names: Sequence[str]) -> dict[str, list[str]]:
    """For the log: those of these properties that options stand for, each with its option; empty for none."""
    found = [f"{_OPTIONS[name]} for {name}" for name in names if name in _OPTIONS]
    return {"instead": found} if found else {}


def _asks_for_nothing(name: str, text: str) -> bool:
    return name in _MAY_BE_FALSE and text.strip().lower() == "false"


def listeners_of_broker(static: Mapping[str, str]) -> dict[str, str]:
    """The properties with lists of listeners, those of a controller left out."""
    controllers = {name.strip().upper() for name in static.get(_CONTROLLER_LISTENERS, "").split(",") if name.strip()}
    given = {name: static[name] for name in _LISTENERS if name in static}
    if not controllers:
        return given
    return {
        name: ",".join(each for part in text.split(",") if _listener_name(each := part.strip()) not in controllers)
        for name, text in given.items()
    }


def _listener_name(address: str) -> str:
    return address.partition("://")[0].upper()


def idle_properties() -> list[str]:
    """Every name; a trailing `*` stands for all names with that prefix."""
    return sorted([*_IDLE, *(f"{prefix}*" for prefix in _IDLE_PREFIXES)])
