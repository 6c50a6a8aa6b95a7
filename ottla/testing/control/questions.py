"""What is asked over HTTP: the bodies of requests. Times are milliseconds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopicBody:
    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    partitions: int | None = None
    """How many it has then."""
    delete_records_before: Mapping[str, int] | None = None
    """By partition, the offset that it begins at then."""
    configs: Mapping[str, Any] | None = None
    """Those to set; null goes back to the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderBody:
    name: str
    value: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    value: bytes | None = None
    key: bytes | None = None
    headers: Sequence[HeaderBody] = ()
    timestamp: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecords:
    records: Sequence[NewRecord]
    partition: int | None = None
    """Of all of them; without it their keys choose."""
    acks: Literal["all", "1", "0"] = "all"
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictBody:
    member: str
    """Its member id, its instance id, or its client id where no other has that."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsBody:
    topic: str
    offsets: Mapping[str, int]
    """By partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseBody:
    count: int | None = None
    """How many, the oldest first; without it all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestMark:
    name: str
    phase: Literal["begin", "end"]
    audit: Literal["errors", "all", "off"] | None = None
    """At the begin: the audit begins again, or records nothing; without it, it goes on."""
    clear_faults: bool = False
    """At the end: rules are removed and forgotten."""
    groups: Sequence[str] = ()
    """At the end: those that should have no members."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitBody:
    for_: str
    group: str | None = None
    topic: str | None = None
    partition: int | None = None
    members: int | None = None
    assigned: Mapping[str, int] | None = None
    generation: int | None = None
    lag: int | None = None
    offsets: Mapping[str, int] | None = None
    count: int | None = None
    node: int | None = None
    fault: str | None = None
    hits: int | None = None
    script: str | None = None
    ms: int | None = None
    within_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockAdvance:
    by: str
    """`90s`, `7d`."""
    sessions: Literal["spare", "expire"] = "spare"
    """Whether members of groups whose connection is open live on."""
    expired: Sequence[str] = ()
    """Member ids and client ids: these do not live on, all others do."""
    every: bool = False
    """Periodic jobs run each time that they would have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockNext:
    kind: str | None = None
    """Of the timer to go to, as it is shown; without it any that is no periodic job."""
    sessions: Literal["spare", "expire"] = "spare"
    expired: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockRate:
    rate: float
    """Seconds of broker time in a second of the machine's."""
    sessions: Literal["spare", "expire"] = "spare"
    expired: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockInclude:
    names: Sequence[Literal["tokens", "replication"]]
    """What goes by broker time from now on; all else goes by the machine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSkew:
    node: int
    by: str
    """`5m`; with a minus it is behind the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockDrift:
    node: int
    rate: float
    """Of the wall clock of this broker, against the others'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockMoment:
    at: str | None = None
    """`2026-11-23T12:00:00+00:00`; without a zone it is UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartBody:
    after_ms: int | None = None
    """It is answered at once then, and the broker starts later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderBody:
    to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreBody:
    members: Literal["leave", "keep"] = "leave"
    """Whether groups come back without members, or with those of the snapshot."""


@dataclass(frozen=True, slots=True)
class EmptyBody:
    pass
