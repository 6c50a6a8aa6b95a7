# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class CreateAclsRequest(Message):
    creations: list[AclCreation]
    def __init__(
        self,
        *,
        creations: list[AclCreation] = ...,
    ) -> None: ...

class AclCreation(Message):
    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int
    def __init__(
        self,
        *,
        resource_type: int = ...,
        resource_name: str = ...,
        resource_pattern_type: int = ...,
        principal: str = ...,
        host: str = ...,
        operation: int = ...,
        permission_type: int = ...,
    ) -> None: ...

class CreateAclsResponse(Message):
    throttle_time_ms: int
    results: list[AclCreationResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        results: list[AclCreationResult] = ...,
    ) -> None: ...

class AclCreationResult(Message):
    error_code: int
    error_message: str | None
    def __init__(
        self,
        *,
        error_code: int = ...,
        error_message: str | None = ...,
    ) -> None: ...
