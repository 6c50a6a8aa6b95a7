"""What is asked and answered over HTTP about links and disks. A body says with `do` what is to be done."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ottla.testing.surroundings.disk_files import DiskFailure
from ottla.testing.surroundings.ways import LinkState, Place

# Links. A body has `from` and `to`, for one way, or `between`, for both.


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCut:
    do: Literal["cut"]
    from_: int | str | None = None
    """A node id, `store` or `clients`."""
    to: int | str | None = None
    between: Sequence[int | str] | None = None
    reset: bool = False
    """Connections break; else all that is sent is swallowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkDelay:
    do: Literal["delay"]
    ms: float
    from_: int | str | None = None
    to: int | str | None = None
    between: Sequence[int | str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkBandwidth:
    do: Literal["bandwidth"]
    bytes_per_s: float
    from_: int | str | None = None
    to: int | str | None = None
    between: Sequence[int | str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPause:
    """All that is sent arrives when the link is healed."""

    do: Literal["pause"]
    from_: int | str | None = None
    to: int | str | None = None
    between: Sequence[int | str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkIsolate:
    """From all other brokers and the store."""

    do: Literal["isolate"]
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkHeal:
    do: Literal["heal"]
    ends: Sequence[int | str] = ()
    """None: all links; one: all of this broker; two: the link between them."""


WayBody: TypeAlias = LinkCut | LinkDelay | LinkBandwidth | LinkPause
LinkBody: TypeAlias = LinkCut | LinkDelay | LinkBandwidth | LinkPause | LinkIsolate | LinkHeal


@dataclass(frozen=True, slots=True)
class LinkDocument:
    from_: int | str
    to: int | str
    is_cut: bool
    resets: bool
    is_paused: bool
    delay_ms: float
    bytes_per_s: float | None

    @classmethod
    def of(cls, source: Place, target: Place, way: LinkState) -> "LinkDocument":
        return cls(source, target, way.is_cut, way.resets, way.is_paused, way.delay_ms, way.bytes_per_s)


@dataclass(frozen=True, slots=True)
class LinkList:
    links: Sequence[LinkDocument]
    """Those that have something in force, each way by itself."""


# Disks.


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFull:
    do: Literal["full"]
    after_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSlow:
    do: Literal["slow_fsync"]
    ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFail:
    do: Literal["fail"]
    operation: Literal["fsync", "write", "read"]
    match: str = "*"
    """A pattern for paths in the data directory: `orders-0/*`."""
    times: int | None = 1
    """null: for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskStall:
    do: Literal["stall"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskCorrupt:
    """One bit of the stored batch that has this offset."""

    do: Literal["corrupt"]
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskTear:
    """The ends of last segments, of a broker that was killed."""

    do: Literal["tear_tail"]
    bytes: int
    match: str = "*"
    """A pattern for names of directories: `orders-*`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskLose:
    """What was never synced: at once where the broker does not run, else at its next kill."""

    do: Literal["lose_unsynced"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskHeal:
    do: Literal["heal"]


DiskBody: TypeAlias = DiskFull | DiskSlow | DiskFail | DiskStall | DiskCorrupt | DiskTear | DiskLose | DiskHeal


@dataclass(frozen=True, slots=True)
class DiskDocument:
    node: int
    room_bytes: int | None
    """What still fits; null: it is not full."""
    fsync_ms: float
    """How much longer each sync takes."""
    failures: Sequence[DiskFailure]
    """Also those that have no times left."""
    is_stalled: bool


@dataclass(frozen=True, slots=True)
class DiskList:
    disks: Sequence[DiskDocument]
