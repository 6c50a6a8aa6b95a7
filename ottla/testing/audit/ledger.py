"""What the recorder keeps: connections, incarnations of partitions, and the batches that clients sent, in 80 bytes
each: the header as it came, from its leader epoch on, and what it was answered. They are taken apart when they are
judged.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from struct import Struct
from typing import Any, Final

from ottla.cluster.image import INTERNAL_TOPICS, MetadataImage
from ottla.protocol.records.batch import BATCH_HEADER_SIZE
from ottla.storage.log_config import LogConfig
from ottla.testing.audit.history import NO_ANSWER, UNKNOWN_OFFSET, AuditedPartition, SeenConnection, SentBatch
from ottla.testing.wire import WireEvent

NOT_AUDITED: Final = -1
TOO_MANY: Final = -1
BATCHES_MAX: Final = 200_000
PARTITIONS_MAX: Final = 100_000
"""Incarnations of partitions: those that follow are not audited."""
HEADER_FROM: Final = 12
"""Base offset and length come before: the first is the client's, the second counts nothing here."""
HEADER: Final = slice(HEADER_FROM, BATCH_HEADER_SIZE)
Sent = tuple[bytes, int, int, int, int]
"""A batch: its header as it was received, from HEADER_FROM on, its partition and connection, acks, and the time."""
AnsweredBatch = tuple[bytes, int, int, int, int, int, int, int]
"""The same with the number of its answer, its offset and its error."""
# Of the header CRC, last offset delta, greatest timestamp, producer id, epoch and first sequence; then what is added.
_ROW = Struct(">5xI2xi8xqqhi4xIIbqIqh")
_pack = Struct(">49sIIbqIqh").pack
_ANSWER = Struct(">Iqh")
_PARTITION = Struct(">I")
# As `SentBatch._make`, without a call of Python code for each of very many.
_tuple: Any = tuple
_sent_batch: Callable[[Any], SentBatch] = partial(_tuple.__new__, SentBatch)
ROW_BYTES: Final = _ROW.size
_ROWS_END: Final = BATCHES_MAX * ROW_BYTES
_OWN_AT: Final = BATCH_HEADER_SIZE - HEADER_FROM
_ANSWER_AT: Final = ROW_BYTES - _ANSWER.size


Place = tuple[str | bytes, int]
"""A topic by its name, or by its id in versions that have ids, and a partition."""


@dataclass(slots=True)
class FetchPlace:
    """Of a connection and a partition."""

    position: int | None = None
    """Where it asked last, which later requests of a fetch session leave out."""
    stretch: int | None = None
    """The index of its stretch that may go on."""
    log_start_offset: int = 0
    high_watermark: int = 0


class AuditedConnection:
    __slots__ = ("answerers", "askers", "connection", "event_ns", "last", "number", "places", "seen")

    def __init__(self, number: int, connection: Any, seen: SeenConnection, askers: "Notes", answerers: "Notes") -> None:
        self.number = number
        self.connection = connection
        self.seen = seen
        self.askers = askers
        self.answerers = answerers
        self.places: dict[int, FetchPlace] = {}
        """By partition, what Fetch gave it last."""
        self.event_ns = 0
        self.last = 0
        """The number of the last answer that was noted."""


Notes = Mapping[str, Callable[[AuditedConnection, WireEvent, Any], object]]
"""What notes the requests or answers of an API."""


class Partitions:
    """Incarnations of partitions, by where requests say they are. Internal topics have none."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        begin_offsets: Mapping[tuple[str, int], int],
        configs_of: Callable[[str], Iterable[LogConfig]],
    ) -> None:
        self.seen: list[AuditedPartition] = []
        self.configs: dict[str, set[LogConfig]] = {}
        """By topic, all that were in force since the first request about it."""
        self._configs_of = configs_of
        self.is_full = False
        """Whether some came after the last that is audited."""
        self._begin_offsets = begin_offsets
        self._image = image
        self.numbers: dict[Place, int] = {}
        """Those that `number` has given, until topics are deleted."""
        self._current: dict[tuple[str, int], int] = {}

    def number(self, topic: str | bytes, index: int) -> int:
        """NOT_AUDITED for internal topics and those that do not exist."""
        place = topic, index
        try:
            return self.numbers[place]
        except KeyError:
            return self._new(place)

    def _new(self, place: Place) -> int:
        topic, index = place
        name = self._image().name_of(topic) if isinstance(topic, bytes) else topic
        if not name or self._image().topic(name) is None:
            return NOT_AUDITED
        if name in INTERNAL_TOPICS:
            number = NOT_AUDITED
        else:
            number = self._current.get((name, index), len(self.seen))
            if number == PARTITIONS_MAX:
                self.is_full = True
                number = NOT_AUDITED
            elif number == len(self.seen):
                self.seen.append(AuditedPartition(name, index, self._begin_offsets.get((name, index), 0)))
                self._current[name, index] = number
                if name not in self.configs:
                    self.configs[name] = set(self._configs_of(name))
        self.numbers[place] = number
        return number

    def current(self) -> Mapping[tuple[str, int], int]:
        """Of those that were not deleted."""
        return self._current

    def deleted(self, names: Iterable[str]) -> None:
        gone = set(names)
        self._begin_offsets = {place: each for place, each in self._begin_offsets.items() if place[0] not in gone}
        if any(name in gone for name, _ in self._current):
            self._current = {place: number for place, number in self._current.items() if place[0] not in gone}
            self.numbers.clear()
            for name in gone:
                self.configs.pop(name, None)


class SentBatches:
    def __init__(self) -> None:
        self._rows = bytearray()
        self.overflow = 0
        """How many came after the last one that is kept."""

    def extend(self, batches: list[AnsweredBatch]) -> None:
        room = (_ROWS_END - len(self._rows)) // ROW_BYTES
        if len(batches) > room:
            self.overflow += len(batches) - room
            batches = batches[:room]
        self._rows += b"".join(starmap(_pack, batches))

    def add(self, batch: Sent) -> int:
        """Without an answer. Gives its position, or TOO_MANY."""
        position = len(self._rows)
        if position >= _ROWS_END:
            self.overflow += 1
            return TOO_MANY
        self._rows += _pack(*batch, 0, UNKNOWN_OFFSET, NO_ANSWER)
        return position

    def answer(self, position: int, answered: int, offset: int, error: int) -> None:
        """Of a batch that had none when it was added."""
        _ANSWER.pack_into(self._rows, position + _ANSWER_AT, answered, offset, error)

    def partition_at(self, position: int) -> int:
        """Of the batch there."""
        partition: int = _PARTITION.unpack_from(self._rows, position + _OWN_AT)[0]
        return partition

    def __len__(self) -> int:
        return len(self._rows) // ROW_BYTES

    def __iter__(self) -> Iterator[SentBatch]:
        return map(_sent_batch, _ROW.iter_unpack(self._rows))
