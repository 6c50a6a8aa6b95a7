"""A mapping of which a changed copy is cheap, for pictures of a cluster that change one topic at a time."""

from collections.abc import Iterator, Mapping
from math import isqrt
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")

# Below this many changes nothing is gained by merging earlier.
_DELTA_MIN = 32


class Overlay(Mapping[K, V]):
    """Immutable: a dict shared with the copies made from it, and over it what has changed since (None: is gone).

    A copy costs what has changed, which is kept below the square root of the size by merging now and then. Keys keep
    the order in which they were first put, as in a dict."""

    __slots__ = ("_base", "_delta", "_length")

    def __init__(self, base: Mapping[K, V] | None = None) -> None:
        self._base: dict[K, V] = dict(base) if base else {}
        self._delta: dict[K, V | None] = {}
        self._length = len(self._base)

    def with_changes(self, changes: Mapping[K, V | None]) -> "Overlay[K, V]":
        """The mapping after keys were put or, with None, taken out."""
        copy = Overlay[K, V]()
        copy._base = self._base
        copy._delta = {**self._delta, **changes}
        grown = sum((value is not None) - (self.get(key) is not None) for key, value in changes.items())
        copy._length = self._length + grown
        if len(copy._delta) > _DELTA_MIN + isqrt(len(copy._base)):
            copy._merge()
        return copy

    def _merge(self) -> None:
        base = self._base.copy()
        for key, value in self._delta.items():
            if value is None:
                base.pop(key, None)
            else:
                base[key] = value
        self._base, self._delta = base, {}

    def __getitem__(self, key: K) -> V:
        if key in self._delta:
            value = self._delta[key]
            if value is None:
                raise KeyError(key)
            return value
        return self._base[key]

    # Those of `Mapping` would raise and catch a KeyError for every key that is missing.

    def __contains__(self, key: Any) -> bool:
        return self.get(key) is not None

    def get(self, key: K, default: Any = None) -> Any:
        if key in self._delta:
            value = self._delta[key]
            return default if value is None else value
        return self._base.get(key, default)

    def __iter__(self) -> Iterator[K]:
        delta = self._delta
        for key in self._base:
            if key not in delta or delta[key] is not None:
                yield key
        for key, value in delta.items():
            if value is not None and key not in self._base:
                yield key

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"Overlay({dict(self)!r})"
