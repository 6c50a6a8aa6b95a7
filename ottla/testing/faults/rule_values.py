"""The values of rules: text with wildcards, numbers, versions, which request of several, and when; and what is wrong
with a rule, in one sentence."""

import datetime
import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from enum import Enum, auto
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeGuard, cast

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d([T ].*)?")
_COMPARISON: Final = re.compile(r"(>=|<=|>|<)?\s*(\d+)")
_RANGE: Final = re.compile(r"(\d+)\s*-\s*(\d+)")
_EVERY: Final = re.compile(r"every\s+([1-9]\d*)")


class RuleError(ValueError):
    """A rule that cannot be understood, or that could never hit."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about a name that does not exist."""
    names = list(known)
    folded = {each.lower(): each for each in names}
    close = get_close_matches(name.lower(), folded, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {folded[close[0]]!r}?"
    return f", only {', '.join(names)}" if 0 < len(names) <= 20 else ""


class Moment(Enum):
    RULE = auto()
    DURATION = auto()
    TIME = auto()


class ParsedMoment(NamedTuple):
    kind: Moment
    ms: int
    """A duration, or a wall time since 1970."""


def is_whole_number(value: object) -> TypeGuard[int]:
    """JSON's true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def parse_flag(name: str, value: object) -> bool:
    """Raises RuleError."""
    if not isinstance(value, bool):
        raise RuleError(f"{name}: {value!r}, expected true or false")
    return value


def parse_moment(name: str, value: object) -> ParsedMoment:
    """`200ms`, `2s`, `7d`: a duration; `2026-11-23T12:00:00+00:00`: a broker time, without a zone UTC; else the id of a
    rule. Raises RuleError."""
    if not isinstance(value, str) or not value:
        raise RuleError(f"{name}: {value!r}, expected the id of a rule, a duration such as '200ms', or a time")
    duration = _DURATION.fullmatch(value)
    if duration is not None:
        return ParsedMoment(Moment.DURATION, round(float(duration[1]) * _MS[duration[2]]))
    if not _DATE.fullmatch(value):
        return ParsedMoment(Moment.RULE, 0)
    try:
        time = datetime.datetime.fromisoformat(value)
    except ValueError:
        raise RuleError(f"{name}: {value!r} is no time as ISO 8601 has it") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=datetime.UTC)
    return ParsedMoment(Moment.TIME, round(time.timestamp() * 1000))


def parse_patterns(name: str, value: object) -> Callable[[str], bool]:
    """Whether a text is one of these; `*` and `?` stand for others, `/…/` is a regular expression, searched for. Raises
    RuleError."""
    given = as_list(value)
    if not given or not all(isinstance(each, str) for each in given):
        raise RuleError(f"{name}: {value!r}, expected a text or a list of texts")
    if not any(set("*?") & set(each) or _is_expression(each) for each in given):
        return frozenset(given).__contains__
    tests = [_pattern(name, each) for each in given]
    return lambda text: any(test(text) is not None for test in tests)


def parse_numbers(name: str, value: object) -> Callable[[int], bool]:
    """Whether a number is one of these. Raises RuleError."""
    given = as_list(value)
    if not given or not all(map(is_whole_number, given)):
        raise RuleError(f"{name}: {value!r}, expected a number or a list of numbers")
    return frozenset(given).__contains__


def parse_versions(value: object) -> Callable[[int], bool]:
    """`4`, `">=4"`, `"0-3"`, or a list of such. Raises RuleError."""
    given = tuple(as_list(value))
    if not given or not all(isinstance(each, str) or is_whole_number(each) for each in given):
        raise RuleError(f"version: {value!r}, expected a number, '>=4', '0-3' or a list of these")
    return _versions(given)


def parse_nth(value: object) -> Callable[[int], bool]:
    """`3`, `[1, 3]`, `"2-4"`, `"every 3"`: which of the requests that match, from 1 on. Raises RuleError."""
    given = as_list(value)
    tests = [_nth(value, each) for each in given]
    if not tests:
        raise RuleError("nth: an empty list never holds")
    return lambda count: any(test(count) for test in tests)


def as_list(value: object) -> list[Any]:
    """One value is a list of one."""
    return list(cast("Iterable[Any]", value)) if isinstance(value, list | tuple) else [value]


@lru_cache(maxsize=256)
def _versions(given: tuple[int | str, ...]) -> Callable[[int], bool]:
    tests = [_version(each) for each in given]
    return lambda version: any(test(version) for test in tests)


def _version(text: int | str) -> Callable[[int], bool]:
    span = _RANGE.fullmatch(str(text))
    if span is not None:
        return range(int(span[1]), int(span[2]) + 1).__contains__
    comparison = _COMPARISON.fullmatch(str(text))
    if comparison is None:
        raise RuleError(f"version: {text!r}, expected a number, '>=4' or '0-3'")
    bound = int(comparison[2])
    match comparison[1]:
        case ">=":
            return lambda version: version >= bound
        case ">":
            return lambda version: version > bound
        case "<=":
            return lambda version: version <= bound
        case "<":
            return lambda version: version < bound
        case _:
            return lambda version: version == bound


def _nth(whole: object, value: object) -> Callable[[int], bool]:
    if is_whole_number(value) and value >= 1:
        return lambda count: count == value
    if isinstance(value, str):
        span, every = _RANGE.fullmatch(value), _EVERY.fullmatch(value)
        if span is not None and 1 <= int(span[1]) <= int(span[2]):
            return range(int(span[1]), int(span[2]) + 1).__contains__
        if every is not None:
            step = int(every[1])
            return lambda count: count % step == 0
    raise RuleError(f"nth: {whole!r}, expected a number from 1 on, '2-4', 'every 3' or a list of numbers")


def _is_expression(text: str) -> bool:
    return len(text) > 1 and text[0] == text[-1] == "/"


def _pattern(name: str, text: str) -> Callable[[str], object]:
    if _is_expression(text):
        try:
            return re.compile(text[1:-1]).search
        except re.error as error:
            raise RuleError(f"{name}: {text} is no regular expression: {error}") from None
    return re.compile(re.escape(text).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL).fullmatch
