# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class AlterClientQuotasRequest(Message):
    entries: list[EntryData]
    validate_only: bool
    def __init__(
        self,
        *,
        entries: list[EntryData] = ...,
        validate_only: bool = ...,
    ) -> None: ...

class EntryData(Message):
    entity: list[EntityData]
    ops: list[OpData]
    def __init__(
        self,
        *,
        entity: list[EntityData] = ...,
        ops: list[OpData] = ...,
    ) -> None: ...

class EntityData(Message):
    entity_type: str
    entity_name: str | None
    def __init__(
        self,
        *,
        entity_type: str = ...,
        entity_name: str | None = ...,
    ) -> None: ...

class OpData(Message):
    key: str
    value: float
    remove: bool
    def __init__(
        self,
        *,
        key: str = ...,
        value: float = ...,
        remove: bool = ...,
    ) -> None: ...

class AlterClientQuotasResponse(Message):
    throttle_time_ms: int
    entries: list[EntryResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        entries: list[EntryResult] = ...,
    ) -> None: ...

class EntryResult(Message):
    error_code: int
    error_message: str | None
    entity: list[EntityResult]
    def __init__(
        self,
        *,
        error_code: int = ...,
        error_message: str | None = ...,
        entity: list[EntityResult] = ...,
    ) -> None: ...

class EntityResult(Message):
    entity_type: str
    entity_name: str | None
    def __init__(
        self,
        *,
        entity_type: str = ...,
        entity_name: str | None = ...,
    ) -> None: ...
