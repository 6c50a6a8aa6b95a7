"""The decoder's generator: Python source for one version of one message.

The generated function is `decode(buf, p, end) -> (message, position)`. Neighbouring fields of fixed size, together
with the length of what follows them, are read by one `struct` call. Reads of fixed size do not check `end`: the
position only grows, so that one check after the last field finds any of them that went past it, and reading past the
buffer itself is an exception of `struct`. Lengths and counts are checked where they are read, before anything is made.

A message without records is copied once to `bytes`, of which slices are cheap; one with records keeps views of the
caller's buffer for them.

Memory. Decoding takes at most 24 bytes per byte of the frame, plus 64 KiB, whatever the bytes are. A few wire bytes
can become an object of hundreds, so each array pays for its elements out of a budget before the first of them is made:
`element_cost` is what an element takes at most, not counting the text and bytes that it holds. Those cost one byte per
wire byte, which together with the copy of the frame is why the budget is 22 and not 24 times the frame; text outside
ASCII can cost up to four, and pays for itself when it is met. Fields outside of arrays are few and covered by the
64 KiB.
"""

import struct
from typing import Any, Final

from ottla.protocol import primitives
from ottla.protocol.schema import FORMATS, Field, Message, fields_of
from ottla.protocol.source import (
    LENGTH_FORMATS,
    Source,
    absent_fields,
    has_records,
    is_flexible,
    plain_fields,
    tagged_fields,
)

BUDGET_PER_BYTE: Final = 22
BUDGET_BASE: Final = 60_000

# Sizes of CPython's objects on 64 bits, as sys.getsizeof gives them.
_INSTANCE_SIZE: Final = 32  # Header and garbage collector's header; 8 more per slot.
_LIST_SIZE: Final = 56
_LIST_FIRST_SLOTS: Final = 32
_LIST_SLOT: Final = 9  # Lists grow by an eighth at a time.
_VIEW_SIZE: Final = 200
_VALUE_SIZES: Final = {
    "bool": 0,
    "int8": 28,
    "int16": 28,
    "uint16": 28,
    "int32": 32,
    "uint32": 32,
    "int64": 36,
    "float64": 24,
    "uuid": 49,
    "string": 50,
    "bytes": 33,
    "records": _VIEW_SIZE,
}

_NAMES: Final[dict[str, Any]] = {
    "new": object.__new__,
    "struct_error": struct.error,
    "DecodeError": primitives.DecodeError,
    "truncated": primitives.truncated,
    "null_refused": primitives.null_refused,
    "count_too_large": primitives.count_too_large,
    "over_budget": primitives.over_budget,
    "tag_misplaced": primitives.tag_misplaced,
    "rest_of_uvarint": primitives.rest_of_uvarint,
    "skip_tags": primitives.skip_tags,
    "check_tag_count": primitives.check_tag_count,
    "parse_tag_head": primitives.parse_tag_head,
    "parse_numbers": primitives.parse_numbers,
}


def compile_decoder(message: type[Message], version: int) -> Any:
    """The function `decode(buffer, position, end) -> (message, next position)`; it raises DecodeError."""
    return _DecoderSource(message, version).compile()


def minimum_size(cls: type[Message], version: int, flexible: bool) -> int:
    """The fewest bytes that a structure takes on the wire."""
    size = 1 if flexible else 0
    for field in plain_fields(cls, version):
        if field.is_array or field.type_name in LENGTH_FORMATS:
            size += 1 if flexible else struct.calcsize(">" + _length_format(field))
        elif field.struct is not None:
            nullable = version in field.nullable
            size += 1 if nullable else minimum_size(field.struct, version, flexible)
        else:
            size += struct.calcsize(">" + FORMATS[field.type_name])
    return size


def element_cost(field: Field, version: int) -> int:
    """The most memory that one element of an array takes, without the contents of text and bytes."""
    if field.struct is None:
        temporary = 8 if field.type_name not in LENGTH_FORMATS else 0  # The tuple between struct and list.
        return _LIST_SLOT + temporary + _VALUE_SIZES[field.type_name]
    return _LIST_SLOT + _struct_cost(field.struct, version)


