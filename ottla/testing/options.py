"""The options of embedded brokers, as keywords: unknown ones and wrong values are refused with a sentence."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, cast

from ottla.broker.config.options import ConfigError
from ottla.broker.config.server import ServerConfig
from ottla.broker.logging import LEVELS, LOG_FORMATS, LazyLog
from ottla.protocol.address import Address, parse_address

if TYPE_CHECKING:
    from ottla.coordinator.facts import Fact

Embedding = TypeVar("Embedding")


class BrokerOptions(TypedDict, total=False):
    """Options, all of them keywords:

    listen: HOST:PORT; by default a free port of 127.0.0.1, unless `settings` name the listeners of a broker. Brokers of
        a cluster take this port and those after it.
    advertise: HOST:PORT that clients connect to, where it differs from the address listened on.
    data_dir: a directory that stays; what an earlier broker left there is served again. By default a temporary one.
    settings: Kafka's server properties: `{"group.initial.rebalance.delay.ms": 0, "num.partitions": 3}`.
    node_id: of a cluster, that of its first broker.
    log_level: debug, info, warning or error.
    log_format: console or json.
    fault_seed: a number that the chances and jitter of fault rules follow from (`faults`, docs/faults.md).
    observers: functions, called on the broker's loop with every fact about its groups (`ottla.coordinator.facts`); they
        must not block. The broker logs an observer's exception, once for each kind of fact, and continues.

    A wrong value raises ConfigError when the object is made.
    """

    listen: str | None
    advertise: str | None
    data_dir: str | Path | None
    settings: Mapping[str, object]
    node_id: int
    log_level: str
    log_format: str
    fault_seed: int
    observers: "Iterable[Callable[[Fact], object]]"


DEFAULTS: Final[BrokerOptions] = {
    "listen": None,
    "advertise": None,
    "data_dir": None,
    "settings": {},
    "node_id": 0,
    "log_level": "warning",
    "log_format": "console",
    "fault_seed": 0,
    "observers": (),
}


class ParsedOptions:
    """What BrokerOptions say. Raises TypeError for an unknown keyword and ConfigError for a wrong value."""

    def __init__(self, given: Mapping[str, object], beside: tuple[str, ...] = ()) -> None:
        """`beside`: options that the caller takes for itself."""
        for name in given:
            if name not in DEFAULTS:
                raise TypeError(_unknown_option(name, (*beside, *DEFAULTS)))
        options: dict[str, Any] = {**DEFAULTS, **given}
        self.config = ServerConfig(_settings(options["settings"]))
        self.listen = _address("listen", options["listen"], port_min=0)
        self.advertise = _address("advertise", options["advertise"], port_min=1)
        self.data_dir = _directory(options["data_dir"])
        self.node_id = _number("node_id", options["node_id"], lowest=0)
        _must_be_one_of("log_level", options["log_level"], LEVELS)
        _must_be_one_of("log_format", options["log_format"], LOG_FORMATS)
        self.log = LazyLog(options["log_format"], options["log_level"])
        self.fault_seed = _number("fault_seed", options["fault_seed"], lowest=0)
        self.observers = _observers(options["observers"])


def shows_options(embedding: type[Embedding]) -> type[Embedding]:
    """Gives `help()` and editors the options by name, in place of `**options`."""
    initialize = vars(embedding)["__init__"]
    signature = inspect.signature(initialize)
    keyword = inspect.Parameter.KEYWORD_ONLY
    named = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    named += [inspect.Parameter(name, keyword, default=default) for name, default in DEFAULTS.items()]
    initialize.__signature__ = signature.replace(parameters=named)
    initialize.__doc__ = BrokerOptions.__doc__
    return embedding


def checked_count(brokers: object, listen: Address | None) -> int:
    """Of the brokers of a cluster. Raises ConfigError."""
    count = _number("brokers", brokers, lowest=1)
    if listen is not None and listen.port and listen.port + count > 65536:
        raise ConfigError(f"listen={listen}: the {count - 1} ports that follow it are not all below 65536")
    return count


def _unknown_option(name: str, known: tuple[str, ...]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1)
    if close:
        return f"there is no option {name!r}; did you mean {close[0]!r}?"
    hint = f"; write settings={{{name.replace('_', '.')!r}: ...}} for a server property" if "_" in name else ""
    return f"there is no option {name!r}, only {', '.join(known)}{hint}"


def _settings(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"settings={value!r}: expected a mapping of property names to values")
    return {str(name): _text(each) for name, each in cast("Mapping[object, object]", value).items()}


def _text(value: object) -> str:
    """Settings are text; Python's booleans and lists are written as Kafka writes them."""
    match value:
        case bool():
            return str(value).lower()
        case list() | tuple():
            return ",".join(map(_text, cast("Sequence[object]", value)))
        case _:
            return str(value)


def _address(name: str, value: object, *, port_min: int) -> Address | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ConfigError(f"{name}={value!r}: expected HOST:PORT as text")
    try:
        return parse_address(value, port_min=port_min)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None


def _directory(value: object) -> Path | None:
    if value is None or isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value:
        raise ConfigError(f"data_dir={value!r}: expected the path of a directory")
    return Path(value)


def _number(name: str, value: object, *, lowest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value < 2**31:
        raise ConfigError(f"{name}={value!r}: expected a whole number from {lowest} to {2**31 - 1}")
    return value


def _must_be_one_of(name: str, value: object, allowed: Iterable[str]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise ConfigError(f"{name}={value!r}: expected one of {', '.join(allowed)}")


def _observers(value: Any) -> "tuple[Callable[[Fact], object], ...]":
    wrong = "observers: expected functions that take a fact, as in observers=[print]"
    try:
        observers: tuple[Any, ...] = tuple(value)
    except TypeError:
        raise ConfigError(wrong) from None
    if not all(callable(each) for each in observers):
        raise ConfigError(wrong)
    return observers
