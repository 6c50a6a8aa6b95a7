"""The clocks of clients, which do not move with broker time: records with timestamps by them, and moving them along.

After a jump of eight days a new record is eight days old, and retention may take it at once; where the wall clock was
set back, it lies in the future, and the broker may refuse it. The first one of each topic is kept, to be hinted at.
"""

from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from ottla.broker.assembly import Parts
from ottla.protocol.records.batch import BATCH_HEADER_SIZE, parse_batch_header
from ottla.replication.partition import Partition
from ottla.storage.append_queue import Origin
from ottla.storage.log import AppendInfo
from ottla.testing.clock.timeline import BrokerTimeline, describe_ms

APART_MS: Final = 60_000
"""Clocks that differ by less are taken for one."""


class StampNotes:
    """It stands before the appends of brokers once their time was moved."""

    def __init__(self, timeline: BrokerTimeline) -> None:
        self._timeline = timeline
        # By topic, of the first such record: by how much it is behind broker time; negative if it is ahead of it.
        self.behind_ms: dict[str, int] = {}

    def install(self, parts: Parts) -> None:
        parts.replicas.append = partial(self._noted, parts.replicas.append)

    def hints(self) -> list[str]:
        return [
            f"a producer of {topic} stamps records by its own clock, {describe_ms(abs(behind_ms))} "
            f"{'behind' if behind_ms > 0 else 'ahead of'} broker time: "
            f"{'retention may take them at once' if behind_ms > 0 else 'they may be refused as too far ahead'}; "
            "use message.timestamp.type=LogAppendTime, or move the client's clock too (clock.follow)"
            for topic, behind_ms in self.behind_ms.items()
        ]

    def _noted(self, append: Any, partition: Partition, records: memoryview, *rest: Any, **named: Any) -> AppendInfo:
        if partition.topic not in self.behind_ms and named.get("origin", Origin.CLIENT) is Origin.CLIENT:
            self._note(partition, records)
        info: AppendInfo = append(partition, records, *rest, **named)
        return info

    def _note(self, partition: Partition, records: memoryview) -> None:
        if len(records) < BATCH_HEADER_SIZE or partition.log.config.message_timestamp_type == "LogAppendTime":
            return
        stamp_ms = parse_batch_header(records).max_timestamp
        behind_ms = self._timeline.wall_ms() - stamp_ms
        if abs(behind_ms) > APART_MS and abs(self._timeline.machine.wall_ms() - stamp_ms) <= APART_MS:
            self.behind_ms[partition.topic] = behind_ms


class Travellers:
    """Objects of time-machine or freezegun. They are moved by the thread that moves broker time."""

    def __init__(self) -> None:
        self._travellers: list[Any] = []

    def add(self, traveller: Any) -> None:
        """Raises TypeError."""
        if not (hasattr(traveller, "shift") or hasattr(traveller, "tick")) or not hasattr(traveller, "move_to"):
            raise TypeError(f"{traveller!r} has neither shift() nor tick(), or no move_to(): no clock that can follow")
        self._travellers.append(traveller)

    def move_by(self, delta_ms: int) -> None:
        for each in self._travellers:
            move = each.shift if hasattr(each, "shift") else each.tick
            move(timedelta(milliseconds=delta_ms))

    def move_to(self, when: datetime) -> None:
        for each in self._travellers:
            each.move_to(when)

    def clear(self) -> None:
        self._travellers.clear()
