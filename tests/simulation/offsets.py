"""The dumb model of committed offsets (I-16): per partition a list of writes, each with when it was sent and answered.

Every commit of a run writes another number, so that a number read says which write is being read. To delete an offset
is to write that there is none. A read is wrong if what it says was never written, if the write was refused, or if
another write was sent after that one was acknowledged and was itself acknowledged before the read was sent.
"""

from dataclasses import dataclass

NONE_COMMITTED = -1
BEGINNING_US = -1


@dataclass(eq=False)
class Write:
    offset: int
    sent_us: int
    acknowledged_us: int | None = None


class OffsetLedger:
    def __init__(self) -> None:
        self._writes: dict[tuple[str, int], list[Write]] = {}

    def begin(self, partition: tuple[str, int], offset: int, now_us: int) -> Write:
        write = Write(offset, now_us)
        nothing = Write(NONE_COMMITTED, BEGINNING_US, BEGINNING_US)
        self._writes.setdefault(partition, [nothing]).append(write)
        return write

    def acknowledge(self, write: Write, now_us: int) -> None:
        write.acknowledged_us = now_us

    def refuse(self, partition: tuple[str, int], write: Write) -> None:
        self._writes[partition].remove(write)

    def partitions(self) -> list[tuple[str, int]]:
        return list(self._writes)

    def judge_read(self, partition: tuple[str, int], offset: int, sent_us: int) -> str | None:
        """What is wrong with reading `offset` by a request sent at `sent_us`; None if nothing is."""
        writes = self._writes.get(partition)
        if writes is None:
            return None if offset == NONE_COMMITTED else f"{offset}, which was never written"
        certain = [write for write in writes if write.acknowledged_us is not None and write.acknowledged_us < sent_us]
        wrong: str | None = f"{offset}, which was never written"
        for write in writes:
            if write.offset == offset:
                wrong = _replaced(write, certain)
                if wrong is None:
                    return None
        return wrong

    def history_may_be_cut(self) -> None:
        """After a loss of power any earlier write may be the last: none counts as acknowledged any more."""
        for writes in self._writes.values():
            for write in writes:
                write.acknowledged_us = None


def _replaced(write: Write, certain: list[Write]) -> str | None:
    if write.acknowledged_us is None:
        return None
    for later in certain:
        if later.sent_us > write.acknowledged_us:
            return f"{write}, though {later} was acknowledged"
    return None
