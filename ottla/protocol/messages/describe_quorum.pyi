# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class DescribeQuorumRequest(Message):
    topics: list[QuorumTopic]
    def __init__(
        self,
        *,
        topics: list[QuorumTopic] = ...,
    ) -> None: ...

class QuorumTopic(Message):
    topic_name: str
    partitions: list[QuorumPartition]
    def __init__(
        self,
        *,
        topic_name: str = ...,
        partitions: list[QuorumPartition] = ...,
    ) -> None: ...

class QuorumPartition(Message):
    partition_index: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
    ) -> None: ...

class DescribeQuorumResponse(Message):
    error_code: int
    error_message: str | None
    topics: list[QuorumTopicData]
    nodes: list[QuorumNode]
    def __init__(
        self,
        *,
        error_code: int = ...,
        error_message: str | None = ...,
        topics: list[QuorumTopicData] = ...,
        nodes: list[QuorumNode] = ...,
    ) -> None: ...

class QuorumTopicData(Message):
    topic_name: str
    partitions: list[QuorumPartitionData]
    def __init__(
        self,
        *,
        topic_name: str = ...,
        partitions: list[QuorumPartitionData] = ...,
    ) -> None: ...

class QuorumPartitionData(Message):
    partition_index: int
    error_code: int
    error_message: str | None
    leader_id: int
    leader_epoch: int
    high_watermark: int
    current_voters: list[QuorumReplicaState]
    observers: list[QuorumReplicaState]
    def __init__(
        self,
        *,
        partition_index: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        leader_id: int = ...,
        leader_epoch: int = ...,
        high_watermark: int = ...,
        current_voters: list[QuorumReplicaState] = ...,
        observers: list[QuorumReplicaState] = ...,
    ) -> None: ...

class QuorumReplicaState(Message):
    replica_id: int
    replica_directory_id: bytes
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int
    def __init__(
        self,
        *,
        replica_id: int = ...,
        replica_directory_id: bytes = ...,
        log_end_offset: int = ...,
        last_fetch_timestamp: int = ...,
        last_caught_up_timestamp: int = ...,
    ) -> None: ...

class QuorumNode(Message):
    node_id: int
    listeners: list[QuorumNodeListener]
    def __init__(
        self,
        *,
        node_id: int = ...,
        listeners: list[QuorumNodeListener] = ...,
    ) -> None: ...

class QuorumNodeListener(Message):
    name: str
    host: str
    port: int
    def __init__(
        self,
        *,
        name: str = ...,
        host: str = ...,
        port: int = ...,
    ) -> None: ...
