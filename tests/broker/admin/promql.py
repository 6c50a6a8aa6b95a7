"""As much of PromQL as the alert rules use, evaluated on samples that a test makes up.

Where promtool is at hand, a test holds both against each other. Labels are frozensets of pairs, a vector is a dict from
labels to values, and a series a list of (seconds, value).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

LOOK_BACK_S = 300
NAME = "__name__"
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_TOKEN = re.compile(r'\s*("[^"]*"|[a-zA-Z_][\w:]*|\d+[smh]\b|\d+\.?\d*|[=!]~|[=!<>]=|.)')
_LEVELS = (("or",), ("and", "unless"), ("==", "!=", "<", ">", "<=", ">="), ("+", "-"), ("*", "/"))
_AGGREGATIONS: dict[str, Callable[[list[float]], float]] = {"sum": sum, "min": min, "max": max, "count": len}

Labels = frozenset[tuple[str, str]]
Samples = list[tuple[float, float]]
Series = Mapping[Labels, Samples]
Vector = dict[Labels, float]
Value = Vector | float


class Selector(NamedTuple):
    matchers: list[tuple[str, str, str]]
    range_s: int
    offset_s: int

    def chosen(self, series: Series) -> Iterator[tuple[Labels, Samples]]:
        for labels, samples in series.items():
            if all(_matches(dict(labels).get(name, ""), how, text) for name, how, text in self.matchers):
                yield labels, samples


class Call(NamedTuple):
    name: str
    arguments: list[Any]
    by: list[str]


class Binary(NamedTuple):
    operator: str
    left: Any
    right: Any
    on: list[str] | None


def _matches(value: str, how: str, text: str) -> bool:
    found = value == text if how in ("=", "!=") else re.fullmatch(text, value) is not None
    return found == (how in ("=", "=~"))


class Parser:
    def __init__(self, text: str) -> None:
        self._tokens = [each for each in _TOKEN.findall(text) if each.strip()]

    def parse(self) -> Any:
        tree = self._binary(0)
        assert not self._tokens, f"what is left: {self._tokens}"
        return tree

    def _next(self, *expected: str) -> str:
        token = self._tokens.pop(0)
        assert not expected or token in expected, f"{token}, one of {expected} expected"
        return token

    def _is_next(self, *tokens: str) -> bool:
        return bool(self._tokens) and self._tokens[0] in tokens

    def _binary(self, level: int) -> Any:
        if level == len(_LEVELS):
            return self._atom()
        left = self._binary(level + 1)
        while self._is_next(*_LEVELS[level]):
            operator = self._next()
            on = self._names() if self._is_next("on") and self._next() else None
            left = Binary(operator, left, self._binary(level + 1), on)
        return left

    def _names(self) -> list[str]:
        self._next("(")
        names = []
        while not self._is_next(")"):
            names.append(self._next())
            if self._is_next(","):
                self._next()
        self._next(")")
        return names

    def _atom(self) -> Any:
        if self._is_next("("):
            self._next()
            tree = self._binary(0)
            self._next(")")
            return tree
        token = self._next()
        if token[0].isdigit():
            return float(token)
        by = self._names() if self._is_next("by") and self._next() else []
        return self._call(token, by) if self._is_next("(") else self._selector(token)

    def _call(self, name: str, by: list[str]) -> Call:
        self._next("(")
        arguments = []
        while not self._is_next(")"):
            arguments.append(self._binary(0))
            if self._is_next(","):
                self._next()
        self._next(")")
        return Call(name, arguments, by)

    def _selector(self, name: str) -> Selector:
        matchers = [(NAME, "=", name)]
        if self._is_next("{"):
            self._next()
            while not self._is_next("}"):
                matchers.append((self._next(), self._next("=", "!=", "=~", "!~"), self._next().strip('"')))
                if self._is_next(","):
                    self._next()
            self._next("}")
        range_s = offset_s = 0
        if self._is_next("["):
            self._next()
            range_s = _seconds(self._next())
            self._next("]")
        if self._is_next("offset"):
            self._next()
            offset_s = _seconds(self._next())
        return Selector(matchers, range_s, offset_s)


def _seconds(text: str) -> int:
    return int(text[:-1]) * _SECONDS[text[-1]]


def evaluate(expression: str, series: Series, now_s: float) -> Vector:
    value = _value(Parser(expression).parse(), series, now_s)
    assert isinstance(value, dict), "the rule gives no vector"
    return value


def _value(tree: Any, series: Series, now_s: float) -> Value:
    match tree:
        case float():
            return tree
        case Selector():
            return _instant(tree, series, now_s)
        case Binary():
            return _combined(tree, _value(tree.left, series, now_s), _value(tree.right, series, now_s))
        case Call():
            return _called(tree, series, now_s)
    raise AssertionError(f"{tree} is not of the language")


def _instant(selector: Selector, series: Series, now_s: float) -> Vector:
    at_s = now_s - selector.offset_s
    found = {}
    for labels, samples in selector.chosen(series):
        recent = [value for moment, value in samples if at_s - LOOK_BACK_S < moment <= at_s]
        if recent:
            found[labels] = recent[-1]
    return found


def _called(call: Call, series: Series, now_s: float) -> Value:
    if call.name in _AGGREGATIONS:
        return _aggregated(call, _value(call.arguments[0], series, now_s))
    match call.name:
        case "time":
            return now_s
        case "increase" | "rate":
            return _over_range(call.arguments[0], series, now_s, _increase, per_second=call.name == "rate")
        case "changes":
            return _over_range(call.arguments[0], series, now_s, _changes)
        case "predict_linear":
            ahead_s = _value(call.arguments[1], series, now_s)
            assert isinstance(ahead_s, float)
            return _over_range(call.arguments[0], series, now_s, lambda *given: _predicted(*given, ahead_s))
        case "histogram_quantile":
            quantile, buckets = (_value(each, series, now_s) for each in call.arguments)
            assert isinstance(quantile, float)
            assert isinstance(buckets, dict)
            return _quantiles(quantile, buckets)
    raise AssertionError(f"there is no function {call.name}")


def _aggregated(call: Call, value: Value) -> Vector:
    assert isinstance(value, dict)
    groups: dict[Labels, list[float]] = {}
    for labels, each in value.items():
        groups.setdefault(_only(labels, call.by), []).append(each)
    return {labels: float(_AGGREGATIONS[call.name](values)) for labels, values in groups.items()}


def _only(labels: Labels, names: list[str]) -> Labels:
    return frozenset(pair for pair in labels if pair[0] in names)


def _nameless(labels: Labels) -> Labels:
    return frozenset(pair for pair in labels if pair[0] != NAME)


def _over_range(
    selector: Selector,
    series: Series,
    now_s: float,
    fold: Callable[[Samples, float, float], float],
    *,
    per_second: bool = False,
) -> Vector:
    end_s = now_s - selector.offset_s
    start_s = end_s - selector.range_s
    found = {}
    for labels, samples in selector.chosen(series):
        within = [sample for sample in samples if start_s <= sample[0] <= end_s]
        if len(within) > 1:
            value = fold(within, start_s, end_s)
            found[_nameless(labels)] = value / selector.range_s if per_second else value
    return found


def _increase(samples: Samples, start_s: float, end_s: float) -> float:
    """Extrapolated to the whole range, as Prometheus does it."""
    (first_s, first), (last_s, _) = samples[0], samples[-1]
    grown = sum(after if after < before else after - before for (_, before), (_, after) in pairwise(samples))
    sampled_s = last_s - first_s
    apart_s = sampled_s / (len(samples) - 1)
    before_s, after_s = first_s - start_s, end_s - last_s
    if grown > 0:
        before_s = min(before_s, sampled_s * first / grown)
    covered_s = sampled_s + sum(each if each < apart_s * 1.1 else apart_s / 2 for each in (before_s, after_s))
    return grown * covered_s / sampled_s


def _changes(samples: Samples, _start_s: float, _end_s: float) -> float:
    return float(sum(before != after for (_, before), (_, after) in pairwise(samples)))


def _predicted(samples: Samples, _start_s: float, end_s: float, ahead_s: float) -> float:
    moments = [moment - end_s for moment, _ in samples]
    values = [value for _, value in samples]
    mean_moment, mean_value = sum(moments) / len(samples), sum(values) / len(samples)
    spread = sum((moment - mean_moment) ** 2 for moment in moments)
    slope = sum((m - mean_moment) * (v - mean_value) for m, v in zip(moments, values, strict=True)) / spread
    return mean_value + slope * (ahead_s - mean_moment)


def _quantiles(quantile: float, vector: Vector) -> Vector:
    histograms: dict[Labels, list[tuple[float, float]]] = {}
    for labels, count in vector.items():
        bound = float(dict(labels)["le"])
        histograms.setdefault(frozenset(each for each in labels if each[0] != "le"), []).append((bound, count))
    return {labels: _quantile(quantile, sorted(buckets)) for labels, buckets in histograms.items()}


def _quantile(quantile: float, buckets: list[tuple[float, float]]) -> float:
    rank = quantile * buckets[-1][1]
    if not rank:
        return float("nan")
    below_bound = below = 0.0
    for bound, count in buckets:
        if count >= rank:
            return below_bound if bound == float("inf") else _between(rank, below_bound, below, bound, count)
        below_bound, below = bound, count
    raise AssertionError("the last bucket has all")


def _between(rank: float, below_bound: float, below: float, bound: float, count: float) -> float:
    return below_bound + (bound - below_bound) * (rank - below) / (count - below)


_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b if b else float("nan"),
}
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
}


def _combined(tree: Binary, left: Value, right: Value) -> Value:
    def key(labels: Labels) -> Labels:
        return _nameless(labels) if tree.on is None else _only(labels, tree.on)

    if isinstance(left, float) and isinstance(right, float):
        return _ARITHMETIC[tree.operator](left, right)
    if isinstance(left, float):
        assert isinstance(right, dict)
        return {_nameless(labels): _ARITHMETIC[tree.operator](left, value) for labels, value in right.items()}
    if isinstance(right, float):
        pairs = [(labels, value, right) for labels, value in left.items()]
    else:
        others = {key(labels): value for labels, value in right.items()}
        if tree.operator in ("and", "unless"):
            return {each: left[each] for each in left if (key(each) in others) == (tree.operator == "and")}
        if tree.operator == "or":
            own = {key(labels) for labels in left}
            return left | {labels: value for labels, value in right.items() if key(labels) not in own}
        pairs = [(labels, value, others[key(labels)]) for labels, value in left.items() if key(labels) in others]
    if tree.operator in _COMPARISONS:
        return {labels: value for labels, value, other in pairs if _COMPARISONS[tree.operator](value, other)}
    kept = key if tree.on is not None else _nameless
    return {kept(labels): _ARITHMETIC[tree.operator](value, other) for labels, value, other in pairs}
