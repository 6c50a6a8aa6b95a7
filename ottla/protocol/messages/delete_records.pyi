# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class DeleteRecordsRequest(Message):
    topics: list[DeleteRecordsTopic]
    timeout_ms: int
    def __init__(
        self,
        *,
        topics: list[DeleteRecordsTopic] = ...,
        timeout_ms: int = ...,
    ) -> None: ...

class DeleteRecordsTopic(Message):
    name: str
    partitions: list[DeleteRecordsPartition]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[DeleteRecordsPartition] = ...,
    ) -> None: ...

class DeleteRecordsPartition(Message):
    partition_index: int
    offset: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        offset: int = ...,
    ) -> None: ...

class DeleteRecordsResponse(Message):
    throttle_time_ms: int
    topics: list[DeleteRecordsTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: list[DeleteRecordsTopicResult] = ...,
    ) -> None: ...

class DeleteRecordsTopicResult(Message):
    name: str
    partitions: list[DeleteRecordsPartitionResult]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[DeleteRecordsPartitionResult] = ...,
    ) -> None: ...

class DeleteRecordsPartitionResult(Message):
    partition_index: int
    low_watermark: int
    error_code: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        low_watermark: int = ...,
        error_code: int = ...,
    ) -> None: ...
