"""What a figure says of a baseline and a target."""

import pytest

from benchmarks.__main__ import main
from benchmarks.figure import NO_BASELINE, Figure


@pytest.mark.parametrize(
    ("bounds", "target", "meets"),
    [({"at_least": 0.5}, "≥ 0.5", True), ({"at_most": 0.4}, "≤ 0.4", False), ({}, "reported", None)],
)
def test_a_target_bounds_the_ratio_to_the_baseline(bounds: dict[str, float], target: str, meets: bool | None) -> None:
    figure = Figure("speed", "raw pipe", "MB/s", [(50.0, 100.0), (60.0, 120.0), (1.0, 3.0)], **bounds)

    assert (figure.ratio, figure.target, figure.meets_target) == (0.5, target, meets)


def test_missed_target_fails_and_stands_in_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = [
        Figure("speed", "raw pipe", "MB/s", [(50.0, 100.0)], at_least=0.9),
        Figure("memory", NO_BASELINE, "MiB", [(30.0, 1.0)], at_most=40),
    ]
    monkeypatch.setattr("benchmarks.timer.figures", lambda: figures)
    monkeypatch.setattr("sys.argv", ["benchmarks", "--markdown", "timer"])

    assert main() == 1
    table, complaints = capsys.readouterr()
    assert table.splitlines() == [
        "| figure | Ottla | baseline |  | ratio | target |",
        "| --- | --- | --- | --- | --- | --- |",
        "| speed | 50 MB/s | 100 MB/s | raw pipe | 0.50 | ≥ 0.9 |",
        "| memory | 30 MiB | – | – | – | ≤ 40 |",
    ]
    assert "target missed: speed" in complaints


def test_each_row_with_a_target_says_pass_or_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = [
        Figure("short step", NO_BASELINE, "ms", [(3.0, 1.0)], at_most=20),
        Figure("long step", NO_BASELINE, "ms", [(30.0, 1.0)], at_most=20),
        Figure("time passed", NO_BASELINE, "ms", [(30.0, 1.0)]),
    ]
    monkeypatch.setattr("benchmarks.timer.figures", lambda: figures)
    monkeypatch.setattr("sys.argv", ["benchmarks", "timer"])

    assert main() == 1
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()[1:]] == ["pass", "fail", "reported"]
