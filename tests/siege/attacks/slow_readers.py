"""Clients that pipeline requests with large answers and read none of them."""

from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.schema import Message
from tests.fakes.frames import build_request_frame
from tests.siege.attacks.attack import BAIT, BAIT_PARTITIONS, Attack
from tests.siege.attacks.crowd import Crowd
from tests.siege.wire import Wire

CONNECTIONS = 150
PIPELINED = 64
# The client's kernel should not take the answers in its place.
RECEIVE_BUFFER_BYTES = 4096


class SlowReaders(Attack):
    request: Message
    version: int

    def run(self) -> None:
        payload = build_request_frame(self.request, self.version, 1, "siege") * PIPELINED
        Crowd(self._deaf, CONNECTIONS, lambda: payload, reads=False, done=self.done).run(self.target)

    def _deaf(self) -> Wire:
        return self.connect(receive_buffer_bytes=RECEIVE_BUFFER_BYTES)


class SlowFetchers(SlowReaders):
    """Fetch: each answer is 48 MiB, if the broker lets it be."""

    name = "slow-fetchers"
    version = 11
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 30,
        topics=[
            FetchTopic(
                topic=BAIT,
                partitions=[
                    FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
                    for index in range(BAIT_PARTITIONS)
                ],
            )
        ],
    )


class SlowMetadata(SlowReaders):
    """Metadata of all topics: small requests with answers of some kilobytes."""

    name = "slow-metadata"
    version = 1
    request = MetadataRequest(topics=None)
