# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class OffsetDeleteRequest(Message):
    group_id: str
    topics: list[OffsetDeleteRequestTopic]
    def __init__(
        self,
        *,
        group_id: str = ...,
        topics: list[OffsetDeleteRequestTopic] = ...,
    ) -> None: ...

class OffsetDeleteRequestTopic(Message):
    name: str
    partitions: list[OffsetDeleteRequestPartition]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[OffsetDeleteRequestPartition] = ...,
    ) -> None: ...

class OffsetDeleteRequestPartition(Message):
    partition_index: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
    ) -> None: ...

class OffsetDeleteResponse(Message):
    error_code: int
    throttle_time_ms: int
    topics: list[OffsetDeleteResponseTopic]
    def __init__(
        self,
        *,
        error_code: int = ...,
        throttle_time_ms: int = ...,
        topics: list[OffsetDeleteResponseTopic] = ...,
    ) -> None: ...

class OffsetDeleteResponseTopic(Message):
    name: str
    partitions: list[OffsetDeleteResponsePartition]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[OffsetDeleteResponsePartition] = ...,
    ) -> None: ...

class OffsetDeleteResponsePartition(Message):
    partition_index: int
    error_code: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        error_code: int = ...,
    ) -> None: ...
