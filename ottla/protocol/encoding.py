"""The encoder's generator: Python source for one version of one message.

The generated function gathers pieces in a list and joins them. Neighbouring fields of fixed size share one `struct`
call, together with the length of what follows them; a message made only of such fields is a single call. Four shapes
differ in what surrounds the body:

- `body`: `encode(message) -> bytes`
- `frame`: `encode(message, correlation_id) -> bytes`, a response with its size and header
- `frame_parts`: the same as a list of buffers, in which record buffers stand uncopied
- `frame_slices`: the same as a generator, which yields again and again in a long message and returns the frame at last
"""

import struct
from enum import StrEnum
from io import BytesIO
from typing import Any, Final

from ottla.protocol import primitives
from ottla.protocol.schema import FORMATS, Field, Message, fields_of, is_flexible, response_header_is_tagged
from ottla.protocol.source import PREPARED_LENGTHS, Source, has_records, plain_fields, tagged_fields


class Shape(StrEnum):
    BODY = "body"
    FRAME = "frame"
    FRAME_PARTS = "frame_parts"
    FRAME_SLICES = "frame_slices"


# Of a message that is encoded in slices, at some 0.3 µs each: a millisecond or two.
PIECES_PER_SLICE: Final = 4096
# Where pieces are what clients make as long as they like: of 20 KiB each, some two megabytes, a millisecond or two.
LONG_PIECES_PER_SLICE: Final = 256

_NAMES: Final[dict[str, Any]] = {
    "BytesIO": BytesIO,
    "build_uvarint": primitives.build_uvarint,
    "one_byte": [bytes([value]) for value in range(128)],
    "pack": struct.pack,
}


def compile_encoder(message: type[Message], version: int, shape: Shape) -> Any:
    """The function of the given shape."""
    return _EncoderSource(message, version, shape).compile()


