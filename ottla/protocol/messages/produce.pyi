# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.primitives import RecordBuffers
from ottla.protocol.schema import Message

TABLE: str

class ProduceRequest(Message):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: list[TopicProduceData]
    def __init__(
        self,
        *,
        transactional_id: str | None = ...,
        acks: int = ...,
        timeout_ms: int = ...,
        topic_data: list[TopicProduceData] = ...,
    ) -> None: ...

class TopicProduceData(Message):
    name: str
    topic_id: bytes
    partition_data: list[PartitionProduceData]
    def __init__(
        self,
        *,
        name: str = ...,
        topic_id: bytes = ...,
        partition_data: list[PartitionProduceData] = ...,
    ) -> None: ...

class PartitionProduceData(Message):
    index: int
    @property
    def records(self) -> memoryview | None: ...
    @records.setter
    def records(self, value: RecordBuffers | None) -> None: ...
    def __init__(
        self,
        *,
        index: int = ...,
        records: RecordBuffers | None = ...,
    ) -> None: ...

class ProduceResponse(Message):
    responses: list[TopicProduceResponse]
    throttle_time_ms: int
    node_endpoints: list[NodeEndpoint]
    def __init__(
        self,
        *,
        responses: list[TopicProduceResponse] = ...,
        throttle_time_ms: int = ...,
        node_endpoints: list[NodeEndpoint] = ...,
    ) -> None: ...

class TopicProduceResponse(Message):
    name: str
    topic_id: bytes
    partition_responses: list[PartitionProduceResponse]
    def __init__(
        self,
        *,
        name: str = ...,
        topic_id: bytes = ...,
        partition_responses: list[PartitionProduceResponse] = ...,
    ) -> None: ...

class PartitionProduceResponse(Message):
    index: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_errors: list[BatchIndexAndErrorMessage]
    error_message: str | None
    current_leader: LeaderIdAndEpoch | None
    def __init__(
        self,
        *,
        index: int = ...,
        error_code: int = ...,
        base_offset: int = ...,
        log_append_time_ms: int = ...,
        log_start_offset: int = ...,
        record_errors: list[BatchIndexAndErrorMessage] = ...,
        error_message: str | None = ...,
        current_leader: LeaderIdAndEpoch | None = ...,
    ) -> None: ...

class BatchIndexAndErrorMessage(Message):
    batch_index: int
    batch_index_error_message: str | None
    def __init__(
        self,
        *,
        batch_index: int = ...,
        batch_index_error_message: str | None = ...,
    ) -> None: ...

class LeaderIdAndEpoch(Message):
    leader_id: int
    leader_epoch: int
    def __init__(
        self,
        *,
        leader_id: int = ...,
        leader_epoch: int = ...,
    ) -> None: ...

class NodeEndpoint(Message):
    node_id: int
    host: str
    port: int
    rack: str | None
    def __init__(
        self,
        *,
        node_id: int = ...,
        host: str = ...,
        port: int = ...,
        rack: str | None = ...,
    ) -> None: ...
