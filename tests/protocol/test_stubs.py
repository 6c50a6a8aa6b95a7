"""The type stubs beside the message modules say what the tables say."""

import importlib
from pathlib import Path

import pytest

from ottla.protocol.stubs import message_modules, stub_of


@pytest.mark.parametrize("name", message_modules(), ids=lambda name: name.rsplit(".", 1)[1])
def test_a_stub_is_current(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__file__ is not None

    stub = Path(module.__file__).with_suffix(".pyi").read_text()

    assert stub == stub_of(module), "run: python -m ottla.protocol.stubs"
    assert module.__doc__, "the module says what each version changed"
