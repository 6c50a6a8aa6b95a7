"""A broker with its control address, emptied after each test."""

from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from ottla.cli.app import cli
from ottla.testing.control.access import TOKEN_VARIABLE, URL_VARIABLE
from ottla.testing.control.listener import ControlListener
from ottla.testing.testbed import Testbed
from tests.control.asking import TOKEN, Asker, opened_control


@pytest.fixture(scope="module")
def shared_bed() -> Iterator[Testbed]:
    bed = Testbed(deadline=20)
    bed.start()
    yield bed
    bed.stop()


@pytest.fixture(scope="module")
def control(shared_bed: Testbed) -> Iterator[ControlListener]:
    with opened_control(shared_bed) as control:
        yield control


@pytest.fixture
def bed(shared_bed: Testbed) -> Iterator[Testbed]:
    yield shared_bed
    shared_bed.run(shared_bed.reset())


@pytest.fixture
def asker(bed: Testbed, control: ControlListener) -> Asker:
    return Asker(control.url)


@pytest.fixture
def run(bed: Testbed, control: ControlListener, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A command; its exit status and what it printed."""
    monkeypatch.setenv(URL_VARIABLE, control.url)
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)

    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, ["control", *arguments])
        return done.exit_code, done.output

    return run
