"""One configuration property: its name, type, bounds and meaning, and how its text is read and shown.

An `Option` is declared once, as a class attribute of a table; an instance of that table holds the value under the same
attribute, so `ServerConfig.num_partitions` is the option and `config.num_partitions` an `int`.
"""

import re
from collections.abc import Callable
from copy import copy
from enum import Enum, IntEnum
from typing import Generic, TypeVar, cast, overload

from ottla.protocol.address import Address
from ottla.security.client import Secret

T = TypeVar("T")

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
NO_LIMIT = -1


_REPLICA = re.compile("([0-9]+:[0-9]+)?")
_JAVA_DOUBLE = re.compile(
    r"(?:(?P<hex>[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)"
    r"|(?P<decimal>[+-]?(?:Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)))(?:(?<!y)[fFdD])?"
)


class ConfigError(ValueError):
    """A property that does not exist, is not supported here, or has a value it cannot have: one plain sentence."""


class ConfigScopeError(ConfigError):
    """A property that can be altered for all brokers together, and not for one."""


class Kind(IntEnum):
    """The numbers are those of `ConfigType` in a DescribeConfigs response."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9
    """A secret: never shown, nor a part of a sentence."""


class Update(Enum):
    """Who may change a property of a running broker."""

    READ_ONLY = "read-only"
    CLUSTER_WIDE = "cluster-wide"
    ONLY_CLUSTER_WIDE = "only cluster-wide"
    """Not for one broker: brokers with different values would contradict each other."""
    PER_BROKER = "per broker"
    """Not for all brokers together: each has its own."""


class Option(Generic[T]):
    """One property. `parse` turns text into a checked value, `show` turns a value into Kafka's text."""

    attribute: str

    def __init__(
        self, name: str, kind: Kind, default: T, meaning: str, *, parse: Callable[[str], T], bounds: str, update: Update
    ) -> None:
        self.name = name
        self.kind = kind
        self.default = default
        self.meaning = meaning
        self.bounds = bounds
        self.update = update
        self._parse = parse

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.attribute = attribute

    @overload
    def __get__(self, instance: None, owner: type) -> "Option[T]": ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object, owner: type) -> "Option[T] | T":
        # Reached only through the class: an instance's own dictionary comes before a descriptor without __set__.
        return self if instance is None else self.default

    def named(self, name: str) -> "Option[T]":
        """The same under another name."""
        option = copy(self)
        option.name = name
        return option

    @property
    def is_secret(self) -> bool:
        return self.kind is Kind.PASSWORD

    def parse(self, text: str) -> T:
        """The value of `text`; ConfigError names the property, what was given and what would do."""
        try:
            return self._parse(text.strip())
        except ValueError as error:
            if self.is_secret:
                raise ConfigError(f"{self.name}: {error}") from None
            raise ConfigError(f"{self.name}={text}: {error}") from None

    def show(self, value: T) -> str | None:
        match value:
            case None | Secret():
                return None
            case bool():
                return "true" if value else "false"
            case Address():
                return str(value)
            case tuple():
                return ",".join(map(str, cast("tuple[object, ...]", value)))
            case _:
                return str(value)


def integer(
    name: str,
    default: int,
    meaning: str,
    *,
    at_least: int = -INT_MAX - 1,
    at_most: int = INT_MAX,
    update: Update = Update.READ_ONLY,
    or_no_limit: bool = False,
) -> Option[int]:
    """`or_no_limit`: -1 too, which is below the bounds."""
    parse, bounds = _whole_number(at_least, at_most, INT_MAX, or_no_limit=or_no_limit)
    return Option(name, Kind.INT, default, meaning, parse=parse, bounds=bounds, update=update)


def long(
    name: str, default: int, meaning: str, *, at_least: int = -LONG_MAX - 1, update: Update = Update.READ_ONLY
) -> Option[int]:
    parse, bounds = _whole_number(at_least, LONG_MAX, LONG_MAX)
    return Option(name, Kind.LONG, default, meaning, parse=parse, bounds=bounds, update=update)


def level(
    name: str, default: int, meaning: str, *, at_least: int, at_most: int, update: Update = Update.READ_ONLY
) -> Option[int]:
    """Of a codec. The default, the codec's own, need not be within the bounds."""

    def parse(text: str) -> int:
        value = _number(text, int, "a whole number")
        if value != default and not at_least <= value <= at_most:
            raise ValueError(f"expected {bounds}")
        return value

    bounds = f"a whole number between {at_least} and {at_most}"
    bounds = bounds if at_least <= default <= at_most else f"{bounds}, or {default}"
    return Option(name, Kind.INT, default, meaning, parse=parse, bounds=bounds, update=update)


def optional_integer(
    name: str, meaning: str, *, at_least: int = -INT_MAX - 1, or_no_limit: bool = False
) -> Option[int | None]:
    parse, bounds = _whole_number(at_least, INT_MAX, INT_MAX, or_no_limit=or_no_limit)
    return Option[int | None](name, Kind.INT, None, meaning, parse=parse, bounds=bounds, update=Update.READ_ONLY)


def optional_long(
    name: str,
    meaning: str,
    *,
    at_least: int = -LONG_MAX - 1,
    update: Update = Update.READ_ONLY,
    or_no_limit: bool = False,
) -> Option[int | None]:
    parse, bounds = _whole_number(at_least, LONG_MAX, LONG_MAX, or_no_limit=or_no_limit)
    return Option[int | None](name, Kind.LONG, None, meaning, parse=parse, bounds=bounds, update=update)


