"""The clock, the log and the timers of a partition's groups, and `--show-timeline` to see what a test made them do."""

import pytest

from tests.coordinator.harness import Shell, timeline


@pytest.fixture
def shell() -> Shell:
    """A partition without an initial rebalance delay."""
    return Shell()


@pytest.fixture
def show_timeline(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]):
    """Print a shell's timeline if it was asked for on the command line."""

    def show(shell: Shell) -> None:
        if request.config.getoption("--show-timeline"):
            with capsys.disabled():
                print(f"\n{request.node.name}\n{timeline(shell.facts)}")

    return show
