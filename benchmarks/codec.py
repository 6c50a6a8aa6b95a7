"""The codec against kafka-python's: decoding of requests that come thousands of times a second, a Metadata answer.

The baseline decodes or encodes the same bytes or values with the codec of kafka-python, which is compiled from Kafka's
schemas, too. Alone: `python -m benchmarks.codec`.
"""

import timeit
from collections.abc import Callable
from typing import Any

from benchmarks.figure import Figure, interleave
from ottla.protocol.codec import decoder, encode, frame_encoder
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.protocol.schema import Message

ROUNDS = 7
SECONDS_PER_ROUND = 0.02
GROUP = {
    "group_id": "orders-service",
    "member_id": "consumer-1-c8b8c3a0-1d5c-4d49-9c4e-9b6f1f9d2f00",
}


def hot_requests() -> list[tuple[Message, int]]:
    """What clients send most, each in the version of a current and of an older client."""
    produce = ProduceRequest(
        acks=-1,
        timeout_ms=30000,
        topic_data=[
            TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=3, records=bytes(170))])
        ],
    )
    fetch = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        session_id=77,
        session_epoch=12,
        topics=[FetchTopic(topic="orders", partitions=[_fetch_partition(index) for index in range(3)])],
    )
    heartbeat = HeartbeatRequest(generation_id=4, **GROUP)
    committed = [OffsetCommitRequestPartition(partition_index=index, committed_offset=10**6) for index in range(3)]
    commit = OffsetCommitRequest(
        generation_id_or_member_epoch=4,
        topics=[OffsetCommitRequestTopic(name="orders", partitions=committed)],
        **GROUP,
    )
    offsets = ListOffsetsRequest(
        replica_id=-1,
        topics=[ListOffsetsTopic(name="orders", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])],
    )
    return [
        (produce, 7),
        (produce, 9),
        (fetch, 11),
        (fetch, 12),
        (heartbeat, 3),
        (heartbeat, 4),
        (commit, 7),
        (commit, 8),
        (offsets, 5),
        (offsets, 7),
    ]


def _fetch_partition(index: int) -> FetchPartition:
    return FetchPartition(partition=index, current_leader_epoch=5, fetch_offset=10**6, partition_max_bytes=1048576)


def metadata_response() -> MetadataResponse:
    """Three brokers, ten topics of ten partitions."""
    partitions = [
        MetadataResponsePartition(
            partition_index=index, leader_id=index % 3, leader_epoch=4, replica_nodes=[0, 1, 2], isr_nodes=[0, 1, 2]
        )
        for index in range(10)
    ]
    topics = [MetadataResponseTopic(name=f"topic-{number}", partitions=partitions) for number in range(10)]
    brokers = [MetadataResponseBroker(node_id=node, host="broker.example.org", port=9092) for node in range(3)]
    return MetadataResponse(brokers=brokers, cluster_id="hZ4ZcS5uQz2T4cbR0Y3yRw", controller_id=0, topics=topics)


def _microseconds(call: Callable[[], Any]) -> Callable[[], float]:
    """A measurement of one call, repeated until it has taken long enough to be timed."""
    timer = timeit.Timer(call)
    number, taken = timer.autorange()
    number = max(1, int(number * SECONDS_PER_ROUND / taken))
    return lambda: timer.timeit(number) / number * 1e6


def _decode_figures() -> list[Figure]:
    from tests.protocol import kafka_python_oracle

    ours: list[Callable[[], float]] = []
    baseline: list[Callable[[], float]] = []
    figures = []
    for request, version in hot_requests():
        data = memoryview(bytearray(encode(request, version)))
        decode = decoder(type(request), version)
        theirs = kafka_python_oracle.CLASSES[type(request).__name__]
        ours.append(_microseconds(lambda decode=decode, data=data: decode(data, 0, len(data))))
        baseline.append(
            _microseconds(lambda theirs=theirs, data=data, version=version: theirs.decode(data, version=version))
        )
        name = f"decode {type(request).__name__} v{version}"
        figures.append(_figure(name, interleave(ROUNDS, ours[-1], baseline[-1])))
    total = interleave(ROUNDS, lambda: sum(run() for run in ours), lambda: sum(run() for run in baseline))
    return [_figure("decode of all hot requests", total, at_most=0.6), *figures]


def _metadata_figure() -> Figure:
    from tests.protocol import kafka_python_oracle

    response, version = metadata_response(), 12
    encode_frame = frame_encoder(MetadataResponse, version)
    theirs = kafka_python_oracle.from_ours(response, version)
    pairs = interleave(
        ROUNDS,
        _microseconds(lambda: encode_frame(response, 7)),
        _microseconds(lambda: theirs.encode(version=version)),
    )
    return _figure("encode Metadata, 100 partitions", pairs, at_most=0.3)


def _figure(name: str, pairs: list[tuple[float, float]], at_most: float | None = None) -> Figure:
    return Figure(name=name, baseline="kafka-python", unit="µs", pairs=pairs, at_most=at_most)


def figures() -> list[Figure]:
    """The two figures with a target, then each request by itself."""
    decodes = _decode_figures()
    return [decodes[0], _metadata_figure(), *decodes[1:]]


def _print_encoders() -> None:
    """Answers to hot requests, whole frames: what a request costs besides its decoding."""
    produced = TopicProduceResponse(
        name="orders", partition_responses=[PartitionProduceResponse(index=3, base_offset=10)]
    )
    for response, version in [(ProduceResponse(responses=[produced]), 9), (HeartbeatResponse(), 4)]:
        encode_frame = frame_encoder(type(response), version)
        taken = min(
            _microseconds(lambda encode=encode_frame, message=response: encode(message, 7))() for _ in range(ROUNDS)
        )
        print(f"{f'encode {type(response).__name__} v{version}':36} {taken:8.2f} µs")


if __name__ == "__main__":
    for figure in figures():
        print(f"{figure.name:36} {figure.ours:8.2f} µs, baseline {figure.theirs:8.2f} µs, ratio {figure.ratio:.2f}")
    _print_encoders()
