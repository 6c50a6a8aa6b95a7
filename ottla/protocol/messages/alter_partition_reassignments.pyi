# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class AlterPartitionReassignmentsRequest(Message):
    timeout_ms: int
    allow_replication_factor_change: bool
    topics: list[ReassignableTopic]
    def __init__(
        self,
        *,
        timeout_ms: int = ...,
        allow_replication_factor_change: bool = ...,
        topics: list[ReassignableTopic] = ...,
    ) -> None: ...

class ReassignableTopic(Message):
    name: str
    partitions: list[ReassignablePartition]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[ReassignablePartition] = ...,
    ) -> None: ...

class ReassignablePartition(Message):
    partition_index: int
    replicas: list[int] | None
    def __init__(
        self,
        *,
        partition_index: int = ...,
        replicas: list[int] | None = ...,
    ) -> None: ...

class AlterPartitionReassignmentsResponse(Message):
    throttle_time_ms: int
    allow_replication_factor_change: bool
    error_code: int
    error_message: str | None
    responses: list[ReassignableTopicResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        allow_replication_factor_change: bool = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        responses: list[ReassignableTopicResponse] = ...,
    ) -> None: ...

class ReassignableTopicResponse(Message):
    name: str
    partitions: list[ReassignablePartitionResponse]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[ReassignablePartitionResponse] = ...,
    ) -> None: ...

class ReassignablePartitionResponse(Message):
    partition_index: int
    error_code: int
    error_message: str | None
    def __init__(
        self,
        *,
        partition_index: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
    ) -> None: ...
