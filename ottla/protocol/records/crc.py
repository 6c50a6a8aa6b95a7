"""CRC-32C (Castagnoli), the checksum of record batches, by the processor's own instruction where it has one."""

import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TypeAlias, cast

Buffer: TypeAlias = bytes | bytearray | memoryview


def _load() -> Callable[[Buffer], int]:
    """The extension inside the `crc32c` package, without the package.

    The package asks importlib.metadata for its own version when it is imported. That costs some 20 ms, a third of
    the time in which a broker starts.
    """
    package = sys.modules.get("crc32c") or PathFinder.find_spec("crc32c")
    locations = getattr(package, "__path__", None) or getattr(package, "submodule_search_locations", None)
    extension = PathFinder.find_spec("_crc32c", locations) if locations else None
    if extension is None or extension.loader is None:
        from crc32c import crc32c as from_package

        return cast("Callable[[Buffer], int]", from_package)
    module = module_from_spec(extension)
    extension.loader.exec_module(module)
    return cast("Callable[[Buffer], int]", module.crc32c)


crc32c: Callable[[Buffer], int] = _load()
"""`crc32c(buffer) -> int`: the unsigned checksum of any contiguous buffer, 0 for an empty one."""
