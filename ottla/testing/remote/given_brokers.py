"""Brokers that run already, for the fixtures (`--ottla-bootstrap`, `--ottla-control`).

With a control address (docs/control.md) fixtures do with them what they do with brokers of their own. Without one there
is an address for clients, and nothing else.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, cast

import pytest

from ottla.testing.control.access import TOKEN_VARIABLE
from ottla.testing.coverage import Coverage
from ottla.testing.remote.asking import RemoteControl, RemoteRefusal
from ottla.testing.remote.world import RemoteWorld

NO_CONTROL: Final = (
    "the brokers of --ottla-bootstrap have no --ottla-control, which this needs: only kafka_bootstrap is there"
)


class GivenBrokers(NamedTuple):
    bootstrap: str
    control: RemoteControl | None

    @property
    def has_no_control(self) -> bool:
        return self.control is None

    @property
    def why_skipped(self) -> str:
        return NO_CONTROL

    def world(self, deadline_s: float, coverage: Coverage | None) -> RemoteWorld:
        """`coverage` gets what is counted from now on. What the brokers have may be anything."""
        assert self.control is not None, "only brokers with a control have a world"
        self.control.deadline_s = deadline_s
        if coverage is not None:
            self.control.ask("DELETE", "/v1/coverage")
        return RemoteWorld(self.control, coverage, None)


def given_brokers(config: pytest.Config) -> GivenBrokers:
    """What the command line names. Raises UsageError, and NotRunningError where no control answers."""
    bootstrap: str | None = config.getoption("ottla_bootstrap")
    url: str | None = config.getoption("ottla_control")
    if url is None:
        assert bootstrap is not None, "one of the two is given"
        return GivenBrokers(bootstrap, None)
    file: str | None = config.getoption("ottla_token_file")
    token = os.environ.get(TOKEN_VARIABLE) if file is None else _token_in(config.invocation_params.dir / file)
    try:
        control = RemoteControl(url, token)
    except (ValueError, RemoteRefusal) as error:
        raise pytest.UsageError(f"--ottla-control: {error}") from None
    if bootstrap is not None:
        # As clients reach them from here, which may differ from what brokers advertise.
        control.bootstrap = bootstrap
    return GivenBrokers(control.bootstrap, control)


def _token_in(path: Path) -> str | None:
    """Of a file that has the token and nothing else, or of what `ottla serve --control-file` writes. Raises
    UsageError."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise pytest.UsageError(f"--ottla-token-file: {error}") from None
    if not text.startswith("{"):
        return text
    try:
        given = cast("Mapping[str, object]", json.loads(text))
        token = given["token"]
    except (ValueError, KeyError):
        raise pytest.UsageError(f"--ottla-token-file: {path} has no token") from None
    return None if token is None else str(token)
