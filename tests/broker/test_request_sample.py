"""With `ottla.request.log.sample` each n-th request is a line of the log, without it none (docs/operators.md §17.3)."""

from pathlib import Path
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.asking import running
from tests.broker.authorization.world import secured
from tests.broker.requests import metadata
from tests.broker.wire import RecordingLog

UNREADABLE = FindCoordinatorRequest(key="g", key_type=9)


def lines(log: RecordingLog) -> list[dict[str, Any]]:
    return [fields for event, fields in log.events if event == "request"]


def handlers(broker: Broker) -> list[str]:
    return [type(route.handle).__name__ for route in broker.server.dispatcher.made.values()]


@pytest.mark.parametrize(("every", "logged"), [("0", 0), ("1", 6), ("2", 3), ("4", 1)])
async def test_each_nth_request_is_logged(tmp_path: Path, every: str, logged: int) -> None:
    log = RecordingLog()
    async with running(tmp_path, {"ottla.request.log.sample": every}, log=log) as broker:
        client = await broker.client()
        for _ in range(6):
            await client.ask(metadata("nowhere"), 12)

    found = lines(log)
    assert len(found) == logged
    for line in found:
        assert (line["api"], line["version"], line["client_id"]) == ("Metadata", 12, "tester")
        assert (line["peer"], line["principal"]) == ("127.0.0.1", None)
        assert line["request_bytes"] > 20
        assert line["handled_us"] >= 0


async def test_sampled_request_that_waits_or_fails_is_answered(tmp_path: Path) -> None:
    """What is parked says so; an answer is the handler's, whatever it was."""
    log = RecordingLog()
    async with running(tmp_path, {"ottla.request.log.sample": "1"}, log=log) as broker:
        assert (await broker.ask(UNREADABLE, 3)).error_code == 42
        assert [(line["api"], line["waits"]) for line in lines(log)] == [("FindCoordinator", None)]
        assert (await broker.ask(FindCoordinatorRequest(key="g"), 3)).error_code in (0, 15)
        assert len(lines(log)) == 2


async def test_sample_stands_before_the_authorizer_and_names_who_asks(tmp_path: Path) -> None:
    log = RecordingLog()
    async with secured(tmp_path, {"ottla.request.log.sample": "1"}, log=log) as world:
        bob = await world.client("bob")
        answer = await bob.ask(FindCoordinatorRequest(key="g"), 3)

    assert answer.error_code == 30, "the authorizer still decides"
    assert [line["principal"] for line in lines(log)][-1] == "User:bob"
