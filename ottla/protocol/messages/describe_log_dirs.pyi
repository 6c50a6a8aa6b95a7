# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class DescribeLogDirsRequest(Message):
    topics: list[DescribableLogDirTopic] | None
    def __init__(
        self,
        *,
        topics: list[DescribableLogDirTopic] | None = ...,
    ) -> None: ...

class DescribableLogDirTopic(Message):
    topic: str
    partitions: list[int]
    def __init__(
        self,
        *,
        topic: str = ...,
        partitions: list[int] = ...,
    ) -> None: ...

class DescribeLogDirsResponse(Message):
    throttle_time_ms: int
    error_code: int
    results: list[DescribeLogDirsResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        results: list[DescribeLogDirsResult] = ...,
    ) -> None: ...

class DescribeLogDirsResult(Message):
    error_code: int
    log_dir: str
    topics: list[DescribeLogDirsTopic]
    total_bytes: int
    usable_bytes: int
    def __init__(
        self,
        *,
        error_code: int = ...,
        log_dir: str = ...,
        topics: list[DescribeLogDirsTopic] = ...,
        total_bytes: int = ...,
        usable_bytes: int = ...,
    ) -> None: ...

class DescribeLogDirsTopic(Message):
    name: str
    partitions: list[DescribeLogDirsPartition]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[DescribeLogDirsPartition] = ...,
    ) -> None: ...

class DescribeLogDirsPartition(Message):
    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool
    def __init__(
        self,
        *,
        partition_index: int = ...,
        partition_size: int = ...,
        offset_lag: int = ...,
        is_future_key: bool = ...,
    ) -> None: ...
