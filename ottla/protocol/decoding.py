"""The decoder's generator: Python source for one version of one message.

The generated function is `decode(buf, p, end) -> (message, position)`. Neighbouring fields of fixed size, together
with the length of what follows them, are read by one `struct` call. Reads of fixed size do not check `end`: the
position only grows, so that one check after the last field finds any of them that went past it, and reading past the
buffer itself is an exception of `struct`. Lengths and counts are checked before anything is made of them.

A message without records is copied once to `bytes`, of which slices are cheap and cannot pass the frame's end; one with
records, or with a field marked `view`, keeps views of the caller's buffer for them.

The memory that decoding takes is bounded as module `memory` says. A frame so small that its bytes cannot exceed the
budget, whatever they are, is decoded without the bookkeeping, by a second form of the function.
"""

import itertools
import struct
from collections.abc import Callable
from typing import Any, Final

from ottla.protocol import primitives
from ottla.protocol.memory import (
    ARRAY_COST,
    BUDGET_BASE,
    TEXT_COST,
    TEXT_COST_PER_BYTE,
    budget_per_byte,
    element_cost,
    minimum_size,
    uncharged_size,
)
from ottla.protocol.schema import FORMATS, Field, Message, is_flexible
from ottla.protocol.source import (
    LENGTH_FORMATS,
    PREPARED_LENGTHS,
    Source,
    absent_fields,
    has_views,
    plain_fields,
    tagged_fields,
)

_NAMES: Final[dict[str, Any]] = {
    "new": object.__new__,
    "repeat": itertools.repeat,
    "unpack_from": struct.unpack_from,
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
}


def compile_decoder(message: type[Message], version: int) -> Any:
    """The function `decode(view, position, end) -> (message, next position)`; it raises DecodeError."""
    charged: list[Any] = []

    def decode_charged(view: memoryview, position: int, end: int) -> Any:
        if not charged:
            charged.append(_DecoderSource(message, version, charges=True).compile(None))
        return charged[0](view, position, end)

    return _DecoderSource(message, version, charges=False).compile(decode_charged)


