"""What a fetch is answered of partitions that its sender may not read."""

from collections.abc import Iterable

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.replication.fetch_session import FetchTarget

UNKNOWN = -1


def refuse_targets(response: FetchResponse, denied: Iterable[FetchTarget]) -> None:
    """Adds them to the response, unless that is an error as a whole."""
    if response.error_code:
        return
    topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
    for target in denied:
        key = target.topic, target.topic_id
        if key not in topics:
            topics[key] = FetchableTopicResponse(topic=target.topic, topic_id=target.topic_id)
        topics[key].partitions.append(refused_partition(target.partition))
    response.responses.extend(topics.values())


def refused_partition(index: int) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        high_watermark=UNKNOWN,
        records=b"",
        aborted_transactions=None,
    )
