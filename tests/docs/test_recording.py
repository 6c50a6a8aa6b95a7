"""docs/rebalance.svg, which README opens with, and examples/record_rebalance.py, which draws it."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
from rich.text import Text

ROOT = Path(__file__).parents[2]
RECORDING = ROOT / "docs" / "rebalance.svg"
BYTES_MAX = 60_000
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.delitem(sys.modules, "rebalance_live", raising=False)
    spec = importlib.util.spec_from_file_location("record_rebalance", ROOT / "examples" / "record_rebalance.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(drawing: str) -> list[str]:
    """The text of each line."""
    return ["".join(line.itertext()) for line in ElementTree.fromstring(drawing).iter(f"{SVG}text")]


def test_the_recording_shows_every_rebalance_with_its_reason() -> None:
    text = "\n".join(shown(RECORDING.read_text()))

    assert re.findall(r"rebalance: (.*)", text) == [
        "member joined (anna)",
        "member joined (bruno)",
        "member joined (clara)",
        "member left (bruno)",
        "session expired (clara)",
        "member left (anna)",
    ]
    assert RECORDING.stat().st_size < BYTES_MAX


def test_every_line_is_drawn_and_lights_up_at_its_moment(recorder: ModuleType) -> None:
    lines = [
        recorder.Line(0.5, "+", Text("anna starts", "green")),
        recorder.Line(4.0, "✓", Text(" 0 <anna> ", "bold black on cyan")),
    ]

    drawing = recorder.drawing(lines)

    assert shown(drawing) == ["$ make rebalance", "  0.50 s+anna starts", "  4.00 s✓ 0 <anna> "]
    lit = [float(percent) for percent in re.findall(r"0%, ([\d.]+)%", drawing)]
    whole_s = 4.0 / recorder.SPEED + recorder.HOLD_S
    moments = [0.5 / recorder.SPEED, 4.0 / recorder.SPEED]
    assert lit == pytest.approx([100 * moment / whole_s for moment in moments], abs=0.01)


def test_lines_are_faint_only_where_motion_is_wanted(recorder: ModuleType) -> None:
    drawing = recorder.drawing([recorder.Line(1.0, "+", Text("anna starts"))])

    before, condition, moving = drawing.partition("@media (prefers-reduced-motion: no-preference) {")
    assert condition
    assert "opacity" not in before
    assert "animation: l1 " in moving
    assert "<script" not in drawing
