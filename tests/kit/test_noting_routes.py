"""Requests and answers are noted together, also where answers come later and in another order."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.server.apis import APIS
from ottla.broker.server.dispatch import Route
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.testing.wire import WireRing

HEARTBEAT = 12
REQUEST = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


class OpenConnection:
    is_closed = False


def context_of(connection: Any) -> Any:
    return SimpleNamespace(connection=connection, client_id="c", is_parked=False, route=None)


def noted(handle: Any) -> tuple[WireRing, Route]:
    ring = WireRing()
    return ring, ring.noting(Route(APIS[HEARTBEAT], 4, handle))


def park(context: Any, request: Any) -> None:
    del request
    context.is_parked = True


def test_each_parked_request_finds_its_own_answer() -> None:
    ring, route = noted(park)
    connection = OpenConnection()
    contexts = [context_of(connection) for _ in range(3)]
    for each in contexts:
        route.handle(each, REQUEST)
    for error, each in zip((16, 27, 0), reversed(contexts), strict=True):
        each.route.build_frame(HeartbeatResponse(error_code=error), 1)

    assert [each.error for each in ring.since(0)] == [0, 27, 16]
    assert len({each.route for each in contexts}) == 3


def test_requests_answered_at_once_share_a_route() -> None:
    ring, route = noted(lambda context, request: HeartbeatResponse(error_code=0))
    contexts = [context_of(OpenConnection()) for _ in range(2)]
    for each in contexts:
        route.handle(each, REQUEST)

    assert contexts[0].route is contexts[1].route
    assert [(each.what, each.member_id, each.error) for each in ring.since(0)] == [
        ("g member m generation 1", "m", 0)
    ] * 2


def test_request_answered_behind_another_is_noted_once() -> None:
    """It is parked behind another one and completed at once; its frame is built by the route of the request."""
    ring, route = noted(lambda context, request: HeartbeatResponse(error_code=27))
    context = context_of(OpenConnection())
    answered: list[int] = []
    ring.recorder = SimpleNamespace(  # type: ignore[assignment]
        asked=lambda *_: None, answered=lambda event, _: answered.append(event.error)
    )
    context.route = route
    response = route.handle(context, REQUEST)
    context.route.build_frame(response, 1)

    assert answered == [27]


def test_request_that_fails_is_noted_with_its_error() -> None:
    def fail(context: Any, request: Any) -> None:
        raise KafkaError

    ring, route = noted(fail)
    with pytest.raises(KafkaError):
        route.handle(context_of(OpenConnection()), REQUEST)

    assert [each.error for each in ring.since(0)] == [ErrorCode.UNKNOWN_SERVER_ERROR]
