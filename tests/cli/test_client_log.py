"""What of the client library's log a user of the command line sees."""

import logging

import pytest
from aiokafka.errors import GroupCoordinatorNotAvailableError, NodeNotReadyError

from ottla.cli import client_log


@pytest.fixture
def log(capsys: pytest.CaptureFixture[str]) -> logging.Logger:  # Captures first: the handler keeps its stream.
    client_log.show_errors_only()
    return logging.getLogger("aiokafka.consumer")


def test_an_error_is_one_line_and_told_once(log: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        log.error("Unable to reach %s\nand more", NodeNotReadyError("node 1"))

    assert capsys.readouterr().err.count("\n") == 1


def test_a_coordinator_in_the_making_is_not_told(log: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    log.error("Group Coordinator Request failed: %s", GroupCoordinatorNotAvailableError())

    assert capsys.readouterr().err == ""
