"""Python files as syntax trees."""

import ast
import gc
from pathlib import Path


def syntax_tree(path: Path) -> ast.Module:
    """No garbage is collected during it. Python 3.11 fails with SystemError where source is parsed while another tree
    is made, and the collection of a future whose exception was never retrieved does that: it logs a traceback."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"), str(path))
    finally:
        if was_enabled:
            gc.enable()
