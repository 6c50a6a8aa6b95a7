# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class DeleteGroupsRequest(Message):
    groups_names: list[str]
    def __init__(
        self,
        *,
        groups_names: list[str] = ...,
    ) -> None: ...

class DeleteGroupsResponse(Message):
    throttle_time_ms: int
    results: list[DeletableGroupResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        results: list[DeletableGroupResult] = ...,
    ) -> None: ...

class DeletableGroupResult(Message):
    group_id: str
    error_code: int
    def __init__(
        self,
        *,
        group_id: str = ...,
        error_code: int = ...,
    ) -> None: ...
