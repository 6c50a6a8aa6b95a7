# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class ListOffsetsRequest(Message):
    replica_id: int
    isolation_level: int
    topics: list[ListOffsetsTopic]
    timeout_ms: int
    def __init__(
        self,
        *,
        replica_id: int = ...,
        isolation_level: int = ...,
        topics: list[ListOffsetsTopic] = ...,
        timeout_ms: int = ...,
    ) -> None: ...

class ListOffsetsTopic(Message):
    name: str
    partitions: list[ListOffsetsPartition]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[ListOffsetsPartition] = ...,
    ) -> None: ...

class ListOffsetsPartition(Message):
    partition_index: int
    current_leader_epoch: int
    timestamp: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        current_leader_epoch: int = ...,
        timestamp: int = ...,
    ) -> None: ...

class ListOffsetsResponse(Message):
    throttle_time_ms: int
    topics: list[ListOffsetsTopicResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: list[ListOffsetsTopicResponse] = ...,
    ) -> None: ...

class ListOffsetsTopicResponse(Message):
    name: str
    partitions: list[ListOffsetsPartitionResponse]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[ListOffsetsPartitionResponse] = ...,
    ) -> None: ...

class ListOffsetsPartitionResponse(Message):
    partition_index: int
    error_code: int
    timestamp: int
    offset: int
    leader_epoch: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        error_code: int = ...,
        timestamp: int = ...,
        offset: int = ...,
        leader_epoch: int = ...,
    ) -> None: ...
