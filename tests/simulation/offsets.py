"""The dumb model of committed offsets (I-16): per partition a list of writes, each with when it was sent and answered.

Every commit of a run writes another number, so that a number read says which write is being read. A read is wrong if
the number was never written, if the write was refused, or if another write was sent after that one was acknowledged
and was itself acknowledged before the read was sent.
"""

from dataclasses import dataclass

NONE_COMMITTED = -1


@dataclass(eq=False)
class Write:
    offset: int
    sent_us: int
    acknowledged_us: int | None = None


class OffsetLedger:
    def __init__(self) -> None:
        self._writes: dict[tuple[str, int], dict[int, Write]] = {}

    def begin(self, partition: tuple[str, int], offset: int, now_us: int) -> Write:
        write = Write(offset, now_us)
        self._writes.setdefault(partition, {})[offset] = write
        return write

    def acknowledge(self, write: Write, now_us: int) -> None:
        write.acknowledged_us = now_us

    def refuse(self, partition: tuple[str, int], write: Write) -> None:
        self._writes[partition].pop(write.offset, None)

    def partitions(self) -> list[tuple[str, int]]:
        return list(self._writes)

    def judge_read(self, partition: tuple[str, int], offset: int, sent_us: int) -> str | None:
        """What is wrong with reading `offset` by a request sent at `sent_us`; None if nothing is."""
        writes = self._writes.get(partition, {})
        certain = [write for write in writes.values() if (write.acknowledged_us or sent_us) < sent_us]
        if offset == NONE_COMMITTED:
            return f"none, though {certain[-1]} was acknowledged" if certain else None
        write = writes.get(offset)
        if write is None:
            return f"{offset}, which was never written"
        if write.acknowledged_us is None:
            return None
        for later in certain:
            if later.sent_us > write.acknowledged_us:
                return f"{write}, though {later} was acknowledged"
        return None

    def history_may_be_cut(self) -> None:
        """After a loss of power any earlier write may be the last: none counts as acknowledged any more."""
        for writes in self._writes.values():
            for write in writes.values():
                write.acknowledged_us = None
