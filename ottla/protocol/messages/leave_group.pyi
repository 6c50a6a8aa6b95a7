# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class LeaveGroupRequest(Message):
    group_id: str
    member_id: str
    members: list[MemberIdentity]
    def __init__(
        self,
        *,
        group_id: str = ...,
        member_id: str = ...,
        members: list[MemberIdentity] = ...,
    ) -> None: ...

class MemberIdentity(Message):
    member_id: str
    group_instance_id: str | None
    reason: str | None
    def __init__(
        self,
        *,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        reason: str | None = ...,
    ) -> None: ...

class LeaveGroupResponse(Message):
    throttle_time_ms: int
    error_code: int
    members: list[MemberResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        members: list[MemberResponse] = ...,
    ) -> None: ...

class MemberResponse(Message):
    member_id: str
    group_instance_id: str | None
    error_code: int
    def __init__(
        self,
        *,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        error_code: int = ...,
    ) -> None: ...
