"""Topic configs: which there are, what a topic's own values are worth, and the `LogConfig` they make."""

from collections.abc import Iterator, Mapping
from typing import Any

from ottla.broker.config.definitions import ALL_TOPIC_OPTIONS, SYNONYMS, TOPIC_OPTIONS, Synonym
from ottla.broker.config.options import ConfigError, Option
from ottla.broker.config.refused import unknown_property
from ottla.broker.config.server import ConfigSource, ConfigValue, ServerConfig
from ottla.storage.log_config import LogConfig


def check_topic_configs(configs: Mapping[str, str | None], server: ServerConfig) -> dict[str, str]:
    """The given topic configs in their normal form.

    Raises ConfigError for an unknown name, a value it cannot have, or values that contradict each other."""
    checked: dict[str, str] = {}
    for name, text in configs.items():
        option = ALL_TOPIC_OPTIONS.get(name)
        if option is None:
            raise unknown_property(name, ALL_TOPIC_OPTIONS, "topic config")
        if text is None:
            raise ConfigError(f"{name} has no value")
        checked[name] = option.show(option.parse(text)) or ""
    config = log_config(checked, server)
    if "segment.bytes" in checked and config.segment_bytes < server.internal_segment_bytes_min:
        smallest = server.internal_segment_bytes_min
        raise ConfigError(f"segment.bytes={config.segment_bytes}: expected a whole number of at least {smallest}")
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigError("min.compaction.lag.ms is greater than max.compaction.lag.ms")
    return checked


def log_config(overrides: Mapping[str, str], server: ServerConfig) -> LogConfig:
    """What a log of a topic with these checked configs of its own goes by."""
    if overrides:
        return _log_config(overrides, server)
    config = server.log_config_default
    if config is None:
        config = server.log_config_default = _log_config(overrides, server)
    return config


def _log_config(overrides: Mapping[str, str], server: ServerConfig) -> LogConfig:
    values: dict[str, Any] = {option.attribute: _value(option, overrides, server) for option in TOPIC_OPTIONS.values()}
    values["cleanup_policy"] = frozenset(values["cleanup_policy"])
    return LogConfig(**values, producer_id_expiration_ms=server.producer_id_expiration_ms)


def replication_rules(overrides: Mapping[str, str], server: ServerConfig) -> tuple[int, bool]:
    """`min.insync.replicas` and `unclean.leader.election.enable` of a topic with these configs of its own."""
    min_isr = _value(TOPIC_OPTIONS["min.insync.replicas"], overrides, server)
    unclean = _value(TOPIC_OPTIONS["unclean.leader.election.enable"], overrides, server)
    assert isinstance(min_isr, int), "it is an integer"
    return min_isr, bool(unclean)


def values_of_topic_config(
    option: Option[object], overrides: Mapping[str, str], server: ServerConfig
) -> Iterator[ConfigValue]:
    """Every place that gives a topic's config a value, in order of precedence; values in the unit of their own name."""
    if option.name in overrides:
        yield ConfigValue(option.name, overrides[option.name], ConfigSource.TOPIC)
    for synonym in SYNONYMS[option.name]:
        for value in server.values_of(synonym.option()):
            if value.value is not None:
                yield value


def shown_value(option: Option[object], overrides: Mapping[str, str], server: ServerConfig) -> str | None:
    return option.show(_value(option, overrides, server))


def _value(option: Option[object], overrides: Mapping[str, str], server: ServerConfig) -> object:
    if option.name in overrides:
        return option.parse(overrides[option.name])
    for synonym in SYNONYMS[option.name]:
        value = server.value_of(synonym.option())
        if value is not None:
            return _scaled(synonym, value)
    return option.default


def _scaled(synonym: Synonym, value: object) -> object:
    # -1 hours is "for ever", as -1 ms is.
    return value * synonym.scale if isinstance(value, int) and synonym.scale != 1 and value > 0 else value
