"""Which functions of the package `ottla` run, and how often each."""

import inspect
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import ottla
from tests.simulation.loop import PROCESS, Process

PACKAGE = f"{Path(ottla.__file__).parent}/"
# Of generators and coroutines, which Python enters again and again.
RESUMABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


@dataclass(frozen=True)
class Calls:
    """Calls of each file and function, in the order in which they were met first."""

    name: str
    by_function: dict[tuple[str, str], int]

    @property
    def count(self) -> int:
        return sum(self.by_function.values())

    def by_file(self) -> dict[str, int]:
        """In the order in which the files were entered."""
        counted: Counter[str] = Counter()
        for (file, _), count in self.by_function.items():
            counted[file] += count
        return dict(counted)


class CallCounter:
    """Counts between `start` and `stop` what simulated processes run.

    Counted are first entries of functions and lambdas: not comprehensions, not the later entries of a generator or
    coroutine, not functions that the package generates from text.
    """

    def __init__(self) -> None:
        self._counted: Counter[tuple[Process, str, str]] = Counter()
        self._resumable: set[FrameType] = set()

    def start(self) -> None:
        sys.setprofile(self._profile)

    def stop(self) -> None:
        sys.setprofile(None)
        self._resumable.clear()

    def calls(self, name: str, of: Process | None = None) -> Calls:
        """Of all processes, or of one."""
        counted: Counter[tuple[str, str]] = Counter()
        for (process, file, function), count in self._counted.items():
            if of is None or process is of:
                counted[file, function] += count
        return Calls(name, dict(counted))

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE):
            return
        if code.co_name.startswith("<") and code.co_name != "<lambda>":
            return
        process = PROCESS.get()
        if process is None:
            return
        if code.co_flags & RESUMABLE:
            if frame in self._resumable:
                return
            self._resumable.add(frame)
        self._counted[process, code.co_filename.removeprefix(PACKAGE), code.co_qualname] += 1
