"""What of the client library's log a user of the command line sees."""

import logging

import pytest
from aiokafka.errors import GroupCoordinatorNotAvailableError, NodeNotReadyError

from ottla.cli.operations.client_library import show_errors_only

log = logging.getLogger("aiokafka.consumer")


def test_an_error_is_one_line_and_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    show_errors_only()

    for _ in range(3):
        log.error("Unable to reach %s\nand more", NodeNotReadyError("node 1"))

    assert capsys.readouterr().err == "ottla: Unable to reach NodeNotReadyError: node 1\n"


def test_a_coordinator_not_available_yet_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    show_errors_only()

    log.error("Group Coordinator Request failed: %s", GroupCoordinatorNotAvailableError())

    assert capsys.readouterr().err == ""