class _EncoderSource:
    def __init__(self, message: type[Message], version: int, shape: Shape) -> None:
        self.message = message
        self.version = version
        self.flexible = is_flexible(message, version)
        self.is_frame = shape is not Shape.BODY
        self.in_parts = shape is Shape.FRAME_PARTS
        self.in_slices = shape is Shape.FRAME_SLICES
        self.splits_at_records = self.in_parts and has_records(message, version)
        self.source = Source(dict(_NAMES))
        self.run: list[tuple[str, str]] = []  # (expression, struct format) of fields still to be written together.
        self.depth = 0

    def compile(self) -> Any:
        if self._is_fixed():
            self._fixed()
        else:
            self._gathered()
        return self.source.build("encode", f"encode {self.message.__name__} v{self.version}")

    def _is_fixed(self) -> bool:
        fields = plain_fields(self.message, self.version)
        plain = all(field.type_name in FORMATS and not field.is_array for field in fields)
        return plain and not self.in_slices and not tagged_fields(self.message, self.version)

    def _begin(self) -> None:
        if self.is_frame:
            self.source.open("def encode(m0, correlation_id):")
            self.run.append(("correlation_id", "i"))
            if response_header_is_tagged(self.message, self.version):
                self.run.append(("0", "B"))
        else:
            self.source.open("def encode(m0):")

    def _fixed(self) -> None:
        """The whole message in one call, its size a constant."""
        self._begin()
        self._structure(self.message, "m0")
        if self.is_frame:
            size = struct.calcsize(">" + "".join(code for _, code in self.run))
            self.run.insert(0, (str(size), "i"))
        packed = self._packed() if self.run else 'b""'
        self.source.line(f"return [{packed}]" if self.in_parts else f"return {packed}")

    def _gathered(self) -> None:
        source = self.source
        self._begin()
        source.line("parts = []; add = parts.append")
        if self.splits_at_records:
            source.line("chunks = []")
        if self.in_slices:
            # It grows without being copied, and gives its bytes without copying them either.
            source.line('frame = BytesIO(); write = frame.write; write(b"size"); size = 0')
            # A generator also where no array makes the message long.
            source.line("if size: yield")
        self._structure(self.message, "m0")
        self._flush()
        if self.splits_at_records:
            source.line('if parts: chunks.append(b"".join(parts))')
            size = self.source.packed("i", "pack")
            source.line(f"chunks[0] = {size}(sum(map(len, chunks))) + chunks[0]")
            source.line("return chunks")
        elif self.in_slices:
            source.line('size += write(b"".join(parts)); frame.seek(0)')
            source.line(f"write({self.source.packed('i', 'pack')}(size)); return frame.getvalue()")
        elif self.is_frame:
            source.line('body = b"".join(parts)')
            framed = f"{self.source.packed('i', 'pack')}(len(body)) + body"
            source.line(f"return [{framed}]" if self.in_parts else f"return {framed}")
        else:
            source.line('return b"".join(parts)')

    def _packed(self) -> str:
        """The expression for the bytes of what has been gathered."""
        # Lengths and empty tag sections that stand alone are many: looking a byte up takes half as long as packing it.
        if self.run == [("n + 1", "B")]:
            self.run = []
            return "one_byte[n + 1]"
        if all(item == ("0", "B") for item in self.run):
            zeros, self.run = bytes(len(self.run)), []
            return repr(zeros)
        code = "".join("x" if item == ("0", "B") else item[1] for item in self.run)
        arguments = ", ".join(expression for expression, code in self.run if (expression, code) != ("0", "B"))
        self.run = []
        return f"{self.source.packed(code, 'pack')}({arguments})"

    def _flush(self) -> None:
        if self.run:
            self.source.line(f"add({self._packed()})")

    def _structure(self, cls: type[Message], variable: str) -> None:
        for field in plain_fields(cls, self.version):
            self._field(field, f"{variable}.{field.name}")
        if self.flexible:
            self._tags(cls, variable)

    def _field(self, field: Field, value: str) -> None:
        if field.is_array:
            self._array(field, value)
        elif field.struct is not None:
            self._inner_structure(field, field.struct, value)
        elif field.type_name == "string":
            self._text(value, self.version in field.nullable)
        elif field.type_name == "bytes":
            self._bytes(value, self.version in field.nullable)
        elif field.type_name == "records":
            self._records(value)
        else:
            self.run.append((value, FORMATS[field.type_name]))

    def _length(self, code: str) -> None:
        """Write `n`, a length or count in which -1 is null, with all that was gathered before it."""
        if not self.flexible:
            self.run.append(("n", code))
            self._flush()
            return
        before = list(self.run)
        self.run.append(("n + 1", "B"))
        self.source.line(f"if n < 127: add({self._packed()})")
        self.run = before
        self.source.open("else:")
        self._flush()
        self.source.line("add(build_uvarint(n + 1))")
        self.source.close()

    def _text(self, value: str, nullable: bool) -> None:
        line = self.source.line
        if nullable:
            line(f"b = {value}")
            line('if b is None: n = -1; b = b""')
            line("else: b = b.encode(); n = len(b)")
        else:
            line(f"b = {value}.encode(); n = len(b)")
        self._length("h")
        line("add(b)")

    def _bytes(self, value: str, nullable: bool) -> None:
        line = self.source.line
        line(f"b = {value}")
        if nullable:
            line('if b is None: n = -1; b = b""')
            line("else: n = len(b)")
        else:
            line("n = len(b)")
        self._length("i")
        line("add(b)")

    def _records(self, value: str) -> None:
        """Record bytes: one buffer or a list of buffers."""
        source = self.source
        source.line(f"r = {value}")
        source.line("if r is None: n = -1; r = ()")
        source.line("elif type(r) is list: n = sum(map(len, r))")
        source.line("else: n = len(r); r = (r,)")
        self._length("i")
        if self.splits_at_records:
            source.open("if n > 0:")
            source.line('chunks.append(b"".join(parts)); chunks += r')
            source.line("parts = []; add = parts.append")
            source.close()
        else:
            source.line("parts += r")

    def _array(self, field: Field, value: str) -> None:
        source = self.source
        self.depth += 1
        items, item = f"l{self.depth}", f"m{self.depth}"
        source.line(f"{items} = {value}")
        nullable = self.version in field.nullable
        if nullable:
            source.line(f"if {items} is None: n = -1; {items} = ()")
            source.line(f"else: n = len({items})")
        else:
            source.line(f"n = len({items})")
        if field.struct is None and field.type_name in FORMATS and field.type_name != "uuid":
            self._numbers(FORMATS[field.type_name], items)
        else:
            self._length("i")
            source.open(f"for {item} in {items}:")
            if field.struct is not None:
                self._structure(field.struct, item)
            else:
                self._field(field._replace(is_array=False, nullable=field.nullable._replace(first=1, last=0)), item)
            self._flush()
            if self.in_slices:
                source.open(f"if len(parts) >= {self._pieces_per_slice()}:")
                source.line('size += write(b"".join(parts)); parts.clear()')
                source.line("yield")
                source.close()
            source.close()
        self.depth -= 1

    def _pieces_per_slice(self) -> int:
        return LONG_PIECES_PER_SLICE if _has_bytes(self.message, self.version) else PIECES_PER_SLICE

    def _numbers(self, code: str, items: str) -> None:
        source = self.source
        self._flush()
        prepared = source.prepared(code, "pack", "B" if self.flexible else "i")
        count = "n + 1" if self.flexible else "n"
        source.open(f"if 0 <= n < {PREPARED_LENGTHS}:")
        source.line(f"add({prepared}[n]({count}, *{items}))")
        source.close()
        source.open("else:")
        self._length("i")
        source.line(f'if n > 0: add(pack(f">{{n}}{code}", *{items}))')
        source.close()

    def _inner_structure(self, field: Field, struct_class: type[Message], value: str) -> None:
        if self.version not in field.nullable:
            self._structure(struct_class, value)
            return
        before = list(self.run)
        self.run.append(("-1", "b"))
        self.source.line(f"if {value} is None: add({self._packed()})")
        self.source.open("else:")
        self.run = [*before, ("1", "b")]
        self._structure(struct_class, value)
        self._flush()
        self.source.close()

    def _tags(self, cls: type[Message], variable: str) -> None:
        """The tag section: one zero byte, unless a tagged field differs from its default."""
        fields = tagged_fields(cls, self.version)
        before = list(self.run)
        self.run.append(("0", "B"))
        if not fields:
            return
        section = f"tags_of_{cls.__name__}"
        if section not in self.source.names:
            writer = _EncoderSource(self.message, self.version, Shape.BODY)
            writer.source = Source(self.source.names)
            writer.write_tag_section(section, fields)
        usual = " and ".join(self._is_default(field, f"{variable}.{field.name}") for field in fields)
        self.source.line(f"if {usual}: add({self._packed()})")
        self.run = before
        self.source.open("else:")
        self._flush()
        self.source.line(f"add({section}({variable}))")
        self.source.close()

    def write_tag_section(self, name: str, fields: list[Field]) -> None:
        """Make the function that writes the section when some field has to be in it."""
        source = self.source
        source.open(f"def {name}(m0):")
        source.line("tags = []; count = 0")
        for field in fields:
            value = f"m0.{field.name}"
            source.open(f"if not ({self._is_default(field, value)}){self._differs_from_zero(field, value)}:")
            source.line("parts = []; add = parts.append")
            self._field(field, value)
            self._flush()
            source.line('body = b"".join(parts); n = len(body)')
            source.line(f"tags.append({primitives.build_uvarint(field.tag or 0)!r})")
            source.line("tags.append(one_byte[n] if n < 128 else build_uvarint(n))")
            source.line("tags.append(body); count += 1")
            source.close()
        source.line('return one_byte[count] + b"".join(tags)')
        source.build(name, f"encode {self.message.__name__} v{self.version}, {name}")

    def _is_default(self, field: Field, value: str) -> str:
        default = field.default_value()
        if default is None:
            return f"{value} is None"
        if default == [] or default == "" or default is False:
            return f"not {value}"
        return f"{value} == {self.source.constant('default_', default)}"

    def _differs_from_zero(self, field: Field, value: str) -> str:
        """A structure that may not be null is left out, too, when all its fields have their defaults."""
        if field.struct is None or field.is_array or self.version in field.nullable:
            return ""
        zero = self.source.constant("zero_", field.struct())
        names = [inner.name for inner in fields_of(field.struct)]
        # One by one: the equality of messages asks for the names of their fields each time.
        return f" and ({' or '.join(f'{value}.{name} != {zero}.{name}' for name in names)})"


def _has_bytes(message: type[Message], version: int) -> bool:
    fields = [field for field in fields_of(message) if version in field.versions]
    nested = [field.struct for field in fields if field.struct is not None]
    return any(field.type_name == "bytes" for field in fields) or any(_has_bytes(each, version) for each in nested)
