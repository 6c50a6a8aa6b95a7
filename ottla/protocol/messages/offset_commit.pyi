# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class OffsetCommitRequest(Message):
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: list[OffsetCommitRequestTopic]
    def __init__(
        self,
        *,
        group_id: str = ...,
        generation_id_or_member_epoch: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        retention_time_ms: int = ...,
        topics: list[OffsetCommitRequestTopic] = ...,
    ) -> None: ...

class OffsetCommitRequestTopic(Message):
    name: str
    partitions: list[OffsetCommitRequestPartition]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[OffsetCommitRequestPartition] = ...,
    ) -> None: ...

class OffsetCommitRequestPartition(Message):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None
    def __init__(
        self,
        *,
        partition_index: int = ...,
        committed_offset: int = ...,
        committed_leader_epoch: int = ...,
        committed_metadata: str | None = ...,
    ) -> None: ...

class OffsetCommitResponse(Message):
    throttle_time_ms: int
    topics: list[OffsetCommitResponseTopic]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: list[OffsetCommitResponseTopic] = ...,
    ) -> None: ...

class OffsetCommitResponseTopic(Message):
    name: str
    partitions: list[OffsetCommitResponsePartition]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[OffsetCommitResponsePartition] = ...,
    ) -> None: ...

class OffsetCommitResponsePartition(Message):
    partition_index: int
    error_code: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        error_code: int = ...,
    ) -> None: ...
