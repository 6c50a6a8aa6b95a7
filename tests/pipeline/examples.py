"""The scripts of `examples/`, as modules."""

import importlib.util
from pathlib import Path
from types import ModuleType

EXAMPLES = Path(__file__).parents[2] / "examples"


def script(example: str, name: str) -> ModuleType:
    """`name.py` of an example, run as it is imported."""
    specification = importlib.util.spec_from_file_location(name, EXAMPLES / example / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
