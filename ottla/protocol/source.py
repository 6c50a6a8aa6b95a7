"""Writing Python source: what the decoder's and the encoder's generators share."""

import struct
from typing import Any, Final

from ottla.protocol.schema import Field, Message, fields_of

LENGTH_FORMATS: Final = {"string": "h", "bytes": "i", "records": "i"}
"""How non-flexible versions write the length of a type."""

PREPARED_LENGTHS: Final = 17
"""Arrays of numbers below this length, which is nearly all of them, are packed by structs that are made once."""


class Source:
    """Lines of one function, and the names they use."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names
        self._lines: list[str] = []
        self._depth = 0

    def line(self, text: str) -> None:
        self._lines.append(" " * self._depth + text)

    def open(self, text: str) -> None:
        """A line that begins a block; `close` ends it."""
        self.line(text)
        self._depth += 1

    def close(self) -> None:
        self._depth -= 1

    def constant(self, prefix: str, value: Any) -> str:
        """A name for a value that source text cannot spell."""
        for name, known in self.names.items():
            if known is value and name.startswith(prefix):
                return name
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    def packed(self, code: str, method: str) -> str:
        """A name for the bound method of a `struct.Struct`, e.g. packed("hi", "pack")."""
        name = f"{method}_{code.replace('?', 'o')}"
        if name not in self.names:
            self.names[name] = getattr(struct.Struct(f">{code}"), method)
        return name

    def prepared(self, code: str, method: str, count_code: str = "") -> str:
        """A name for the list of the `packed` methods for arrays of numbers, by length, a count in front if wanted."""
        name = f"{method}_{count_code}_array_of_{code.replace('?', 'o')}"
        if name not in self.names:
            structs = [struct.Struct(f">{count_code}{length}{code}") for length in range(PREPARED_LENGTHS)]
            self.names[name] = [getattr(made, method) for made in structs]
        return name

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def build(self, function: str, title: str) -> Any:
        exec(compile(self.text(), f"<{title}>", "exec"), self.names)
        return self.names[function]


def plain_fields(cls: type[Message], version: int) -> list[Field]:
    """The fields of this version outside the tag section."""
    return [field for field in fields_of(cls) if version in field.versions and field.tag is None]


def tagged_fields(cls: type[Message], version: int) -> list[Field]:
    """The tagged fields of this version, by rising tag."""
    tagged = [field for field in fields_of(cls) if version in field.versions and field.tag is not None]
    return sorted(tagged, key=lambda field: field.tag or 0)


def absent_fields(cls: type[Message], version: int) -> list[Field]:
    """The fields that keep their defaults in this version."""
    return [field for field in fields_of(cls) if version not in field.versions]


def has_views(cls: type[Message], version: int) -> bool:
    """Whether something in this version of the message is decoded to a view of the frame."""
    return any(
        field.type_name == "records" or field.is_view or (field.struct is not None and has_views(field.struct, version))
        for field in plain_fields(cls, version)
    )


def has_records(cls: type[Message], version: int) -> bool:
    """Whether record bytes occur in this version of the message."""
    return any(
        field.type_name == "records" or (field.struct is not None and has_records(field.struct, version))
        for field in plain_fields(cls, version)
    )
