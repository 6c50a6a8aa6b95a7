# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class DeleteTopicsRequest(Message):
    topics: list[DeleteTopicState]
    topic_names: list[str]
    timeout_ms: int
    def __init__(
        self,
        *,
        topics: list[DeleteTopicState] = ...,
        topic_names: list[str] = ...,
        timeout_ms: int = ...,
    ) -> None: ...

class DeleteTopicState(Message):
    name: str | None
    topic_id: bytes
    def __init__(
        self,
        *,
        name: str | None = ...,
        topic_id: bytes = ...,
    ) -> None: ...

class DeleteTopicsResponse(Message):
    throttle_time_ms: int
    responses: list[DeletableTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        responses: list[DeletableTopicResult] = ...,
    ) -> None: ...

class DeletableTopicResult(Message):
    name: str | None
    topic_id: bytes
    error_code: int
    error_message: str | None
    def __init__(
        self,
        *,
        name: str | None = ...,
        topic_id: bytes = ...,
        error_code: int = ...,
        error_message: str | None = ...,
    ) -> None: ...