def fraction(name: str, default: float, meaning: str, *, update: Update = Update.READ_ONLY) -> Option[float]:
    def parse(text: str) -> float:
        value = _number(text, java_double, "a number")
        if not 0.0 <= value <= 1.0:
            raise ValueError("expected a number between 0 and 1")
        return value

    return Option(name, Kind.DOUBLE, default, meaning, parse=parse, bounds="[0, 1]", update=update)


def boolean(name: str, default: bool, meaning: str, *, update: Update = Update.READ_ONLY) -> Option[bool]:
    def parse(text: str) -> bool:
        match text.lower():
            case "true":
                return True
            case "false":
                return False
            case _:
                raise ValueError("expected true or false")

    return Option(name, Kind.BOOLEAN, default, meaning, parse=parse, bounds="true, false", update=update)


def always_false(name: str, meaning: str, *, why: str, update: Update = Update.READ_ONLY) -> Option[bool]:
    """A property that users' settings may name, as long as they do not ask for what it stands for."""

    def parse(text: str) -> bool:
        if text.lower() != "false":
            raise ValueError(f"expected false, for {why}")
        return False

    return Option(name, Kind.BOOLEAN, False, meaning, parse=parse, bounds="false", update=update)


def choice(
    name: str, default: str, allowed: tuple[str, ...], meaning: str, *, update: Update = Update.READ_ONLY
) -> Option[str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"expected one of {', '.join(allowed)}")
        return text

    return Option(name, Kind.STRING, default, meaning, parse=parse, bounds=", ".join(allowed), update=update)


def choices(
    name: str,
    default: tuple[str, ...],
    allowed: tuple[str, ...],
    meaning: str,
    *,
    may_be_empty: bool = False,
    update: Update = Update.READ_ONLY,
) -> Option[tuple[str, ...]]:
    """A comma-separated list of at least one of `allowed`, or of none where that means something."""

    def parse(text: str) -> tuple[str, ...]:
        items = tuple(dict.fromkeys(item.strip() for item in text.split(","))) if text else ()
        if not (items or may_be_empty) or any(item not in allowed for item in items):
            raise ValueError(f"expected a list of {', '.join(allowed)}")
        return items

    bounds = f"a list of {', '.join(allowed)}"
    return Option(name, Kind.LIST, default, meaning, parse=parse, bounds=bounds, update=update)


def throttled_replicas(name: str) -> Option[tuple[str, ...]]:
    """A list of PARTITION:BROKER, or * for all."""

    def parse(text: str) -> tuple[str, ...]:
        items = tuple(item.strip() for item in text.split(",")) if text else ()
        if items != ("*",) and not all(_REPLICA.fullmatch(item) for item in items):
            raise ValueError("expected a list of PARTITION:BROKER, or *")
        return items

    side = name.partition(".")[0]
    meaning = f"Replicas for whose brokers, as {side}s, {side}.replication.throttled.rate holds."
    bounds = "a list of PARTITION:BROKER, or *"
    return Option(name, Kind.LIST, (), meaning, parse=parse, bounds=bounds, update=Update.READ_ONLY)


def optional_text(name: str, meaning: str, *, update: Update = Update.READ_ONLY) -> Option[str | None]:
    def parse(text: str) -> str | None:
        return text or None

    return Option[str | None](name, Kind.STRING, None, meaning, parse=parse, bounds="any text", update=update)


def secret_option(name: str, meaning: str) -> Option[Secret | None]:
    return Option[Secret | None](
        name, Kind.PASSWORD, None, meaning, parse=Secret, bounds="a secret", update=Update.READ_ONLY
    )


def text_option(
    name: str, default: str, meaning: str, *, parse: Callable[[str], str], bounds: str, update: Update
) -> Option[str]:
    return Option(name, Kind.STRING, default, meaning, parse=parse, bounds=bounds, update=update)


def options_of(table: type) -> dict[str, Option[object]]:
    """Every option a table and its bases declare, by Kafka's name, in the order of declaration."""
    found: dict[str, Option[object]] = {}
    for base in reversed(table.__mro__):
        for value in vars(base).values():
            if isinstance(value, Option):
                found[value.name] = value
    return found


def _whole_number(
    at_least: int, at_most: int, widest: int, *, or_no_limit: bool = False
) -> tuple[Callable[[str], int], str]:
    bounds = _bounds_text(at_least, at_most, widest) + (f", or {NO_LIMIT}" if or_no_limit else "")

    def parse(text: str) -> int:
        value = _number(text, int, "a whole number")
        if not at_least <= value <= at_most and not (or_no_limit and value == NO_LIMIT):
            raise ValueError(f"expected a whole number {bounds}")
        return value

    return parse, bounds


def _bounds_text(at_least: int, at_most: int, widest: int) -> str:
    if at_most < widest:
        return f"between {at_least} and {at_most}"
    if at_least > -widest - 1:
        return f"of at least {at_least}"
    return f"between {at_least} and {at_most}"


def java_double(text: str) -> float:
    """As Double.parseDouble reads it: with the suffixes of Java's literals, and hexadecimal with an exponent.

    Not a number is not read: it would be above and below every bound."""
    found = _JAVA_DOUBLE.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return float.fromhex(found["hex"]) if found["hex"] else float(found["decimal"])


def _number(text: str, kind: Callable[[str], T], expected: str) -> T:
    # Python reads "1_000" as a number, Java does not; both read the digits of any script.
    if "_" in text:
        raise ValueError(f"expected {expected}")
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"expected {expected}") from None
