"""The configs of a topic or a broker, as DescribeConfigs returns them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from ottla.broker.config.definitions import ALL_TOPIC_OPTIONS, SERVER_OPTIONS, SYNONYMS
from ottla.broker.config.options import Kind, Option, Update
from ottla.broker.config.server import ConfigSource, ConfigValue, ServerConfig, option_of
from ottla.broker.config.topic import shown_value, values_of_topic_config
from ottla.cluster.image import Listener

# BrokerIdentity has the values in effect: the port that was bound in place of 0.
OF_IDENTITY = ("listeners", "advertised.listeners")
TESTING = "ottla.testing"
"""Of brokers that the testing kit runs; no property that can be set."""


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None
    source: ConfigSource
    kind: Kind
    read_only: bool
    documentation: str
    synonyms: tuple[ConfigValue, ...]


def topic_entries(overrides: Mapping[str, str], server: ServerConfig) -> Iterator[ConfigEntry]:
    for option in ALL_TOPIC_OPTIONS.values():
        synonyms = tuple(values_of_topic_config(option, overrides, server))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        value = shown_value(option, overrides, server)
        yield ConfigEntry(option.name, value, source, option.kind, False, option.meaning, synonyms)


def broker_entries(server: ServerConfig) -> Iterator[ConfigEntry]:
    """All properties of this broker except those of BrokerIdentity, with the values set at run time for it or for all
    brokers."""
    of_listeners = (each.option() for each in server.listener_properties)
    for option in chain(SERVER_OPTIONS.values(), of_listeners):
        if option.name in OF_IDENTITY:
            continue
        synonyms = tuple(value for each in _family(option) for value in server.values_of(each))
        first = next(server.values_of(option))
        read_only = option.update is Update.READ_ONLY
        # Those of a secret have no value, like itself.
        given = tuple(
            value
            for value in synonyms
            if value.value is not None or (option.is_secret and value.source is not ConfigSource.DEFAULT)
        )
        yield ConfigEntry(option.name, first.value, first.source, option.kind, read_only, option.meaning, given)


def testing_entries(server: ServerConfig) -> Iterator[ConfigEntry]:
    """None of a broker in production."""
    if server.is_testing:
        yield _fixed(TESTING, Kind.BOOLEAN, "true", "Whether the testing kit runs this broker.")


def logger_entries(levels: Mapping[str, str]) -> Iterator[ConfigEntry]:
    for name, level in levels.items():
        source = ConfigSource.DYNAMIC_BROKER_LOGGER
        yield ConfigEntry(name, level, source, Kind.STRING, False, f"The level of the logger {name}.", ())


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """What the command line sets, under the names of Kafka's properties."""

    node_id: int
    listeners: Sequence[Listener]
    advertised_listeners: Sequence[Listener]
    data_dir: str

    def entries(self) -> Iterator[ConfigEntry]:
        yield _fixed("node.id", Kind.INT, str(self.node_id), "Id of this broker in its cluster.")
        yield _fixed("broker.id", Kind.INT, str(self.node_id), "The same as node.id.")
        yield _fixed(
            "listeners", Kind.STRING, _list(self.listeners), "Addresses on which the broker accepts connections."
        )
        yield _fixed(
            "advertised.listeners",
            Kind.STRING,
            _list(self.advertised_listeners),
            "Addresses that clients and other brokers connect to.",
        )
        yield _fixed("log.dirs", Kind.STRING, self.data_dir, "Directory in which the broker stores its logs.")


def _list(listeners: Sequence[Listener]) -> str:
    return ",".join(map(str, listeners))


def _fixed(name: str, kind: Kind, value: str, meaning: str) -> ConfigEntry:
    source = ConfigSource.STATIC_BROKER
    return ConfigEntry(name, value, source, kind, True, meaning, (ConfigValue(name, value, source),))


def cluster_default_entries(server: ServerConfig) -> Iterator[ConfigEntry]:
    """Only the properties that were set at run time for all brokers."""
    for name, value in server.dynamic(of_all_brokers=True).items():
        option = option_of(name)
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        synonyms = (ConfigValue(name, value, source),)
        yield ConfigEntry(name, value, source, option.kind, False, option.meaning, synonyms)


def _family(option: Option[object]) -> tuple[Option[object], ...]:
    """The property and those that stand in for it where it is absent: `log.retention.ms`, `.minutes`, `.hours`."""
    for synonyms in SYNONYMS.values():
        options = tuple(synonym.option() for synonym in synonyms)
        if option in options:
            return options[options.index(option) :]
    return (option,)
