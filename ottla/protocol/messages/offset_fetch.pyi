# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class OffsetFetchRequest(Message):
    group_id: str
    topics: list[OffsetFetchRequestTopic] | None
    groups: list[OffsetFetchRequestGroup]
    require_stable: bool
    def __init__(
        self,
        *,
        group_id: str = ...,
        topics: list[OffsetFetchRequestTopic] | None = ...,
        groups: list[OffsetFetchRequestGroup] = ...,
        require_stable: bool = ...,
    ) -> None: ...

class OffsetFetchRequestTopic(Message):
    name: str
    partition_indexes: list[int]
    def __init__(
        self,
        *,
        name: str = ...,
        partition_indexes: list[int] = ...,
    ) -> None: ...

class OffsetFetchRequestGroup(Message):
    group_id: str
    member_id: str | None
    member_epoch: int
    topics: list[OffsetFetchRequestTopics] | None
    def __init__(
        self,
        *,
        group_id: str = ...,
        member_id: str | None = ...,
        member_epoch: int = ...,
        topics: list[OffsetFetchRequestTopics] | None = ...,
    ) -> None: ...

class OffsetFetchRequestTopics(Message):
    name: str
    partition_indexes: list[int]
    def __init__(
        self,
        *,
        name: str = ...,
        partition_indexes: list[int] = ...,
    ) -> None: ...

class OffsetFetchResponse(Message):
    throttle_time_ms: int
    topics: list[OffsetFetchResponseTopic]
    error_code: int
    groups: list[OffsetFetchResponseGroup]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: list[OffsetFetchResponseTopic] = ...,
        error_code: int = ...,
        groups: list[OffsetFetchResponseGroup] = ...,
    ) -> None: ...

class OffsetFetchResponseTopic(Message):
    name: str
    partitions: list[OffsetFetchResponsePartition]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[OffsetFetchResponsePartition] = ...,
    ) -> None: ...

class OffsetFetchResponsePartition(Message):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        committed_offset: int = ...,
        committed_leader_epoch: int = ...,
        metadata: str | None = ...,
        error_code: int = ...,
    ) -> None: ...

class OffsetFetchResponseGroup(Message):
    group_id: str
    topics: list[OffsetFetchResponseTopics]
    error_code: int
    def __init__(
        self,
        *,
        group_id: str = ...,
        topics: list[OffsetFetchResponseTopics] = ...,
        error_code: int = ...,
    ) -> None: ...

class OffsetFetchResponseTopics(Message):
    name: str
    partitions: list[OffsetFetchResponsePartitions]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[OffsetFetchResponsePartitions] = ...,
    ) -> None: ...

class OffsetFetchResponsePartitions(Message):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        committed_offset: int = ...,
        committed_leader_epoch: int = ...,
        metadata: str | None = ...,
        error_code: int = ...,
    ) -> None: ...
