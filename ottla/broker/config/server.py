"""The server properties of one broker: where each value comes from, and what it is now.

A value set for this broker while it runs comes before one set for all brokers, that before the configuration file and
the command line, and those before the default (Kafka's order).
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, cast

from ottla.broker.config.definitions import SERVER_OPTIONS, ServerOptions
from ottla.broker.config.options import ConfigError, ConfigScopeError, Option, Update
from ottla.broker.config.properties import parse_properties, parse_setting
from ottla.broker.config.refused import unknown_property, without_idle_properties
from ottla.broker.config.server_security import LISTENER_LIMITS, ListenerProperty, listener_property
from ottla.storage.log_config import LogConfig

_LIMITS = {option.name for option in LISTENER_LIMITS}


class ConfigSource(IntEnum):
    """The numbers of `config_source` in a DescribeConfigs response."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6


class ConfigValue(NamedTuple):
    """One place that gives a property a value; of several, the first holds."""

    name: str
    value: str | None
    source: ConfigSource


class ServerConfig(ServerOptions):
    """The current values as typed attributes, `log.segment.bytes` as `log_segment_bytes`; they change in place when
    properties are altered while the broker runs."""

    def __init__(self, static: Mapping[str, str] | None = None) -> None:
        """Raises ConfigError with a sentence for every property that is unknown, refused or malformed."""
        self._static, self.without_effect = without_idle_properties(static or {})
        self._dynamic: dict[ConfigSource, dict[str, str]] = {}
        self.is_testing = False
        """Whether the testing kit runs the broker. No property says so, and none can."""
        problems = list(_problems(self._static))
        if problems:
            raise ConfigError("; ".join(problems))
        self.listener_properties: tuple[ListenerProperty, ...] = ()
        """Those that were set for one listener, or a mechanism of it."""
        self._set_values()
        check_together(self)

    @classmethod
    def parse(cls, properties: str | None = None, settings: Sequence[str] = ()) -> "ServerConfig":
        """From the text of a .properties file and `KEY=VALUE` settings, of which the latter hold."""
        static = parse_properties(properties) if properties is not None else {}
        static.update(parse_setting(setting) for setting in settings)
        return cls(static)

    def of_another_broker(self) -> "ServerConfig":
        """The same as given at the start, to be altered by itself from now on."""
        other = ServerConfig(self._static)
        other.without_effect = self.without_effect
        other.is_testing = self.is_testing
        return other

    def set_dynamic(self, *, of_this_broker: Mapping[str, str], of_all_brokers: Mapping[str, str]) -> None:
        """Take the properties altered at run time, which `check_dynamic` has let through, in place of earlier ones."""
        self._dynamic = {
            ConfigSource.DYNAMIC_BROKER: {
                name: text
                for name, text in of_this_broker.items()
                if option_of(name).update is not Update.ONLY_CLUSTER_WIDE
            },
            ConfigSource.DYNAMIC_DEFAULT_BROKER: dict(of_all_brokers),
        }
        self._set_values()

    def check_dynamic(self, values: Mapping[str, str], *, of_all_brokers: bool) -> dict[str, str]:
        """`values` in their normal form. Raises ConfigError where one cannot be altered at run time or is malformed;
        ConfigScopeError where nothing is wrong but that one broker alone would have them."""
        checked = {name: self._checked(name, text) for name, text in values.items()}
        check_together(self.with_dynamic(checked, of_all_brokers=of_all_brokers))
        for name in checked:
            update = option_of(name).update
            if of_all_brokers and update is Update.PER_BROKER:
                raise ConfigError(f"{name} cannot be altered for all brokers, only for one")
            if not of_all_brokers and update is Update.ONLY_CLUSTER_WIDE:
                raise ConfigScopeError(f"{name} cannot be altered for one broker, only for all")
        return checked

    def with_dynamic(self, checked: Mapping[str, str], *, of_all_brokers: bool) -> "ServerConfig":
        """What the configuration would be with these in place of those altered at run time."""
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER if of_all_brokers else ConfigSource.DYNAMIC_BROKER
        trial = ServerConfig(self._static)
        trial._dynamic = {**self._dynamic, source: dict(checked)}
        trial._set_values()
        return trial

    def dynamic(self, *, of_all_brokers: bool) -> Mapping[str, str]:
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER if of_all_brokers else ConfigSource.DYNAMIC_BROKER
        return self._dynamic.get(source, {})

    def values_of(self, option: Option[object]) -> Iterator[ConfigValue]:
        """Every place that gives `option` a value, the one that holds first, the default last."""
        for source, text in self._texts(option):
            yield ConfigValue(option.name, option.show(option.parse(text)), source)
        yield ConfigValue(option.name, option.show(option.default), ConfigSource.DEFAULT)

    def value_of(self, option: Option[object]) -> object:
        value: object = self.__dict__[option.attribute]
        return value

    def listener_value(self, listener: str, mechanism: str | None, name: str) -> object:
        """What was set for this listener alone, or for this mechanism of it; None where nothing was."""
        for each in self.listener_properties:
            if (each.listener, each.mechanism, each.own) == (listener, mechanism, name):
                option = each.option()
                return option.parse(next(self._texts(option))[1])
        return None

    def value_on(self, listener: str, option: Option[object]) -> object:
        """What holds for this listener: its own value, or where it has none, that of all listeners."""
        own = self.listener_value(listener, None, option.name)
        return self.value_of(option) if own is None else own

    def is_set(self, name: str) -> bool:
        """Whether somebody has given the property a value, be it the default's."""
        return next(self._texts(SERVER_OPTIONS[name]), None) is not None

    def names_set(self, prefix: str) -> Iterator[str]:
        """Of the properties with this prefix, those that somebody has given a value."""
        return (name for name in SERVER_OPTIONS if name.startswith(prefix) and self.is_set(name))

    def size_if_set(self, option: Option[int]) -> int | None:
        """The value of a size that somebody has asked for; None for the default, and for -1."""
        first = next(self.values_of(option))  # type: ignore[arg-type]
        value = int(first.value or -1)
        return value if first.source is not ConfigSource.DEFAULT and value > 0 else None

    def _checked(self, name: str, text: str) -> str:
        option = option_of(name)
        if option.update is Update.READ_ONLY:
            raise ConfigError(f"{name} cannot be changed while the broker runs")
        return option.show(option.parse(text)) or ""

    def _texts(self, option: Option[object]) -> Iterator[tuple[ConfigSource, str]]:
        for source in (ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER):
            text = self._dynamic.get(source, {}).get(option.name)
            if text is not None:
                yield source, text
        if option.name in self._static:
            yield ConfigSource.STATIC_BROKER, self._static[option.name]

    def _set_values(self) -> None:
        for option in SERVER_OPTIONS.values():
            first = next(self._texts(option), None)
            self.__dict__[option.attribute] = option.default if first is None else option.parse(first[1])
        names = dict.fromkeys((*self._static, *(name for values in self._dynamic.values() for name in values)))
        self.listener_properties = tuple(filter(None, map(listener_property, names)))
        self.listener_limits = {
            (each.listener, each.own): cast("int", self.listener_value(each.listener, None, each.own))
            for each in self.listener_properties
            if each.own in _LIMITS
        }
        self.log_config_default: LogConfig | None = None
        """That of topics without configs of their own, once somebody has made it of these values."""


