"""Kafka's properties that the broker refuses, each with the reason: what they ask for is not to be had."""

from collections.abc import Iterable

from ottla.broker.config.options import ConfigError

_NO_TWO_PHASE_COMMIT = "two-phase commit (KIP-939) is not supported"
_NO_SECURITY = "TLS, SASL and ACLs are not supported"
_NO_KRAFT = "metadata is kept in a metadata store, not in a KRaft controller quorum"
_NO_CONSUMER_PROTOCOL = "consumer groups of the KIP-848, share and streams protocols are not supported"
_INTER_BROKER = "the protocol between brokers cannot be configured"
_NO_PLUGINS = "Java classes cannot be loaded"
_NO_TIERED_STORAGE = "tiered storage is not supported"
_NO_QUOTAS = "quotas are not supported"
_NO_OLD_FORMATS = "only the record format of Kafka 0.11 and later (magic 2) is supported"

_REASONS = {
    "offsets.commit.required.acks": "offset commits always wait for all in-sync replicas",
    "authorizer.class.name": _NO_SECURITY,
    "super.users": _NO_SECURITY,
    "allow.everyone.if.no.acl.found": _NO_SECURITY,
    "principal.builder.class": _NO_SECURITY,
    "connection.failed.authentication.delay.ms": _NO_SECURITY,
    "connections.max.reauth.ms": _NO_SECURITY,
    "log.message.format.version": _NO_OLD_FORMATS,
    "log.message.downconversion.enable": _NO_OLD_FORMATS,
    "message.format.version": _NO_OLD_FORMATS,
    "message.downconversion.enable": _NO_OLD_FORMATS,
    "log.message.timestamp.difference.max.ms": "log.message.timestamp.before.max.ms and .after.max.ms replace it",
    "message.timestamp.difference.max.ms": "message.timestamp.before.max.ms and .after.max.ms replace it",
    "create.topic.policy.class.name": _NO_PLUGINS,
    "alter.config.policy.class.name": _NO_PLUGINS,
}

_REASON_OF_PREFIX = {
    "listener.": _NO_SECURITY,
    "ssl.": _NO_SECURITY,
    "sasl.": _NO_SECURITY,
    "security.": _NO_SECURITY,
    "password.encoder.": _NO_SECURITY,
    "delegation.token.": _NO_SECURITY,
    "transaction.two.phase.commit.": _NO_TWO_PHASE_COMMIT,
    "metadata.": _NO_KRAFT,
    "zookeeper.": _NO_KRAFT,
    "inter.broker.": _INTER_BROKER,
    "leader.imbalance.per.": "the controller moves every leadership back to its preferred replica, without a threshold",
    "group.consumer.": _NO_CONSUMER_PROTOCOL,
    "group.coordinator.": "the group coordinator has no threads, protocols or linger time to configure",
    "group.share.": _NO_CONSUMER_PROTOCOL,
    "group.streams.": _NO_CONSUMER_PROTOCOL,
    "share.": _NO_CONSUMER_PROTOCOL,
    "remote.": _NO_TIERED_STORAGE,
    "local.retention.": _NO_TIERED_STORAGE,
    "log.local.retention.": _NO_TIERED_STORAGE,
    "quota.": _NO_QUOTAS,
    "client.quota.": _NO_QUOTAS,
    "metric.": "metrics reporters are not supported",
    "metrics.": "metrics reporters are not supported",
    "kafka.metrics.": "metrics reporters are not supported",
    "telemetry.": "client telemetry is not supported",
}


def unknown_property(name: str, known: Iterable[str], what: str = "property") -> ConfigError:
    """Why `name` cannot be set: an unsupported feature, or an unknown name, with the most similar known one."""
    reason = _REASONS.get(name) or next(
        (reason for prefix, reason in _REASON_OF_PREFIX.items() if name.startswith(prefix)), None
    )
    if reason is not None:
        return ConfigError(f"{name}: {reason}")
    import difflib  # Only a refused start pays for it.

    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return ConfigError(f"there is no {what} {name}{hint}")


def refused_properties() -> dict[str, str]:
    """Every name with its reason; a trailing `*` stands for all names with that prefix."""
    return _REASONS | {f"{prefix}*": reason for prefix, reason in _REASON_OF_PREFIX.items()}
