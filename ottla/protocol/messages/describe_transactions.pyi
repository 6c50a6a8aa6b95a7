# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class DescribeTransactionsRequest(Message):
    transactional_ids: list[str]
    def __init__(
        self,
        *,
        transactional_ids: list[str] = ...,
    ) -> None: ...

class DescribeTransactionsResponse(Message):
    throttle_time_ms: int
    transaction_states: list[DescribedTransaction]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        transaction_states: list[DescribedTransaction] = ...,
    ) -> None: ...

class DescribedTransaction(Message):
    error_code: int
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    producer_id: int
    producer_epoch: int
    topics: list[TransactionTopic]
    def __init__(
        self,
        *,
        error_code: int = ...,
        transactional_id: str = ...,
        transaction_state: str = ...,
        transaction_timeout_ms: int = ...,
        transaction_start_time_ms: int = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        topics: list[TransactionTopic] = ...,
    ) -> None: ...

class TransactionTopic(Message):
    topic: str
    partitions: list[int]
    def __init__(
        self,
        *,
        topic: str = ...,
        partitions: list[int] = ...,
    ) -> None: ...
