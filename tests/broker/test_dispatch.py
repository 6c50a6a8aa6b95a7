"""Handlers name the parts of the broker that they need; the dispatcher gives them these."""

from pathlib import Path
from typing import Protocol, get_type_hints

from ottla.broker.server.apis import APIS
from ottla.broker.server.dispatch import part_names, with_parts
from tests.broker.wire import running_broker


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
