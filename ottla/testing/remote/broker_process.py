"""Brokers of fixtures in a process of their own (`--ottla-where=process`), and that process.

The process gets its options as a line of JSON on standard input, answers with a line that has its control address or
what is wrong, and stops when standard input ends: with the session, or with a session that was killed.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from ottla.broker.config.options import ConfigError
from ottla.broker.runtime import StartError
from ottla.testing.control.access import new_token
from ottla.testing.control.listener import opened_for_fixtures
from ottla.testing.coverage import Coverage
from ottla.testing.fixture_options import FixtureOptions
from ottla.testing.remote.asking import RemoteControl
from ottla.testing.remote.world import RemoteWorld
from ottla.testing.testbed import EMPTY, Testbed

STOPS_WITHIN_S: Final = 10
"""After that it is killed: a test may have broken what a stop waits for."""


class BrokerProcess(RemoteWorld):
    """It runs from the moment it is made until `stop`."""

    def __init__(self, options: FixtureOptions, coverage: Coverage | None) -> None:
        """`coverage` gets what is counted, at the end. Raises ConfigError, StartError."""
        # A signal to the session is not one to its brokers: they end after its tests.
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        try:
            control = self._started(options)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        super().__init__(control, coverage, EMPTY)

    def _started(self, options: FixtureOptions) -> RemoteControl:
        assert self._process.stdin is not None, "it was asked for"
        assert self._process.stdout is not None, "it was asked for"
        given = {
            "brokers": options.brokers,
            "settings": {name: str(value) for name, value in options.settings.items()},
            "profile": options.profile,
            "data": str(options.data),
            "deadline": options.deadline,
            "fault_seed": options.fault_seed,
            "unsynced": options.unsynced,
        }
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(given).encode() + b"\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise StartError(f"the process of the brokers has ended with status {self._process.wait()}")
        answer: dict[str, str] = json.loads(line)
        if "wrong" in answer:
            raise (ConfigError if answer["kind"] == ConfigError.__name__ else StartError)(answer["wrong"])
        return RemoteControl(answer["url"], answer["token"], deadline_s=options.deadline)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        self.hand_over_coverage()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(STOPS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


# The process.


def serve(given: Mapping[str, Any]) -> None:
    """Until standard input ends. Raises ConfigError, StartError."""
    bed = Testbed(**given)
    bed.start()
    try:
        token = new_token()
        control = bed.run(opened_for_fixtures(bed, token))
        _answer({"url": control.url, "token": token})
        while os.read(sys.stdin.fileno(), 1):
            pass
        bed.run(control.close())
    finally:
        bed.stop()


def _line_of(descriptor: int) -> bytes:
    """Read without a buffer, which would have what follows."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(descriptor, 1)):
        line += byte
    return line


def _answer(line: Mapping[str, str]) -> None:
    print(json.dumps(line), flush=True)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    given: dict[str, Any] = json.loads(_line_of(sys.stdin.fileno()))
    try:
        serve(given)
    except (ConfigError, StartError) as error:
        _answer({"kind": type(error).__name__, "wrong": str(error)})


if __name__ == "__main__":
    main()
