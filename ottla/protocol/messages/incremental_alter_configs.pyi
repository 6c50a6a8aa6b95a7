# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class IncrementalAlterConfigsRequest(Message):
    resources: list[AlterConfigsResource]
    validate_only: bool
    def __init__(
        self,
        *,
        resources: list[AlterConfigsResource] = ...,
        validate_only: bool = ...,
    ) -> None: ...

class AlterConfigsResource(Message):
    resource_type: int
    resource_name: str
    configs: list[AlterableConfig]
    def __init__(
        self,
        *,
        resource_type: int = ...,
        resource_name: str = ...,
        configs: list[AlterableConfig] = ...,
    ) -> None: ...

class AlterableConfig(Message):
    name: str
    config_operation: int
    value: str | None
    def __init__(
        self,
        *,
        name: str = ...,
        config_operation: int = ...,
        value: str | None = ...,
    ) -> None: ...

class IncrementalAlterConfigsResponse(Message):
    throttle_time_ms: int
    responses: list[AlterConfigsResourceResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        responses: list[AlterConfigsResourceResponse] = ...,
    ) -> None: ...

class AlterConfigsResourceResponse(Message):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    def __init__(
        self,
        *,
        error_code: int = ...,
        error_message: str | None = ...,
        resource_type: int = ...,
        resource_name: str = ...,
    ) -> None: ...
