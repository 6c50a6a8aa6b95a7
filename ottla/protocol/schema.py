"""Messages as text tables: one line per field, one class for all versions.

A table holds one or more messages, separated by blank lines. The first line of a message names it; each further line
is a field, and the fields of a structure follow it, indented by two more spaces:

    HeartbeatRequest  key 12  versions 0-4  flexible 4+
      group_id           string  0+
      generation_id      int32   0+
      group_instance_id  string  3+  null = null

What is no request or response, such as a record's key, has `key none`.

A field has a name, a type (`[]` in front: an array) and the versions that carry it, then, where they apply: `null`
(may be null in all its versions) or `null 7+` (since then), `tag N` (a tagged field of KIP-482), `= value` (the
default, when it is not the type's zero), `view` (bytes of a request that are decoded to a view of its frame). A
structure that was spelled out once can be named again without its fields. Versions are cut to the range the message
states: `0-12` and `4-12` mean the same in a message of versions 4-17.

`define` makes the classes and does as little else as it can, for a broker imports many messages before it answers its
first request. Field lines are understood when a constructor or codec is first asked for.
"""

from typing import Any, ClassVar, Final, NamedTuple

from ottla.protocol.primitives import ZERO_UUID

FORMATS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Types of fixed size, and how the struct module writes them."""

_ZEROS: Final[dict[str, Any]] = {
    "bool": False,
    "float64": 0.0,
    "uuid": ZERO_UUID,
    "string": "",
    "bytes": b"",
    "records": None,
}
API_VERSIONS: Final = 18
SECRET_FIELDS: Final = frozenset({"auth_bytes", "salt", "salted_password", "hmac"})
"""A message that is shown, in a log or a traceback, does not show these."""

_UNSET: Final[Any] = object()


class Versions(NamedTuple):
    """An inclusive range."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


_NO_VERSIONS: Final = Versions(1, 0)


class Field(NamedTuple):
    """One line of a table. `struct` is the class of the (elements of the) field when it is a structure."""

    name: str
    type_name: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int | None
    default: str | None
    struct: "type[Message] | None"
    is_view: bool = False
    """Bytes that are decoded to a view of the frame."""

    def default_is_fresh(self) -> bool:
        """Whether each message needs a default value of its own, because it can be changed."""
        return self.default != "null" and (self.is_array or (self.struct is not None and self.tag is None))

    def default_value(self) -> Any:
        """The value of a field that was not given. A tagged structure that is not sent is None."""
        if self.default == "null" or (self.struct is not None and self.tag is not None and not self.is_array):
            return None
        if self.is_array:
            return []
        if self.struct is not None:
            return self.struct()
        if self.default is None:
            return _ZEROS.get(self.type_name, 0)
        if self.type_name == "bool":
            return self.default == "true"
        return self.default if self.type_name == "string" else int(self.default)


class Message:
    """Base of all messages and their structures: keyword arguments, equality, a readable form.

    Fields that a version does not carry keep their defaults when it is decoded and are left out when it is encoded.
    """

    __slots__ = ()

    API_KEY: ClassVar[int] = -1
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_FROM: ClassVar[int | None] = None

    def __init__(self, **fields: Any) -> None:
        # The first instance makes the constructor of its class.
        cls = type(self)
        if cls.__init__ is Message.__init__:
            cls.__init__ = _constructor(cls)  # type: ignore[method-assign]
            cls.__init__(self, **fields)
        else:
            raise TypeError(f"{cls.__name__} is made by keyword arguments")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in fields_of(type(self)))

    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ((field.name, getattr(self, field.name)) for field in fields_of(type(self)))
        values = ", ".join(f"{name}={'[hidden]' if name in SECRET_FIELDS else repr(value)}" for name, value in shown)
        return f"{type(self).__name__}({values})"


class _Definition(NamedTuple):
    """Where a class came from: its lines, split into words, and what they refer to."""

    lines: list[list[str]]
    structs: dict[str, type[Message]]
    versions: Versions


_definitions: Final[dict[type[Message], _Definition]] = {}
_fields: Final[dict[type[Message], tuple[Field, ...]]] = {}


def define(table: str, module: str = __name__) -> tuple[type[Message], ...]:
    """The classes of a table's messages and structures, in the order of their first line.

    `module` is the name of the module they will live in.
    """
    classes: dict[str, type[Message]] = {}
    blocks = [lines for lines in (block.splitlines() for block in table.split("\n\n")) if any(lines)]
    for lines in blocks:
        rows = [line for line in lines if line.strip()]
        _define_message(rows, classes, module)
    return tuple(classes.values())


