"""Fetches that wait at the end of the topic that the well-behaved clients write, by the thousand.

Each append to a partition has to look at all fetches that wait for it. Now and then all their connections end at once,
without a word; their sessions stay, for a client may come back to its session on another connection.
"""

from contextlib import suppress

from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.siege.attacks.attack import Attack
from tests.siege.wire import Wire
from tests.storm.settings import PARTITIONS, TOPIC

COUNT = 3_000
BATCH = 200
MAX_WAIT_MS = 60_000
# More than anybody writes in that time.
MIN_BYTES = 1 << 30
WAVES = 3


class ParkedFetches(Attack):
    name = "parked-fetches"

    def run(self) -> None:
        held: list[Wire] = []
        wave_s = self.target.duration_s / WAVES
        wave_ends = self.target.duration_s - wave_s
        for left_s in self.target.until_over():
            if len(held) < COUNT:
                wires = self.connections(BATCH)
                held += wires
                self._park(wires)
            if left_s < wave_ends:
                wave_ends -= wave_s
                while held:
                    held.pop().reset()
        for wire in held:
            wire.reset()

    def _park(self, wires: list[Wire]) -> None:
        if not wires:
            return
        partitions = [
            FetchPartition(partition=index, fetch_offset=end, partition_max_bytes=1 << 20)
            for index, end in self._ends(wires[0]).items()
        ]
        topic = FetchTopic(topic=TOPIC, partitions=partitions)
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS, min_bytes=MIN_BYTES, max_bytes=MIN_BYTES, session_epoch=0, topics=[topic]
        )
        for wire in wires:
            with suppress(OSError):
                wire.send(request, 11)
                self.done["fetches"] += 1

    def _ends(self, wire: Wire) -> dict[int, int]:
        wanted = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(PARTITIONS)]
        answer = wire.call(ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=wanted)]), 2)
        return {each.partition_index: each.offset for each in answer.topics[0].partitions}
