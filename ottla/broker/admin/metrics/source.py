"""Where the samples of a scrape come from.

A source belongs to one broker, or to the process. Before the families are rendered, `prepare` goes over what there may
be thousands of; then each function of `families` gives the samples of its family. Both are taken in slices: an item of
`prepare`, a sample, and a None each count as a bit of work.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Protocol

from ottla.broker.admin.metrics.exposition import Sample

# The label of what has no series of its own, summed up.
OTHER = "_other"

Samples = Iterable[Sample | None]


class MetricSource(Protocol):
    @property
    def families(self) -> Mapping[str, Callable[[], Samples]]:
        """By the name of the family."""
        ...

    def prepare(self) -> Iterator[None]: ...


class SourceOfBroker:
    """All sources of a broker, with its label."""

    def __init__(self, label: str, sources: Iterable[MetricSource]) -> None:
        """`label` is empty for those of the process."""
        self._label = label
        self._sources = list(sources)
        self._families: dict[str, list[Callable[[], Samples]]] = {}
        for source in self._sources:
            for name, samples in source.families.items():
                self._families.setdefault(name, []).append(samples)

    @property
    def names(self) -> set[str]:
        return set(self._families)

    def prepare(self) -> Iterator[None]:
        for source in self._sources:
            yield from source.prepare()

    def samples(self, name: str) -> Iterator[Sample | None]:
        before = self._label
        for samples in self._families.get(name, ()):
            for sample in samples():
                if sample is None or not before:
                    yield sample
                else:
                    text, value = sample
                    yield (f"{before},{text}" if text else before), value


class Budget:
    """How many things of a kind have series of their own (docs/operators.md §4.6).

    First come stays until it is deleted: by the order of names, a new topic could push out one that a dashboard shows.
    A pass goes over all things; what it does not meet any more makes room for others."""

    def __init__(self, most: int, label_of: Callable[..., str]) -> None:
        """`label_of` makes the labels of a thing from its key; they are made once."""
        self.overflow = 0
        """How many things of the last pass have no series."""
        self._most = most
        self._label_of = label_of
        self._kept: dict[Hashable, str] = {}
        self._met: dict[Hashable, str] = {}
        self._overflow = 0

    def labels(self, *key: Hashable) -> str | None:
        """The labels of the thing, or None if it has no series."""
        text = self._kept.get(key)
        if text is None:
            if len(self._kept) >= self._most:
                self._overflow += 1
                return None
            text = self._kept[key] = self._label_of(*key)
        self._met[key] = text
        return text

    def end_pass(self) -> None:
        self._kept, self._met = self._met, {}
        self.overflow, self._overflow = self._overflow, 0
