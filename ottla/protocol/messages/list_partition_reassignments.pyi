# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class ListPartitionReassignmentsRequest(Message):
    timeout_ms: int
    topics: list[ListPartitionReassignmentsTopics] | None
    def __init__(
        self,
        *,
        timeout_ms: int = ...,
        topics: list[ListPartitionReassignmentsTopics] | None = ...,
    ) -> None: ...

class ListPartitionReassignmentsTopics(Message):
    name: str
    partition_indexes: list[int]
    def __init__(
        self,
        *,
        name: str = ...,
        partition_indexes: list[int] = ...,
    ) -> None: ...

class ListPartitionReassignmentsResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    topics: list[OngoingTopicReassignment]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        topics: list[OngoingTopicReassignment] = ...,
    ) -> None: ...

class OngoingTopicReassignment(Message):
    name: str
    partitions: list[OngoingPartitionReassignment]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[OngoingPartitionReassignment] = ...,
    ) -> None: ...

class OngoingPartitionReassignment(Message):
    partition_index: int
    replicas: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]
    def __init__(
        self,
        *,
        partition_index: int = ...,
        replicas: list[int] = ...,
        adding_replicas: list[int] = ...,
        removing_replicas: list[int] = ...,
    ) -> None: ...
