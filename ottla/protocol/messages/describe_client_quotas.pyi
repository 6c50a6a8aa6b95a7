# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
from ottla.protocol.schema import Message

TABLE: str

class DescribeClientQuotasRequest(Message):
    components: list[ComponentData]
    strict: bool
    def __init__(
        self,
        *,
        components: list[ComponentData] = ...,
        strict: bool = ...,
    ) -> None: ...

class ComponentData(Message):
    entity_type: str
    match_type: int
    match: str | None
    def __init__(
        self,
        *,
        entity_type: str = ...,
        match_type: int = ...,
        match: str | None = ...,
    ) -> None: ...

class DescribeClientQuotasResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: list[EntryData] | None
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        entries: list[EntryData] | None = ...,
    ) -> None: ...

class EntryData(Message):
    entity: list[EntityData]
    values: list[ValueData]
    def __init__(
        self,
        *,
        entity: list[EntityData] = ...,
        values: list[ValueData] = ...,
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

class ValueData(Message):
    key: str
    value: float
    def __init__(
        self,
        *,
        key: str = ...,
        value: float = ...,
    ) -> None: ...