def _struct_cost(cls: type[Message], version: int) -> int:
    cost = _INSTANCE_SIZE + 8 * len(fields_of(cls))
    for field in fields_of(cls):
        if field.is_array:
            cost += _LIST_SIZE if field.default_is_fresh() or version in field.versions else 0
        elif version in field.versions:
            cost += _VALUE_SIZES[field.type_name] if field.struct is None else _struct_cost(field.struct, version)
    return cost


def _length_format(field: Field) -> str:
    return "i" if field.is_array else LENGTH_FORMATS[field.type_name]


class _DecoderSource:
    def __init__(self, message: type[Message], version: int) -> None:
        self.message = message
        self.version = version
        self.flexible = is_flexible(message, version)
        self.keeps_views = has_records(message, version)
        self.source = Source(dict(_NAMES))
        self.run: list[tuple[str, str]] = []  # (target, struct format) of fields still to be read together.
        self.depth = 0  # Of structures; names of a structure's variables end in it.
        self.array_depth = 0

    def compile(self) -> Any:
        source = self.source
        source.open("def decode(buf, p, end):")
        source.line(f"budget = {BUDGET_BASE} + {BUDGET_PER_BYTE} * (end - p)")
        if self.keeps_views:
            source.line("if type(buf) is not memoryview: buf = memoryview(buf)")
            source.line("start = 0")
        else:
            source.line("buf = buf[p:end].tobytes() if type(buf) is memoryview else bytes(buf[p:end])")
            source.line("start = p; end -= p; p = 0")
        source.open("try:")
        self._structure(self.message, "m0")
        self._flush()
        source.close()
        source.line("except (struct_error, IndexError): raise truncated() from None")
        source.line('except UnicodeDecodeError: raise DecodeError("text that is not UTF-8") from None')
        source.line("if p > end: raise truncated()")
        source.line("return m0, start + p")
        return source.build("decode", f"decode {self.message.__name__} v{self.version}")

    def _structure(self, cls: type[Message], variable: str) -> None:
        line = self.source.line
        line(f"{variable} = new({self.source.constant(cls.__name__ + '_', cls)})")
        for field in [*absent_fields(cls, self.version), *tagged_fields(cls, self.version)]:
            line(f"{variable}.{field.name} = {self._default(field)}")
        for field in plain_fields(cls, self.version):
            self._field(field, f"{variable}.{field.name}")
        if self.flexible:
            self._tags(tagged_fields(cls, self.version), variable)

    def _default(self, field: Field) -> str:
        if field.is_array and field.default_is_fresh():
            return "[]"
        if field.default_is_fresh():
            return f"{self.source.constant('struct_', field.struct)}()"
        value = field.default_value()
        return repr(value) if isinstance(value, int | str | None) else self.source.constant("default_", value)

    def _field(self, field: Field, target: str) -> None:
        if field.is_array:
            self._length("i")
            self._sized(field, target, self._array)
        elif field.struct is not None:
            self._inner_structure(field, field.struct, target)
        elif field.type_name in LENGTH_FORMATS:
            self._length(LENGTH_FORMATS[field.type_name])
            self._sized(field, target, self._text if field.type_name == "string" else self._bytes)
        else:
            self.run.append((target, FORMATS[field.type_name]))

    def _flush(self) -> None:
        """Read what has been gathered."""
        if not self.run:
            return
        code = "".join(code for _, code in self.run)
        targets = ", ".join(target for target, _ in self.run)
        if code == "B":
            self.source.line(f"{targets} = buf[p]; p += 1")
        else:
            comma = "," if len(self.run) == 1 else ""
            size = struct.calcsize(">" + code)
            self.source.line(f"{targets}{comma} = {self.source.packed(code, 'unpack_from')}(buf, p); p += {size}")
        self.run = []

    def _length(self, code: str) -> None:
        """Read a length or count to `n`; -1 is null in both encodings."""
        self.run.append(("n", "B" if self.flexible else code))
        self._flush()
        if self.flexible:
            self.source.line("if n > 127: n, p = rest_of_uvarint(buf, p)")
            self.source.line("n -= 1")

    def _sized(self, field: Field, target: str, body: Any) -> None:
        """The value whose length or count is in `n`, or null where that is allowed."""
        source = self.source
        if self.version in field.nullable:
            source.line(f"if n == -1: {target} = None")
            source.line("elif n < 0: raise null_refused()")
            source.open("else:")
            body(field, target)
            self._flush()
            source.close()
        else:
            source.line("if n < 0: raise null_refused()")
            body(field, target)

    def _text(self, _field: Field, target: str) -> None:
        line = self.source.line
        line("e = p + n")
        line("if e > end: raise truncated()")
        decoded = "buf[p:e].tobytes().decode()" if self.keeps_views else "buf[p:e].decode()"
        if self.array_depth:
            line(f"{target} = s = {decoded}; p = e")
            self._charge_text()
        else:
            line(f"{target} = {decoded}; p = e")

    def _charge_text(self) -> None:
        """Text outside ASCII has a larger header, and up to four bytes for each byte of the wire."""
        self.source.open("if len(s) != n:")
        self.source.line("budget -= 32 + 3 * n")
        self.source.line("if budget < 0: raise over_budget()")
        self.source.close()

    def _bytes(self, field: Field, target: str) -> None:
        self.source.line("e = p + n")
        self.source.line("if e > end: raise truncated()")
        copied = ".tobytes()" if self.keeps_views and field.type_name == "bytes" else ""
        self.source.line(f"{target} = buf[p:e]{copied}; p = e")

    def _inner_structure(self, field: Field, struct_class: type[Message], target: str) -> None:
        self.depth += 1
        variable = f"m{self.depth}"
        if self.version in field.nullable:
            self.run.append(("n", "b"))
            self._flush()
            self.source.line(f"if n < 0: {target} = None")
            self.source.open("else:")
            self._structure(struct_class, variable)
            self._flush()
            self.source.line(f"{target} = {variable}")
            self.source.close()
        else:
            self._flush()
            self._structure(struct_class, variable)
            self._flush()
            self.source.line(f"{target} = {variable}")
        self.depth -= 1

    def _array(self, field: Field, target: str) -> None:
        line = self.source.line
        if field.struct is not None:
            smallest = minimum_size(field.struct, self.version, self.flexible)
        elif field.type_name in LENGTH_FORMATS:
            smallest = 1 if self.flexible else struct.calcsize(">" + LENGTH_FORMATS[field.type_name])
        else:
            smallest = struct.calcsize(">" + FORMATS[field.type_name])
        line(f"if n > (end - p) // {smallest}: raise count_too_large()")
        line(f"budget -= {_LIST_FIRST_SLOTS} + {element_cost(field, self.version)} * n")
        line("if budget < 0: raise over_budget()")
        if field.struct is None and field.type_name in FORMATS and field.type_name != "uuid":
            line(f"{target} = parse_numbers(buf, p, n, {FORMATS[field.type_name]!r}); p += {smallest} * n")
        else:
            self._array_loop(field, target)

    def _array_loop(self, field: Field, target: str) -> None:
        source = self.source
        self.depth += 1
        self.array_depth += 1
        items, item = f"l{self.depth}", f"m{self.depth}"
        source.line(f"{target} = {items} = []")
        source.open("for _ in range(n):")
        if field.struct is not None:
            self._structure(field.struct, item)
        elif field.type_name == "uuid":
            self.run.append((item, FORMATS["uuid"]))
        else:
            self._length(LENGTH_FORMATS[field.type_name])
            source.line("if n < 0: raise null_refused()")
            (self._text if field.type_name == "string" else self._bytes)(field, item)
        self._flush()
        source.line(f"{items}.append({item})")
        source.close()
        self.array_depth -= 1
        self.depth -= 1

    def _tags(self, fields: list[Field], variable: str) -> None:
        """The tag section at the end of a structure. Its usual form is one zero byte."""
        source = self.source
        self.run.append(("t", "B"))
        self._flush()
        if not fields:
            source.line("if t: p = skip_tags(buf, p, t, end)")
            return
        last, stop = f"last{self.depth}", f"stop{self.depth}"
        source.open("if t:")
        source.line("t, p = check_tag_count(buf, p, t)")
        source.line(f"{last} = -1")
        source.open("for _ in range(t):")
        source.line(f"{last}, n, p = parse_tag_head(buf, p, end, {last})")
        source.line(f"{stop} = p + n")
        for number, field in enumerate(fields):
            source.open(f"{'elif' if number else 'if'} {last} == {field.tag}:")
            self._field(field, f"{variable}.{field.name}")
            self._flush()
            source.close()
        source.line(f"else: p = {stop}")
        source.line(f"if p != {stop}: raise tag_misplaced()")
        source.close()
        source.close()
