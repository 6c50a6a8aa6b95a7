"""Elections, moves and forgotten brokers as clients get them wrong, on a cluster of broker 1 alone."""

from collections.abc import Iterator, Sequence
from typing import Any

from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest

PREFERRED, UNCLEAN = 0, 1


def about_partitions() -> Iterator[tuple[str, Any, int]]:
    """(what, request, version)"""
    yield from _about_electing()
    yield from _about_moving()
    unknown = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 9]) for name in ("orders", "nowhere")]
    yield "list moves that are none", ListPartitionReassignmentsRequest(topics=unknown), 0
    yield "list all moves", ListPartitionReassignmentsRequest(topics=None), 0
    yield "unregister an unknown broker", UnregisterBrokerRequest(broker_id=77), 0
    yield "unregister a broker with a bad number", UnregisterBrokerRequest(broker_id=-1), 0


def _about_electing() -> Iterator[tuple[str, Any, int]]:
    def elect(kind: int, topic: str, *indexes: int) -> ElectLeadersRequest:
        asked = [TopicPartitions(topic=topic, partitions=list(indexes))]
        return ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=5000)

    everything = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None, timeout_ms=5000)
    yield "elect the preferred leader that leads", elect(PREFERRED, "orders", 0, 1), 2
    yield "elect the preferred leader in version 0", elect(PREFERRED, "orders", 0), 0
    yield "elect any leader where there is one", elect(UNCLEAN, "orders", 0), 2
    yield "elect a leader of an unknown partition", elect(PREFERRED, "orders", 9, -1), 2
    yield "elect a leader of an unknown topic", elect(UNCLEAN, "nowhere", 0), 2
    yield "elect a leader of a partition twice", elect(PREFERRED, "orders", 0, 0), 2
    yield "elect leaders of everything", everything, 2
    yield "elect in an unknown way", elect(7, "orders", 0), 2


def _about_moving() -> Iterator[tuple[str, Any, int]]:
    def move(what: str, *targets: Sequence[int] | None, topic: str = "orders", index: int = 0) -> tuple[str, Any, int]:
        partitions = [
            ReassignablePartition(partition_index=index, replicas=None if target is None else list(target))
            for target in targets
        ]
        topics = [ReassignableTopic(name=topic, partitions=partitions)]
        return what, AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=5000), 0

    yield move("move to where it is", [1])
    yield move("move to an unknown broker", [1, 7])
    yield move("move to a broker with a bad number", [-1])
    yield move("move to no replicas", [])
    yield move("move to a broker twice", [1, 1])
    yield move("give up a move that is none", None)
    yield move("move an unknown topic", [1], topic="nowhere")
    yield move("move an unknown partition", [1], index=9)
    yield move("move a partition twice", [1], [1])
    yield "move nothing", AlterPartitionReassignmentsRequest(topics=[], timeout_ms=5000), 0
