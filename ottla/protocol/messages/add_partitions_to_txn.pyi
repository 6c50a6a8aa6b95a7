# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class AddPartitionsToTxnRequest(Message):
    transactions: list[AddPartitionsToTxnTransaction]
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: list[AddPartitionsToTxnTopic]
    def __init__(
        self,
        *,
        transactions: list[AddPartitionsToTxnTransaction] = ...,
        v3_and_below_transactional_id: str = ...,
        v3_and_below_producer_id: int = ...,
        v3_and_below_producer_epoch: int = ...,
        v3_and_below_topics: list[AddPartitionsToTxnTopic] = ...,
    ) -> None: ...

class AddPartitionsToTxnTransaction(Message):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    topics: list[AddPartitionsToTxnTopic]
    def __init__(
        self,
        *,
        transactional_id: str = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        verify_only: bool = ...,
        topics: list[AddPartitionsToTxnTopic] = ...,
    ) -> None: ...

class AddPartitionsToTxnTopic(Message):
    name: str
    partitions: list[int]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[int] = ...,
    ) -> None: ...

class AddPartitionsToTxnResponse(Message):
    throttle_time_ms: int
    error_code: int
    results_by_transaction: list[AddPartitionsToTxnResult]
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        results_by_transaction: list[AddPartitionsToTxnResult] = ...,
        results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = ...,
    ) -> None: ...

class AddPartitionsToTxnResult(Message):
    transactional_id: str
    topic_results: list[AddPartitionsToTxnTopicResult]
    def __init__(
        self,
        *,
        transactional_id: str = ...,
        topic_results: list[AddPartitionsToTxnTopicResult] = ...,
    ) -> None: ...

class AddPartitionsToTxnTopicResult(Message):
    name: str
    results_by_partition: list[AddPartitionsToTxnPartitionResult]
    def __init__(
        self,
        *,
        name: str = ...,
        results_by_partition: list[AddPartitionsToTxnPartitionResult] = ...,
    ) -> None: ...

class AddPartitionsToTxnPartitionResult(Message):
    partition_index: int
    partition_error_code: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        partition_error_code: int = ...,
    ) -> None: ...
