"""Every message and version there is, for tests that hold for all of them."""

import importlib
from collections.abc import Iterator

from ottla.protocol.schema import Message
from ottla.protocol.stubs import message_classes, message_modules

MESSAGES: list[type[Message]] = [
    cls
    for name in message_modules()
    for cls in message_classes(importlib.import_module(name))
    if cls.FLEXIBLE_FROM is not None or cls.VERSIONS != (0, 0) or cls.API_KEY >= 0
]
REQUESTS = [cls for cls in MESSAGES if cls.__name__.endswith("Request")]
RESPONSES = [cls for cls in MESSAGES if cls.__name__.endswith("Response")]


def versions(cls: type[Message]) -> range:
    return range(cls.VERSIONS[0], cls.VERSIONS[1] + 1)


def every_version() -> Iterator[tuple[type[Message], int]]:
    for cls in MESSAGES:
        for version in versions(cls):
            yield cls, version
