"""What a fault rule does with a request: one small class per action, the same as JSON objects.

    {"error": "REBALANCE_IN_PROGRESS"}   Error("REBALANCE_IN_PROGRESS")
    {"delay": 200, "stage": "after"}     Delay(200, stage="after")
    {"drop": "response"}                 Drop("response")

The key that names the action has the value of its first field; further keys are its options. Times are milliseconds.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Final, cast

from ottla.protocol.errors import ErrorCode
from ottla.testing.faults.rule_values import RuleError, is_whole_number, nearest, parse_flag

MS_MAX: Final = 3_600_000
BYTES_MAX: Final = 1 << 30


@dataclass(frozen=True)
class Action:
    """Base of the actions."""

    key: ClassVar[str]
    is_terminal: ClassVar[bool] = True
    """Ends the search for rules; such a rule acts once unless it says how often."""

    def to_json(self) -> dict[str, Any]:
        """As rules in JSON have it. Raises RuleError for what is Python only."""
        first, *options = fields(self)
        written = {self.key: getattr(self, first.name)}
        for option in options:
            value = getattr(self, option.name)
            if option.default is MISSING or value != option.default:
                written[option.name] = value
        return written


@dataclass(frozen=True)
class BareAction(Action):
    """Base of those that have a name and no value: in JSON it is true."""

    on: bool = True

    def __post_init__(self) -> None:
        if self.on is not True:
            raise RuleError(f"{self.key}: {self.on!r}, expected true")


@dataclass(frozen=True)
class Error(Action):
    """The request fails with a code, for the matched partitions where it names some, and is not applied. `after`: it is
    applied all the same. `at="top"`: the whole request fails, where the response has a place for that."""

    key = "error"
    code: str
    after: bool = False
    at: str = ""

    def __post_init__(self) -> None:
        # JSON may have something else than text there, which is no key.
        if self.code not in [*ErrorCode.__members__] or self.code == ErrorCode.NONE.name:
            raise RuleError(f"error: there is no error {self.code!r}{nearest(str(self.code), ErrorCode.__members__)}")
        _one_of("at", self.at, ("", "top"))
        parse_flag("after", self.after)

    @property
    def error_code(self) -> ErrorCode:
        return ErrorCode[self.code]


@dataclass(frozen=True)
class Delay(Action):
    """The request is served, or its answer sent, so much later; up to `jitter` more, from the rule's own generator."""

    key = "delay"
    is_terminal = False
    ms: int
    jitter: int = 0
    stage: str = "before"

    def __post_init__(self) -> None:
        _number("delay", self.ms, 0, MS_MAX)
        _number("jitter", self.jitter, 0, MS_MAX)
        _one_of("stage", self.stage, ("before", "after"))


@dataclass(frozen=True)
class Hold(BareAction):
    """The request waits, not applied, until the rule's `release()`."""

    key = "hold"


@dataclass(frozen=True)
class Drop(Action):
    """`request`: it is not applied; `response`: it is. Either way there is no answer, and the connection stays."""

    key = "drop"
    what: str

    def __post_init__(self) -> None:
        _one_of("drop", self.what, ("request", "response"))


@dataclass(frozen=True)
class Disconnect(Action):
    """The connection ends, `before` or `after` the request is applied; `reset`: by a reset instead of an end."""

    key = "disconnect"
    when: str
    reset: bool = False

    def __post_init__(self) -> None:
        _one_of("disconnect", self.when, ("before", "after"))
        parse_flag("reset", self.reset)


@dataclass(frozen=True)
class TruncateResponse(Action):
    """So many bytes of the answer, then the end of the connection."""

    key = "truncate"
    size: int

    def __post_init__(self) -> None:
        _number("truncate", self.size, 0, BYTES_MAX)


@dataclass(frozen=True)
class Corrupt(Action):
    """`crc`: a fetched batch with a wrong checksum; `length`: a frame longer than it is; `bytes`: flipped bits."""

    key = "corrupt"
    what: str

    def __post_init__(self) -> None:
        _one_of("corrupt", self.what, ("crc", "length", "bytes"))


@dataclass(frozen=True)
class Duplicate(BareAction):
    """The same answer twice."""

    key = "duplicate"


@dataclass(frozen=True)
class Bandwidth(Action):
    """So many bytes a second, of the `response` or the `request`."""

    key = "bandwidth"
    is_terminal = False
    bytes_per_s: int
    direction: str = "response"

    def __post_init__(self) -> None:
        _number("bandwidth", self.bytes_per_s, 1, BYTES_MAX)
        _one_of("direction", self.direction, ("request", "response"))


