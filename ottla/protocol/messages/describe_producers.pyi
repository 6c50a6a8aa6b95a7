# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class DescribeProducersRequest(Message):
    topics: list[TopicRequest]
    def __init__(
        self,
        *,
        topics: list[TopicRequest] = ...,
    ) -> None: ...

class TopicRequest(Message):
    name: str
    partition_indexes: list[int]
    def __init__(
        self,
        *,
        name: str = ...,
        partition_indexes: list[int] = ...,
    ) -> None: ...

class DescribeProducersResponse(Message):
    throttle_time_ms: int
    topics: list[TopicResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: list[TopicResponse] = ...,
    ) -> None: ...

class TopicResponse(Message):
    name: str
    partitions: list[PartitionResponse]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[PartitionResponse] = ...,
    ) -> None: ...

class PartitionResponse(Message):
    partition_index: int
    error_code: int
    error_message: str | None
    active_producers: list[ProducerState]
    def __init__(
        self,
        *,
        partition_index: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        active_producers: list[ProducerState] = ...,
    ) -> None: ...

class ProducerState(Message):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int
    def __init__(
        self,
        *,
        producer_id: int = ...,
        producer_epoch: int = ...,
        last_sequence: int = ...,
        last_timestamp: int = ...,
        coordinator_epoch: int = ...,
        current_txn_start_offset: int = ...,
    ) -> None: ...
