"""Handlers name the parts of the broker that they need; the dispatcher gives them these."""

from pathlib import Path
from typing import Any, Protocol, get_type_hints

from ottla.broker.broker import Broker
from ottla.broker.config.server import ServerConfig
from ottla.broker.server.apis import APIS
from ottla.broker.server.dispatch import Dispatcher, Route, part_names, with_parts
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.broker.wire import Client, running_broker


async def test_each_parameter_of_a_handler_names_a_part_of_its_type(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        for api in APIS.values():
            handle = api.handler()
            types = get_type_hints(handle)
            for name in part_names(handle):
                part = getattr(broker.parts, name)
                if isinstance(types[name], type) and Protocol not in types[name].__bases__:
                    assert isinstance(part, types[name]), f"{name} of {api.name}"


def test_a_handler_is_given_its_parts_by_name() -> None:
    def handle(replicas: str, runtime: str, context: str, request: str) -> tuple[str, ...]:
        return replicas, runtime, context, request

    assert with_parts(handle, str.upper)("a", "b") == ("REPLICAS", "RUNTIME", "a", "b")


def test_a_handler_that_needs_no_parts_is_called_directly() -> None:
    def handle(context: str, request: str) -> tuple[str, ...]:
        return context, request

    assert with_parts(handle, str.upper) is handle


async def test_routes_are_the_plain_ones_by_identity(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        client = await Client.connect(broker)
        await client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)

        dispatcher = broker.server.dispatcher
        assert dispatcher.made
        assert {key: id(route) for key, route in dispatcher.routes.items()} == {
            key: id(route) for key, route in dispatcher.made.items()
        }
        client.close()


async def test_another_dispatcher_stands_in_place_of_routes(tmp_path: Path) -> None:
    class Counting(Dispatcher):
        def in_place_of(self, route: Route) -> Route:
            return Route(route.api, route.version, lambda context, request: counted(route.handle(context, request)))

    answers: list[Any] = []

    def counted(response: Any) -> Any:
        answers.append(response)
        return response

    broker = Broker(ServerConfig({}), data_dir=tmp_path, port=0, new_dispatcher=Counting)
    await broker.start()
    client = await Client.connect(broker)
    await client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
    client.close()
    await broker.stop()

    assert len(answers) == 1
    (made,) = broker.server.dispatcher.made.values()
    assert made not in broker.server.dispatcher.routes.values()
