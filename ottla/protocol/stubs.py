"""Type stubs for message modules: `python -m ottla.protocol.stubs [MODULE...]`.

Message classes are made from text at run time, which type checkers cannot follow; the stub beside each module says the
same in Python's words. A test holds the stubs against the tables. Without arguments all of `ottla.protocol.messages`
are written; name the modules to do it for messages defined elsewhere.
"""

import importlib
import pkgutil
import sys
from types import ModuleType
from typing import Final

from ottla.protocol import messages
from ottla.protocol.schema import FORMATS, Field, Message, fields_of

_HEADER: Final = """\
# Written by `python -m ottla.protocol.stubs`; the table is in the module beside this file.
{imports}from ottla.protocol.schema import Message

TABLE: str
"""


def message_modules() -> list[str]:
    """The names of all modules of `ottla.protocol.messages`."""
    return [f"{messages.__name__}.{module.name}" for module in pkgutil.iter_modules(messages.__path__)]


def message_classes(module: ModuleType) -> list[type[Message]]:
    """The messages and structures that a module defines, in the order of its table."""
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Message) and value is not Message
    ]


def stub_of(module: ModuleType) -> str:
    """The text of the stub file."""
    classes = "".join(f"\n{_class_stub(cls)}" for cls in message_classes(module))
    imports = "from ottla.protocol.primitives import RecordBuffers\n" if "RecordBuffers" in classes else ""
    return _HEADER.format(imports=imports) + classes


def _class_stub(cls: type[Message]) -> str:
    fields = fields_of(cls)
    lines = [f"class {cls.__name__}(Message):"]
    for field in fields:
        lines += _attribute(field)
    parameters = [f"        {field.name}: {_parameter_type(field)} = ..." for field in fields]
    if parameters:
        lines += [
            "    def __init__(",
            "        self,",
            "        *,",
            *(f"{line}," for line in parameters),
            "    ) -> None: ...",
        ]
    else:
        lines += ["    def __init__(self) -> None: ..."]
    return "\n".join(lines) + "\n"


def _attribute(field: Field) -> list[str]:
    if field.type_name != "records":
        return [f"    {field.name}: {_value_type(field)}"]
    # Decoded records are a view; any buffers may be given to be encoded.
    return [
        "    @property",
        f"    def {field.name}(self) -> memoryview | None: ...",
        f"    @{field.name}.setter",
        f"    def {field.name}(self, value: RecordBuffers | None) -> None: ...",
    ]


def _parameter_type(field: Field) -> str:
    return "RecordBuffers | None" if field.type_name == "records" else _value_type(field)


def _value_type(field: Field) -> str:
    if field.struct is not None:
        name = field.struct.__name__
    elif field.is_view:
        name = "bytes | memoryview"
    elif field.type_name in ("bool", "bytes"):
        name = field.type_name
    elif field.type_name in FORMATS:
        name = {"uuid": "bytes", "float64": "float"}.get(field.type_name, "int")
    else:
        name = "str"
    if field.is_array:
        name = f"list[{name}]"
    nullable = field.nullable.first <= field.nullable.last or field.default_value() is None
    return f"{name} | None" if nullable else name


def main(names: list[str]) -> None:
    for name in names or message_modules():
        module = importlib.import_module(name)
        assert module.__file__ is not None, f"{name} has no file"
        with open(f"{module.__file__}i", "w", encoding="utf-8") as file:  # noqa: PTH123 - this room does not know paths.
            file.write(stub_of(module))


if __name__ == "__main__":
    main(sys.argv[1:])
