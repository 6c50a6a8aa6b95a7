# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class WriteTxnMarkersRequest(Message):
    markers: list[WritableTxnMarker]
    def __init__(
        self,
        *,
        markers: list[WritableTxnMarker] = ...,
    ) -> None: ...

class WritableTxnMarker(Message):
    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: int
    transaction_version: int
    def __init__(
        self,
        *,
        producer_id: int = ...,
        producer_epoch: int = ...,
        transaction_result: bool = ...,
        topics: list[WritableTxnMarkerTopic] = ...,
        coordinator_epoch: int = ...,
        transaction_version: int = ...,
    ) -> None: ...

class WritableTxnMarkerTopic(Message):
    name: str
    partition_indexes: list[int]
    def __init__(
        self,
        *,
        name: str = ...,
        partition_indexes: list[int] = ...,
    ) -> None: ...

class WriteTxnMarkersResponse(Message):
    markers: list[WritableTxnMarkerResult]
    def __init__(
        self,
        *,
        markers: list[WritableTxnMarkerResult] = ...,
    ) -> None: ...

class WritableTxnMarkerResult(Message):
    producer_id: int
    topics: list[WritableTxnMarkerTopicResult]
    def __init__(
        self,
        *,
        producer_id: int = ...,
        topics: list[WritableTxnMarkerTopicResult] = ...,
    ) -> None: ...

class WritableTxnMarkerTopicResult(Message):
    name: str
    partitions: list[WritableTxnMarkerPartitionResult]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[WritableTxnMarkerPartitionResult] = ...,
    ) -> None: ...

class WritableTxnMarkerPartitionResult(Message):
    partition_index: int
    error_code: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        error_code: int = ...,
    ) -> None: ...