class _DecoderSource:
    def __init__(self, message: type[Message], version: int, *, charges: bool) -> None:
        self.message = message
        self.version = version
        self.charges = charges
        self.flexible = is_flexible(message, version)
        self.keeps_views = has_views(message, version)
        self.source = Source(dict(_NAMES))
        self.run: list[tuple[str, str]] = []  # (target, struct format) of fields still to be read together.
        self.depth = 0  # Of structures; names of a structure's variables end in it.
        self.array_depth = 0

    def compile(self, decode_charged: Any) -> Any:
        """The function; frames that might exceed the budget are left to `decode_charged`."""
        source = self.source
        source.open("def decode(buf, p, end):")
        if self.charges:
            source.line(f"budget = {BUDGET_BASE} + {budget_per_byte(self.message)} * (end - p)")
        else:
            source.names["decode_charged"] = decode_charged
            size = uncharged_size(self.message, self.version, self.flexible)
            source.line(f"if end - p > {size}: return decode_charged(buf, p, end)")
        if not self.keeps_views:
            source.line("start = p; buf = buf[p:end].tobytes(); p = 0; end = len(buf)")
        source.open("try:")
        self._structure(self.message, "m0")
        self._flush()
        source.close()
        source.line("except (struct_error, IndexError): raise truncated() from None")
        source.line('except UnicodeDecodeError: raise DecodeError("text that is not UTF-8") from None')
        source.line("if p > end: raise truncated()")
        source.line("return m0, p" if self.keeps_views else "return m0, start + p")
        return source.build("decode", f"decode {self.message.__name__} v{self.version}")

    def _structure(self, cls: type[Message], variable: str) -> None:
        self.source.line(f"{variable} = new({self._class(cls)})")
        self._fill(cls, variable)

    def _class(self, cls: type[Message]) -> str:
        return self.source.constant(f"{cls.__name__}_", cls)

    def _fill(self, cls: type[Message], variable: str) -> None:
        line = self.source.line
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
            self._count()
            self._sized(field, target, self._array)
        elif field.struct is not None:
            self._inner_structure(field, field.struct, target)
        elif field.type_name in LENGTH_FORMATS:
            self._length(field.type_name)
            self._sized(field, target, self._text if field.type_name == "string" else self._bytes)
        else:
            self.run.append((target, FORMATS[field.type_name]))

    def _flush(self, *, short_by: int = 0) -> None:
        """Read what has been gathered; `p` goes to its end, or stays so many bytes before."""
        if not self.run:
            return
        code = "".join(code for _, code in self.run)
        targets = ", ".join(target for target, _ in self.run)
        comma = "," if len(self.run) == 1 else ""
        read = (
            f"{targets} = buf[p]"
            if code == "B"
            else f"{targets}{comma} = {self.source.packed(code, 'unpack_from')}(buf, p)"
        )
        passed = struct.calcsize(">" + code) - short_by
        self.source.line(f"{read}; p += {passed}" if passed else read)
        self.run = []

    def _count(self) -> None:
        """Read the count of an array to `n`, or what `_sized` takes for null."""
        self.run.append(("n", "B" if self.flexible else "i"))
        self._flush()
        if self.flexible:
            self.source.line("if n > 127: n, p = rest_of_uvarint(buf, p)")

    def _length(self, type_name: str) -> None:
        """Read the length of a text or bytes to `n`, or what `_sized` takes for null; `p + n` is their end.

        A flexible version has the length + 1: `p` stays at its last byte, and nothing need be subtracted."""
        if not self.flexible:
            self.run.append(("n", LENGTH_FORMATS[type_name]))
            self._flush()
            return
        self.run.append(("n", "B"))
        self._flush(short_by=1)
        self.source.line("if n > 127: n, p = rest_of_uvarint(buf, p + 1); p -= 1")

    def _sized(self, field: Field, target: str, body: Callable[[Field, str], None]) -> None:
        """The value whose length or count is in `n`, or null where that is allowed: by 0 in flexible versions, by any
        negative length in others, as in Kafka."""
        source = self.source
        is_null = "not n" if self.flexible else "n < 0"
        if self.version in field.nullable:
            # The position stays at a length, and not at a count.
            passes_length = "; p += 1" if self.flexible and not field.is_array else ""
            source.line(f"if {is_null}: {target} = None{passes_length}")
            source.open("else:")
            body(field, target)
            source.close()
        else:
            source.line(f"if {is_null}: raise null_refused()")
            body(field, target)

    def _content(self) -> str:
        """The expression for the bytes of a text or bytes, up to `e`."""
        self.source.line("e = p + n")
        return "buf[p + 1:e]" if self.flexible else "buf[p:e]"

    def _text(self, _field: Field, target: str) -> None:
        line = self.source.line
        decoded = self._content()
        if self.keeps_views:
            line("if e > end: raise truncated()")
            decoded += ".tobytes()"
        decoded += ".decode()"
        if self.array_depth and self.charges:
            length = "n - 1" if self.flexible else "n"
            line(f"{target} = s = {decoded}; p = e")
            line(f"if len(s) != {length}:")
            line(f" budget -= {TEXT_COST} + {TEXT_COST_PER_BYTE} * ({length})")
            line(" if budget < 0: raise over_budget()")
        else:
            line(f"{target} = {decoded}; p = e")

    def _bytes(self, field: Field, target: str) -> None:
        content = self._content()
        self.source.line("if e > end: raise truncated()")
        is_copied = self.keeps_views and field.type_name == "bytes" and not field.is_view
        copied = ".tobytes()" if is_copied else ""
        self.source.line(f"{target} = {content}{copied}; p = e")

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
        if self.flexible:
            line("n -= 1")
        smallest = minimum_size(field, self.version, self.flexible)
        line(
            f"if {smallest} * n > end - p: raise count_too_large()"
            if smallest > 1
            else "if n > end - p: raise count_too_large()"
        )
        if self.charges:
            line(f"budget -= {ARRAY_COST} + {element_cost(field, self.version)} * n")
            line("if budget < 0: raise over_budget()")
        if field.struct is None and field.type_name in FORMATS and field.type_name != "uuid":
            self._numbers(FORMATS[field.type_name], target)
        else:
            self._array_loop(field, target)

    def _numbers(self, code: str, target: str) -> None:
        prepared = self.source.prepared(code, "unpack_from")
        self.source.line(f"if n < {PREPARED_LENGTHS}: {target} = list({prepared}[n](buf, p))")
        self.source.line(f'else: {target} = list(unpack_from(f">{{n}}{code}", buf, p))')
        self.source.line(f"p += {struct.calcsize('>' + code)} * n")

    def _array_loop(self, field: Field, target: str) -> None:
        source = self.source
        self.depth += 1
        self.array_depth += 1
        items, item = f"l{self.depth}", f"m{self.depth}"
        if field.struct is not None:
            # They are empty, and within what has been charged for them. Most arrays of hot requests have one element or
            # none, and to extend a list by an iterator of unknown length takes longer than that.
            made = self._class(field.struct)
            source.line(
                f"{target} = {items} = [new({made})] if n == 1 else [*map(new, repeat({made}, n))] if n else []"
            )
            source.open(f"for {item} in {items}:")
            self._fill(field.struct, item)
            self._flush()
            source.close()
        else:
            source.line(f"{target} = {items} = []")
            source.open("for _ in range(n):")
            if field.type_name == "uuid":
                self.run.append((item, FORMATS["uuid"]))
            else:
                self._length(field.type_name)
                source.line(f"if {'not n' if self.flexible else 'n < 0'}: raise null_refused()")
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
        source.line("if t > 1: t, p = check_tag_count(buf, p, t)")
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
