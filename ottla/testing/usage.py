"""Wrong usage of a handle is one sentence: which argument, what came, and what is wanted.

`checks_usage` stands before the public methods of a handle, of those that block and of those to await, of brokers in
this process and in another one. It looks at each argument by its name, before the call does anything: a wrong type is a
TypeError, a wrong value a ValueError. What Python says by itself, of arguments that are missing or too many, is left as
it is. An argument may be None where that is its default, or of its type.

Errors of the kit and of Kafka lose their traceback on the way out: those that pytest shows end where the test has
called, and not in the loop of the brokers. Other errors are those of a test's own function, or a bug: they keep theirs.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Final, TypeVar

from ottla.protocol.records.compression import Codec
from ottla.protocol.records.record import Record
from ottla.timer.clock import TimerKind

Handle = TypeVar("Handle")
Check = Callable[[str, Any], None]
"""Raises TypeError or ValueError, for an argument by its name."""
SHOWN_CHARACTERS: Final = 60
CODECS: Final = tuple(codec.name.lower() for codec in Codec)
KINDS: Final = tuple(kind.value for kind in TimerKind)
OWN: Final = __name__.partition(".")[0] + "."
OPTIONS: Final = "options"
"""The name of what takes all other keywords, where these are checked too."""


def checks_usage(handle: type[Handle]) -> type[Handle]:
    """For the class of a handle."""
    for name, member in list(vars(handle).items()):
        if name.startswith("_"):
            continue
        if inspect.isfunction(member):
            setattr(handle, name, _checked(member))
        elif isinstance(member, property) and member.fget is not None:
            setattr(handle, name, member.getter(_checked(member.fget)))
    return handle


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    usage = _MethodUsage(method)
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def awaited(*given: Any, **named: Any) -> Any:
            __tracebackhide__ = True
            usage.check(given, named)
            try:
                return await method(*given, **named)
            except Exception as error:
                raise _for_the_caller(error)  # noqa: B904 - it is the same error

        return awaited

    @functools.wraps(method)
    def called(*given: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        usage.check(given, named)
        try:
            return method(*given, **named)
        except Exception as error:
            raise _for_the_caller(error)  # noqa: B904 - it is the same error

    return called


def _for_the_caller(error: Exception) -> Exception:
    return error.with_traceback(None) if type(error).__module__.startswith(OWN) else error


class _MethodUsage:
    """What the arguments of one method must be."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method.__name__
        self._signature = inspect.signature(method)
        self._parameters = {
            name: (CHECKS[key], parameter)
            for name, parameter in self._signature.parameters.items()
            for key in (f"{self._method}.{name}", name)
            if key in CHECKS
        }
        last = next(reversed([*self._signature.parameters.values()]), None)
        self._has_options = last is not None and last.kind is last.VAR_KEYWORD and last.name == OPTIONS

    def check(self, given: Sequence[Any], named: Mapping[str, Any]) -> None:
        """Raises TypeError and ValueError, without the frames of the check."""
        __tracebackhide__ = True
        try:
            self._check(given, named)
        except (TypeError, ValueError) as error:
            raise error.with_traceback(None)  # noqa: B904 - it is the same error

    def _check(self, given: Sequence[Any], named: Mapping[str, Any]) -> None:
        if not self._parameters and not self._has_options:
            return
        try:
            arguments = self._signature.bind(*given, **named).arguments
        except TypeError:
            # The call raises it, with the name of the method.
            return
        for name, (check, parameter) in self._parameters.items():
            value = arguments.get(name)
            if name in arguments and (value is not None or not _may_be_none(parameter)):
                check(name, value)
        for name, value in arguments.get(OPTIONS, {}).items() if self._has_options else ():
            if name not in PRODUCE_OPTIONS:
                raise TypeError(f"there is no option {name!r} of {self._method}, only {', '.join(PRODUCE_OPTIONS)}")
            check, may_be_none = PRODUCE_OPTIONS[name]
            if value is not None or not may_be_none:
                check(name, value)


def _may_be_none(parameter: inspect.Parameter) -> bool:
    return parameter.default is None or "None" in str(parameter.annotation)


def wrong(name: str, value: object, expected: str) -> str:
    """The sentence."""
    shown = repr(value)
    return f"{name}={shown if len(shown) <= SHOWN_CHARACTERS else shown[:SHOWN_CHARACTERS] + '…'}: expected {expected}"


def _is(value: object, *kinds: type) -> bool:
    """`isinstance`, which a type checker learns nothing from."""
    return isinstance(value, kinds)


def _of(kinds: type | tuple[type, ...], expected: str) -> Check:
    def check(name: str, value: Any) -> None:
        if not isinstance(value, kinds):
            raise TypeError(wrong(name, value, expected))

    return check


def _is_whole(value: Any) -> bool:
    return _is(value, Integral) and not _is(value, bool)


def _whole_number(name: str, value: Any, expected: str = "a whole number") -> None:
    if not _is_whole(value):
        raise TypeError(wrong(name, value, expected))


def _timestamp(name: str, value: Any) -> None:
    _whole_number(name, value, "milliseconds since 1970, a whole number")


def _number(unit: str) -> Check:
    expected = f"a number{unit}"

    def check(name: str, value: Any) -> None:
        if _is(value, bool) or not _is(value, Real):
            raise TypeError(wrong(name, value, expected))

    return check


def _one_of(allowed: Sequence[Any]) -> Check:
    def check(name: str, value: Any) -> None:
        # Not `in`, for which False is 0.
        if not any(type(value) is not bool and value == each for each in allowed):
            raise ValueError(wrong(name, value, f"one of {', '.join(map(str, allowed))}"))

    return check


