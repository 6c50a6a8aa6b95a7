# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class ListGroupsRequest(Message):
    states_filter: list[str]
    types_filter: list[str]
    def __init__(
        self,
        *,
        states_filter: list[str] = ...,
        types_filter: list[str] = ...,
    ) -> None: ...

class ListGroupsResponse(Message):
    throttle_time_ms: int
    error_code: int
    groups: list[ListedGroup]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        groups: list[ListedGroup] = ...,
    ) -> None: ...

class ListedGroup(Message):
    group_id: str
    protocol_type: str
    group_state: str
    group_type: str
    def __init__(
        self,
        *,
        group_id: str = ...,
        protocol_type: str = ...,
        group_state: str = ...,
        group_type: str = ...,
    ) -> None: ...