NO_ADDRESS = "max.connections.per.ip=0 lets in the addresses of max.connections.per.ip.overrides alone, which is empty"


def check_together(config: ServerConfig) -> None:
    """Raise ConfigError where properties that are well-formed each by itself contradict each other."""
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        raise ConfigError("group.min.session.timeout.ms is greater than group.max.session.timeout.ms")
    if config.log_cleaner_min_compaction_lag_ms > config.log_cleaner_max_compaction_lag_ms:
        raise ConfigError("log.cleaner.min.compaction.lag.ms is greater than log.cleaner.max.compaction.lag.ms")
    if config.log_segment_bytes < config.internal_segment_bytes_min:
        raise ConfigError(
            f"log.segment.bytes={config.log_segment_bytes}: at least {config.internal_segment_bytes_min} expected"
        )
    if config.max_connections_per_ip == 0 and not config.max_connections_per_ip_overrides:
        raise ConfigError(NO_ADDRESS)
    if config.replica_fetch_wait_max_ms > min(config.replica_socket_timeout_ms, config.replica_lag_time_max_ms):
        raise ConfigError(
            "replica.fetch.wait.max.ms is greater than replica.socket.timeout.ms or replica.lag.time.max.ms"
        )


def option_of(name: str) -> Option[object]:
    """Raises ConfigError for a property that there is not."""
    option = SERVER_OPTIONS.get(name)
    if option is not None:
        return option
    of_listener = listener_property(name)
    if of_listener is None:
        raise unknown_property(name, SERVER_OPTIONS)
    return of_listener.option()


def _problems(static: Mapping[str, str]) -> Iterator[str]:
    for name, text in static.items():
        try:
            option_of(name).parse(text)
        except ConfigError as error:
            yield str(error)