def _whole_numbers_by(key: str, is_key: Callable[[Any], bool], expected: str) -> Check:
    def check(name: str, value: Any) -> None:
        if not _is(value, Mapping):
            raise TypeError(wrong(name, value, expected))
        for each, number in value.items():
            if not is_key(each):
                raise TypeError(wrong(name, value, f"{expected}; {each!r} is no {key}"))
            if not _is_whole(number):
                raise TypeError(wrong(f"{name}[{each!r}]", number, "a whole number"))

    return check


def _records(name: str, value: Any) -> None:
    if _is(value, str, bytes, bytearray, memoryview, Mapping, Record) or not hasattr(value, "__iter__"):
        raise TypeError(wrong(name, value, "a list of records, as [b'book'] or [(b'alice', b'book')]"))
    if _is(value, Iterator):
        raise TypeError(wrong(name, value, "a list of records: an iterator has no length"))
    for index, each in enumerate(value):
        if not _is_record(each):
            expected = "bytes, a pair of key and value that are bytes or None, or a Record"
            raise TypeError(wrong(f"{name}[{index}]", each, expected))
        if _is(each, Record):
            _headers(f"{name}[{index}].headers", each.headers)


def _is_record(value: Any) -> bool:
    if _is(value, bytes, Record):
        return True
    is_pair = _is(value, tuple, list) and len(value) == 2
    return is_pair and all(each is None or _is(each, bytes) for each in value)


def _headers(name: str, value: Any) -> None:
    expected = "a list of pairs of a name, which is text, and a value, which is bytes or None"
    if _is(value, str, bytes, Mapping) or not _is(value, Sequence):
        raise TypeError(wrong(name, value, expected))
    for each in value:
        is_pair = _is(each, tuple, list) and len(each) == 2
        if not (is_pair and _is(each[0], str) and (each[1] is None or _is(each[1], bytes))):
            raise TypeError(wrong(name, each, expected))


def _upto(name: str, value: Any) -> None:
    if not _is(value, str):
        _whole_numbers_by("partition", _is_whole, "'end', or offsets by partition, as {0: 5}")(name, value)


def _producer(name: str, value: Any) -> None:
    numbers: Sequence[Any] = value if _is(value, tuple, list) else ()
    if len(numbers) != 3 or not all(map(_is_whole, numbers)):
        raise TypeError(wrong(name, value, "producer id, epoch and first sequence, as (5, 0, 0)"))


def _classes(name: str, value: Any) -> None:
    for each in value:
        if not _is(each, type):
            raise TypeError(wrong(name, each, "classes of ottla.coordinator.facts"))


def _rules(name: str, value: Any) -> None:
    if _is(value, str, Mapping) or not hasattr(value, "__iter__"):
        raise TypeError(wrong(name, value, "a list of rules"))
    for index, each in enumerate(() if _is(value, Iterator) else value):
        _rule(f"{name}[{index}]", each)


def _rule(name: str, value: Any) -> None:
    if not _is(value, str, Mapping):
        raise TypeError(wrong(name, value, "a mapping, or a line of text"))


def _texts(expected: str) -> Check:
    """Text alone is judged by the method."""

    def check(name: str, value: Any) -> None:
        is_iterable = _is(value, Iterable)
        if not is_iterable or not (_is(value, Iterator) or all(_is(each, str) for each in value)):
            raise TypeError(wrong(name, value, expected))

    return check


def _function(name: str, value: Any) -> None:
    if not callable(value):
        raise TypeError(wrong(name, value, "a function that takes the handle"))


_text: Final = _of(str, "text")
_mapping: Final = _of(Mapping, "a mapping of names to values")
_moment: Final = _of(datetime, "a datetime")
_path: Final = _of((str, Path), "the path of a file")
_by_partition: Final = _whole_numbers_by("partition", _is_whole, "offsets by partition, as {0: 5}")
_by_topic: Final = _whole_numbers_by("topic", lambda key: _is(key, str), "counts by topic, as {'orders': 2}")

PRODUCE_OPTIONS: Final[Mapping[str, tuple[Check, bool]]] = {
    "partition": (_whole_number, True),
    "timestamp": (_timestamp, True),
    "headers": (_headers, False),
    "acks": (_one_of((-1, 0, 1)), False),
    "compression": (_one_of(CODECS), False),
    "as_producer": (_producer, True),
}
"""Each with whether it may be None; what they are: `ottla.testing.writing.ProduceOptions`."""
CHECKS: Final[Mapping[str, Check]] = {
    **dict.fromkeys(("topic", "name", "group_id", "member", "reason", "describe", "text"), _text),
    **dict.fromkeys(
        ("partitions", "replication_factor", "partition", "index", "count", "start", "stop", "limit"), _whole_number
    ),
    **dict.fromkeys(
        ("before", "generation", "hits", "wait_until_stable.members", "node", "node_id", "to"), _whole_number
    ),
    "wait_until_lag.lag": _whole_number,
    **dict.fromkeys(("within", "after"), _number(" of seconds")),
    "ms": _number(" of milliseconds"),
    "rate": _number(""),
    "configs": _mapping,
    "records": _records,
    "assigned": _by_topic,
    "offsets": _by_partition,
    "upto": _upto,
    "predicate": _function,
    "kinds": _classes,
    "rules": _rules,
    "rule": _rule,
    "names": _texts("a set, as {'tokens'}"),
    "sessions": _texts("spare, expire, or a set of member ids or client ids"),
    "run_next.kind": _one_of(KINDS),
    **dict.fromkeys(("at", "when"), _moment),
    "path": _path,
    "seed": _of((str, Path, Mapping), "the path of a file, or a mapping"),
}
"""By the name of an argument, or METHOD.ARGUMENT."""
