# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class AlterReplicaLogDirsRequest(Message):
    dirs: list[AlterReplicaLogDir]
    def __init__(
        self,
        *,
        dirs: list[AlterReplicaLogDir] = ...,
    ) -> None: ...

class AlterReplicaLogDir(Message):
    path: str
    topics: list[AlterReplicaLogDirTopic]
    def __init__(
        self,
        *,
        path: str = ...,
        topics: list[AlterReplicaLogDirTopic] = ...,
    ) -> None: ...

class AlterReplicaLogDirTopic(Message):
    name: str
    partitions: list[int]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[int] = ...,
    ) -> None: ...

class AlterReplicaLogDirsResponse(Message):
    throttle_time_ms: int
    results: list[AlterReplicaLogDirTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        results: list[AlterReplicaLogDirTopicResult] = ...,
    ) -> None: ...

class AlterReplicaLogDirTopicResult(Message):
    topic_name: str
    partitions: list[AlterReplicaLogDirPartitionResult]
    def __init__(
        self,
        *,
        topic_name: str = ...,
        partitions: list[AlterReplicaLogDirPartitionResult] = ...,
    ) -> None: ...

class AlterReplicaLogDirPartitionResult(Message):
    partition_index: int
    error_code: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        error_code: int = ...,
    ) -> None: ...
