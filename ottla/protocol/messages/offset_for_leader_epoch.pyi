# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class OffsetForLeaderEpochRequest(Message):
    replica_id: int
    topics: list[OffsetForLeaderTopic]
    def __init__(
        self,
        *,
        replica_id: int = ...,
        topics: list[OffsetForLeaderTopic] = ...,
    ) -> None: ...

class OffsetForLeaderTopic(Message):
    topic: str
    partitions: list[OffsetForLeaderPartition]
    def __init__(
        self,
        *,
        topic: str = ...,
        partitions: list[OffsetForLeaderPartition] = ...,
    ) -> None: ...

class OffsetForLeaderPartition(Message):
    partition: int
    current_leader_epoch: int
    leader_epoch: int
    def __init__(
        self,
        *,
        partition: int = ...,
        current_leader_epoch: int = ...,
        leader_epoch: int = ...,
    ) -> None: ...

class OffsetForLeaderEpochResponse(Message):
    throttle_time_ms: int
    topics: list[OffsetForLeaderTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: list[OffsetForLeaderTopicResult] = ...,
    ) -> None: ...

class OffsetForLeaderTopicResult(Message):
    topic: str
    partitions: list[EpochEndOffset]
    def __init__(
        self,
        *,
        topic: str = ...,
        partitions: list[EpochEndOffset] = ...,
    ) -> None: ...

class EpochEndOffset(Message):
    error_code: int
    partition: int
    leader_epoch: int
    end_offset: int
    def __init__(
        self,
        *,
        error_code: int = ...,
        partition: int = ...,
        leader_epoch: int = ...,
        end_offset: int = ...,
    ) -> None: ...
