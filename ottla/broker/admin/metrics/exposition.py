"""Prometheus' text format 0.0.4 and OpenMetrics 1.0, from families and their samples (docs/operators.md §4.1)."""

from collections.abc import Iterator
from enum import Enum
from hashlib import sha256

from ottla.broker.admin.metrics.families import COUNTER, HISTOGRAM, Family
from ottla.broker.histogram import Histogram

Value = int | float | Histogram
Sample = tuple[str, Value]
"""Labels as text, without braces, and a value."""

LABEL_LENGTH_MAX = 256
"""Of a value, in characters. Names of topics have at most 249."""
_DIGEST_LENGTH = 16
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Format(Enum):
    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

    @property
    def end(self) -> str:
        return "# EOF\n" if self is Format.OPENMETRICS else ""


def asked_format(accept: str) -> Format:
    """OpenMetrics where a client names it, as Prometheus does; whatever it prefers less."""
    return Format.OPENMETRICS if "application/openmetrics-text" in accept else Format.TEXT


def label(name: str, value: object) -> str:
    """What is longer than LABEL_LENGTH_MAX is cut, and ends in the begin of its SHA-256: a group id has up to 32,767
    bytes, and stands in each of the group's series."""
    text = str(value)
    if len(text) > LABEL_LENGTH_MAX:
        digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        text = f"{text[: LABEL_LENGTH_MAX - _DIGEST_LENGTH - 1]}~{digest[:_DIGEST_LENGTH]}"
    return f'{name}="{text.translate(_ESCAPES)}"'


def labels(**values: object) -> str:
    return ",".join(label(name, value) for name, value in values.items())


def joined(*texts: str) -> str:
    """Labels one after the other, those that are empty left out."""
    return ",".join(filter(None, texts))


def header(family: Family, wanted: Format) -> str:
    name = family.name
    if wanted is Format.OPENMETRICS and family.kind == COUNTER:
        name = name.removesuffix("_total")
    text = family.help.replace("\\", r"\\").replace("\n", r"\n")
    if wanted is Format.OPENMETRICS:
        text = text.replace('"', r"\"")
    return f"# HELP {name} {text}\n# TYPE {name} {family.kind}\n"


def lines(family: Family, sample: Sample) -> str:
    text, value = sample
    if family.kind == HISTOGRAM:
        assert isinstance(value, Histogram), f"{family.name} is a histogram"
        return "".join(_histogram_lines(family.name, text, value))
    return f"{family.name}{{{text}}} {value}\n" if text else f"{family.name} {value}\n"


def _histogram_lines(name: str, text: str, histogram: Histogram) -> Iterator[str]:
    # Read once: what is counted during this must not make the sum of buckets differ from the count.
    count = histogram.count
    comma = "," if text else ""
    for bound, below in histogram.cumulative():
        yield f'{name}_bucket{{{text}{comma}le="{bound}"}} {below}\n'
    yield f'{name}_bucket{{{text}{comma}le="+Inf"}} {count}\n'
    braces = f"{{{text}}}" if text else ""
    yield f"{name}_sum{braces} {histogram.sum_ns / 1e9}\n{name}_count{braces} {count}\n"
