# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class DeleteAclsRequest(Message):
    filters: list[DeleteAclsFilter]
    def __init__(
        self,
        *,
        filters: list[DeleteAclsFilter] = ...,
    ) -> None: ...

class DeleteAclsFilter(Message):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int
    def __init__(
        self,
        *,
        resource_type_filter: int = ...,
        resource_name_filter: str | None = ...,
        pattern_type_filter: int = ...,
        principal_filter: str | None = ...,
        host_filter: str | None = ...,
        operation: int = ...,
        permission_type: int = ...,
    ) -> None: ...

class DeleteAclsResponse(Message):
    throttle_time_ms: int
    filter_results: list[DeleteAclsFilterResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        filter_results: list[DeleteAclsFilterResult] = ...,
    ) -> None: ...

class DeleteAclsFilterResult(Message):
    error_code: int
    error_message: str | None
    matching_acls: list[DeleteAclsMatchingAcl]
    def __init__(
        self,
        *,
        error_code: int = ...,
        error_message: str | None = ...,
        matching_acls: list[DeleteAclsMatchingAcl] = ...,
    ) -> None: ...

class DeleteAclsMatchingAcl(Message):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int
    def __init__(
        self,
        *,
        error_code: int = ...,
        error_message: str | None = ...,
        resource_type: int = ...,
        resource_name: str = ...,
        pattern_type: int = ...,
        principal: str = ...,
        host: str = ...,
        operation: int = ...,
        permission_type: int = ...,
    ) -> None: ...
