# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class TxnOffsetCommitRequest(Message):
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int
    member_id: str
    group_instance_id: str | None
    topics: list[TxnOffsetCommitRequestTopic]
    def __init__(
        self,
        *,
        transactional_id: str = ...,
        group_id: str = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        generation_id: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        topics: list[TxnOffsetCommitRequestTopic] = ...,
    ) -> None: ...

class TxnOffsetCommitRequestTopic(Message):
    name: str
    partitions: list[TxnOffsetCommitRequestPartition]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[TxnOffsetCommitRequestPartition] = ...,
    ) -> None: ...

class TxnOffsetCommitRequestPartition(Message):
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

class TxnOffsetCommitResponse(Message):
    throttle_time_ms: int
    topics: list[TxnOffsetCommitResponseTopic]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: list[TxnOffsetCommitResponseTopic] = ...,
    ) -> None: ...

class TxnOffsetCommitResponseTopic(Message):
    name: str
    partitions: list[TxnOffsetCommitResponsePartition]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[TxnOffsetCommitResponsePartition] = ...,
    ) -> None: ...

class TxnOffsetCommitResponsePartition(Message):
    partition_index: int
    error_code: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        error_code: int = ...,
    ) -> None: ...
