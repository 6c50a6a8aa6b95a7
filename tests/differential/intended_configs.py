"""Differences in the configs of topics and brokers that are meant: what each of `INTENDED` covers."""

import re
from typing import Any

from ottla.broker.config.definitions import SERVER_OPTIONS
from ottla.protocol.errors import ErrorCode
from tests.differential.comparing import Difference, Missing, without_names
from tests.differential.exchange import Exchange


def describes_configs(exchange: Exchange) -> bool:
    return exchange.asked.api.name == "DescribeConfigs"


def is_an_unknown_broker_config(exchange: Exchange, difference: Difference) -> bool:
    return (
        describes_configs(exchange)
        and without_names(difference.path) == "results.configs"
        and isinstance(difference.ours, Missing)
        and difference.theirs["name"] not in SERVER_OPTIONS
    )


def is_a_config_of_ours(exchange: Exchange, difference: Difference) -> bool:
    ours = difference.ours
    return (
        describes_configs(exchange)
        and "results[4/" in difference.path
        and isinstance(difference.theirs, Missing)
        and (ours["name"].startswith(("ottla.", "internal.")) or ours["name"] in THROTTLED_RATES | OF_OTHERS)
    )


DEFAULT_CONFIG = 5
DELETE = 1
# Kafka lists them where they are set.
THROTTLED_RATES = {"leader.replication.throttled.rate", "follower.replication.throttled.rate"}
# What Kafka's authorizer reads, and its broker does not know; and what Kafka 4.4 has.
OF_OTHERS = {
    "super.users",
    "allow.everyone.if.no.acl.found",
    "sasl.oauthbearer.allow.unverified.issuer",
    "sasl.oauthbearer.allow.unverified.audience",
}
# GSSAPI is Kafka's mechanism where none is set; here a listener with SASL names its own, before the start.
OF_LOGINS = {"sasl.enabled.mechanisms", "sasl.mechanism.inter.broker.protocol", "security.inter.broker.protocol"}
OWN_DEFAULTS = {
    "advertised.listeners",
    "controlled.shutdown.max.retries",
    "controlled.shutdown.retry.backoff.ms",
    "listener.security.protocol.map",
    "listeners",
    "log.dirs",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "producer.id.expiration.check.interval.ms",
    "replica.fetch.max.bytes",
}


def removes_min_isr_of_a_broker(exchange: Exchange, difference: Difference) -> bool:
    """It cannot have been set. With anything else about it in the request, both refuse."""
    is_accepted = (difference.ours, difference.theirs) == (ErrorCode.NONE, ErrorCode.INVALID_CONFIG)
    if exchange.asked.api.name != "IncrementalAlterConfigs" or not is_accepted:
        return False
    configs = [each for resource in exchange.asked.request.resources for each in resource.configs]
    found = {each.config_operation for each in configs if each.name == "min.insync.replicas"}
    return bool(re.fullmatch(r"responses\[4/\d+\]\.error_code", difference.path)) and found == {DELETE}


def is_the_brokers_own(exchange: Exchange, difference: Difference) -> bool:
    return (
        describes_configs(exchange)
        and "results[4/" in difference.path
        and any(f"configs[{name}]" in difference.path for name in OWN_DEFAULTS)
    )


# Of these Kafka knows no default, or only under the other names of the same.
DEFAULTS_OF_OURS = {"log.retention.hours", "log.retention.minutes", "log.roll.hours", "log.roll.jitter.hours"}
# Of these a broker here has none: there is no remote storage, and its id is what it is.
DEFAULTS_OF_KAFKA = {"log.local.retention.bytes", "log.local.retention.ms", "broker.id"}


def is_of_logins(exchange: Exchange, difference: Difference) -> bool:
    return (
        describes_configs(exchange)
        and "results[4/" in difference.path
        and any(f"configs[{name}]" in difference.path for name in OF_LOGINS)
    )


def is_of_tls(exchange: Exchange, difference: Difference) -> bool:
    is_of_one = "results[4/" in difference.path and "configs[ssl." in difference.path
    is_type = difference.path.endswith("store.type].value")
    return describes_configs(exchange) and is_of_one and (is_type or difference.path.endswith(".read_only"))


def is_a_synonym(exchange: Exchange, difference: Difference) -> bool:
    if not describes_configs(exchange) or ".synonyms" not in difference.path:
        return False
    if any(isinstance(each, str | int) for each in (difference.ours, difference.theirs)):
        # What differs is not a synonym, but what one says.
        return False
    return _without(difference.ours, DEFAULTS_OF_OURS) == _without(difference.theirs, DEFAULTS_OF_KAFKA)


def _without(synonyms: Any, defaults: set[str]) -> list[Any]:
    """Those that are left of one or several synonyms without these defaults."""
    entries = [] if isinstance(synonyms, Missing) else synonyms if isinstance(synonyms, list) else [synonyms]
    return [each for each in entries if each["source"] != DEFAULT_CONFIG or each["name"] not in defaults]


def is_the_same_number(exchange: Exchange, difference: Difference) -> bool:
    ours, theirs = str(difference.ours), str(difference.theirs)
    is_of_a_config = "configs[" in difference.path and difference.path.endswith(".value")
    is_plain = re.fullmatch(r"\d+", ours) is not None and re.fullmatch(r"\+\d+", theirs) is not None
    return exchange.asked.api.name == "CreateTopics" and is_of_a_config and is_plain and int(ours) == int(theirs)


def is_fixed_here(exchange: Exchange, difference: Difference) -> bool:
    return describes_configs(exchange) and difference.path.endswith("configs[num.replica.fetchers].read_only")
