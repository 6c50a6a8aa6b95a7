"""Python source as syntax trees."""

import ast
import gc


def syntax_tree(source: str, filename: str = "<unknown>") -> ast.Module:
    """No garbage is collected during it. Python 3.11 fails with SystemError where source is parsed while another tree
    is made, and the collection of a future whose exception was never retrieved does that: it logs a traceback."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source, filename)
    finally:
        if was_enabled:
            gc.enable()
