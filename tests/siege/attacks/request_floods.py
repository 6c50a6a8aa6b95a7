"""Small requests, pipelined as fast as they are taken; the answers are read."""

from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.fakes.frames import build_request_frame
from tests.siege.attacks.attack import BAIT, Attack
from tests.siege.attacks.crowd import Crowd

CONNECTIONS = 32
# As much as a kernel takes at once: the broker finds thousands of requests in one read.
PIPELINED = 4000


class SmallRequests(Attack):
    name = "small-requests"

    def run(self) -> None:
        offsets = ListOffsetsTopic(name=BAIT, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        requests = [
            (ApiVersionsRequest(), 0),
            (MetadataRequest(topics=[MetadataRequestTopic(name=BAIT)]), 4),
            (HeartbeatRequest(group_id="siege-none", generation_id=1, member_id="none"), 3),
            (FindCoordinatorRequest(key="siege-none"), 1),
            (ListOffsetsRequest(topics=[offsets]), 2),
        ]
        payloads = [build_request_frame(request, version, 1, "siege") * PIPELINED for request, version in requests]
        chance = self.target.chance
        Crowd(self.connect, CONNECTIONS, lambda: chance.choice(payloads), reads=True, done=self.done).run(self.target)