def _define_message(rows: list[str], classes: dict[str, type[Message]], module: str) -> None:
    head = rows[0].split()
    key, versions, flexible = head[2], head[4], head[6]
    span = _parse_versions(versions, Versions(0, 0x7FFF))
    structs: dict[str, list[list[str]]] = {head[0]: []}
    owners = [head[0]]  # The structure that each level of indentation belongs to.
    for row in rows[1:]:
        words = row.split()
        depth = (len(row) - len(row.lstrip())) // 2
        owner = owners[depth - 1]
        structs.setdefault(owner, []).append(words)
        owners[depth:] = [words[1].removeprefix("[]")]
    for name, lines in structs.items():
        attributes = {"__slots__": tuple([words[0] for words in lines]), "__module__": module}
        cls = classes[name] = type(name, (Message,), attributes)
        _definitions[cls] = _Definition(lines, classes, span)
    message = classes[head[0]]
    message.API_KEY = -1 if key == "none" else int(key)
    message.VERSIONS = (span.first, span.last)
    message.FLEXIBLE_FROM = None if flexible == "none" else int(flexible.removesuffix("+"))


def is_flexible(cls: type[Message], version: int) -> bool:
    """Whether strings, arrays and structures of this version have the compact forms and tagged fields of KIP-482, and
    whether a request's header ends in tagged fields."""
    return cls.FLEXIBLE_FROM is not None and version >= cls.FLEXIBLE_FROM


def response_header_is_tagged(cls: type[Message], version: int) -> bool:
    """Whether a response's header ends in tagged fields. That of ApiVersions never does: a client that guessed too high
    a version must be able to read the answer (KIP-511)."""
    return is_flexible(cls, version) and cls.API_KEY != API_VERSIONS


def response_class_of(request_class: type[Message]) -> type[Message]:
    """The response of a request: the message beside it in its table."""
    name = request_class.__name__.removesuffix("Request") + "Response"
    return _definitions[request_class].structs[name]


def fields_of(cls: type[Message]) -> tuple[Field, ...]:
    """The fields of a message or structure, in the order of the wire."""
    fields = _fields.get(cls)
    if fields is None:
        definition = _definitions[cls]
        fields = _fields[cls] = tuple(_parse_field(words, definition, cls.__name__) for words in definition.lines)
    return fields


def _parse_field(words: list[str], definition: _Definition, owner: str) -> Field:
    name, type_name, versions_text, *options = words
    is_array = type_name.startswith("[]")
    type_name = type_name.removeprefix("[]")
    versions = _parse_versions(versions_text, definition.versions)
    nullable, tag, default, is_view = _NO_VERSIONS, None, None, False
    while options:
        match options.pop(0):
            case "null":
                since = options.pop(0) if options and options[0][0].isdigit() else versions_text
                nullable = _parse_versions(since, versions)
            case "tag":
                tag = int(options.pop(0))
            case "=":
                default = options.pop(0)
            case "view":
                is_view = True
            case other:
                raise AssertionError(f"{owner}.{name}: unknown option {other!r}")
    struct = definition.structs.get(type_name)
    return Field(name, type_name, is_array, versions, nullable, tag, default, struct, is_view)


def _parse_versions(text: str, within: Versions) -> Versions:
    first, dash, last = text.removesuffix("+").partition("-")
    upper = within.last if text.endswith("+") else int(last) if dash else int(first)
    return Versions(max(int(first), within.first), min(upper, within.last))


def _constructor(cls: type[Message]) -> Any:
    """Compile `__init__` with every field as a keyword argument. Mutable defaults are created for each call."""
    names: dict[str, Any] = {"unset": _UNSET}
    parameters: list[str] = []
    body: list[str] = []
    for field in fields_of(cls):
        default = f"default_{field.name}"
        value = field.name
        if field.default_is_fresh():
            names[default] = list if field.is_array else field.struct
            value = f"{default}() if {field.name} is unset else {field.name}"
            parameters.append(f"{field.name}=unset")
        else:
            names[default] = field.default_value()
            parameters.append(f"{field.name}={default}")
        body.append(f"  self.{field.name} = {value}\n")
    keywords = f", *, {', '.join(parameters)}" if parameters else ""
    exec(f"def __init__(self{keywords}):\n{''.join(body) or '  pass'}", names)
    return names["__init__"]