@dataclass(frozen=True)
class Slice(Action):
    """Segments of `size` bytes, `delay` ms apart."""

    key = "slice"
    is_terminal = False
    size: int
    delay: int
    direction: str = "response"

    def __post_init__(self) -> None:
        _number("slice.size", self.size, 1, BYTES_MAX)
        _number("slice.delay", self.delay, 0, MS_MAX)
        _one_of("direction", self.direction, ("request", "response"))

    def to_json(self) -> dict[str, Any]:
        written: dict[str, Any] = {"slice": {"size": self.size, "delay": self.delay}}
        if self.direction != "response":
            written["direction"] = self.direction
        return written


@dataclass(frozen=True)
class ThrottleClient(Action):
    """The answer says that the client shall rest so long; with `enforce`, its connection rests too, as by a quota."""

    key = "throttle"
    ms: int
    enforce: bool = False

    def __post_init__(self) -> None:
        _number("throttle", self.ms, 0, MS_MAX)
        parse_flag("enforce", self.enforce)


@dataclass(frozen=True)
class Rewrite(Action):
    """Other values in the answer: `{"throttle_time_ms": 5, "topics.partitions.error_code": 3}`, by the names of the
    message tables; of arrays, in all elements. `{"versions": {"Fetch": "4-11"}}`: other versions in ApiVersions."""

    key = "rewrite"
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if not isinstance(self.values, Mapping) or not self.values:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise RuleError(f"rewrite: {self.values!r} is no object of field names and values")


@dataclass(frozen=True)
class Observe(BareAction):
    """Nothing happens but that the hit is counted."""

    key = "observe"
    is_terminal = False


@dataclass(frozen=True)
class Call(Action):
    """`await function(request, proceed)` decides: it may await `proceed()`, which serves the request and gives the
    response, return a response, or raise a KafkaError. None, without having proceeded, is no answer."""

    key = "call"
    function: Callable[[Any, Callable[[], Awaitable[Any]]], Awaitable[Any]]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise RuleError("call: expected a function (request, proceed)")

    def to_json(self) -> dict[str, Any]:
        raise RuleError("call: a function is Python only")


_CLASSES: Final[tuple[type[Action], ...]] = (
    Error,
    Delay,
    Hold,
    Drop,
    Disconnect,
    TruncateResponse,
    Corrupt,
    Duplicate,
    Bandwidth,
    Slice,
    ThrottleClient,
    Rewrite,
    Observe,
    Call,
)
ACTIONS: Final[dict[str, type[Action]]] = {each.key: each for each in _CLASSES}
BARE: Final = frozenset(name for name, each in ACTIONS.items() if issubclass(each, BareAction))
OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    name: ("direction",) if each is Slice else tuple(option.name for option in fields(each)[1:])
    for name, each in ACTIONS.items()
}


def parse_action(given: object) -> Action:
    """An action as an object of this module, an object of JSON, or the bare name of one without a value. Raises
    RuleError."""
    if isinstance(given, Action):
        return given
    if isinstance(given, str):
        given = {given: True}
    if not isinstance(given, Mapping):
        raise RuleError(f"do: {given!r} is no action, expected one of {', '.join(ACTIONS)}")
    described = {str(name): value for name, value in cast("Mapping[object, Any]", given).items()}
    named = [name for name in described if name in ACTIONS]
    if len(named) != 1:
        unknown = next((name for name in described if name not in ACTIONS), "")
        if not named and unknown:
            raise RuleError(f"do: there is no action {unknown!r}{nearest(unknown, ACTIONS)}")
        raise RuleError(f"do: one action in a rule, not {len(named)} ({', '.join(named)})")
    (name,) = named
    value = described.pop(name)
    for option in described:
        if option not in OPTIONS[name]:
            raise RuleError(f"do: {name} has no option {option!r}{nearest(option, OPTIONS[name])}")
    if name == Slice.key:
        return _parse_slice(value, described)
    made: Any = ACTIONS[name]
    return cast("Action", made(value, **described))


def _parse_slice(value: object, options: dict[str, Any]) -> Action:
    if not isinstance(value, Mapping) or {*cast("Mapping[str, Any]", value)} != {"size", "delay"}:
        raise RuleError(f"slice: {value!r}, expected an object with size and delay")
    return Slice(**cast("Mapping[str, Any]", value), **options)


def _number(name: str, value: object, lowest: int, highest: int) -> None:
    if not is_whole_number(value) or not lowest <= value <= highest:
        raise RuleError(f"{name}: {value!r}, expected a whole number from {lowest} to {highest}")


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise RuleError(f"{name}: {value!r}, expected {' or '.join(each for each in allowed if each)}")
