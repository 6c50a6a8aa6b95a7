"""What of a request is a feature, and which errors an answer has."""

from typing import Any

import pytest

from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.testing.message_features import errors_in, features_of


def offsets_at(*timestamps: int) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=at) for index, at in enumerate(timestamps)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name="orders", partitions=partitions)])


@pytest.mark.parametrize(
    ("request_", "features"),
    [
        (HeartbeatRequest(group_instance_id="a"), ["static members"]),
        (HeartbeatRequest(), []),
        (FetchRequest(rack_id="r", isolation_level=1), ["racks", "read_committed"]),
        (ProduceRequest(acks=0, transactional_id="t"), ["transactions", "acks=0"]),
        (ProduceRequest(acks=1), []),
        (offsets_at(-2, 5, -1), ["reset to earliest", "reset to latest"]),
        (MetadataRequest(), []),
        (b"no message", []),
    ],
)
def test_features_of_a_request(request_: Any, features: list[str]) -> None:
    assert list(features_of(request_)) == features


def test_errors_at_any_depth_are_found_once() -> None:
    parts = [PartitionData(partition_index=index, error_code=code) for index, code in enumerate((0, 6, 6, 3))]
    response = FetchResponse(error_code=70, responses=[FetchableTopicResponse(partitions=parts)])

    assert errors_in(response) == {3, 6, 70}
    assert errors_in(HeartbeatResponse()) == set()
    assert errors_in(None) == set()
