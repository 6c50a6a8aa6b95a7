"""100,000 hostile inputs; `make fuzz N=…` for more."""

import pytest

from tests.fuzz.__main__ import run


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_input_is_parsed_or_refused_as_documented() -> None:
    run(seed=20, inputs=100_000)
