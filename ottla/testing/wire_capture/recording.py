"""`kafka.wire`, of the handle of a test: captures of what goes over the wire.

with kafka.wire.record("rebalance.owire"):
    ...                                          # what clients do now is in the file
capture = kafka.wire.record("shop.owire")
kafka.wire.mark("the second consumer joins")
capture.stop()
"""

import asyncio
import sys
import warnings
from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ottla.testing.usage import checks_usage
from ottla.testing.wire_capture.file_format import CaptureError

if TYPE_CHECKING:
    from ottla.testing.testbed import Testbed
    from ottla.testing.wire_capture.capture import Capture

__all__ = ["CaptureError", "CaptureWarning", "KafkaWire", "KafkaWireAsync", "WireCapture", "WireCaptureAsync"]


class CaptureWarning(UserWarning):
    """A capture does not have all: the disk was full or slow."""


@checks_usage
class KafkaWire:
    """For tests that block."""

    def __init__(self, bed: "Testbed") -> None:
        self._bed = bed

    def record(self, path: str | Path, *, with_secrets: bool = False) -> "WireCapture":
        """Captures into this file from now on, also connections that are open already, until `stop` or the end of the
        context. A file that is there is written over. `with_secrets`: tokens of logins are not left out. Raises
        CaptureError where the file cannot be written, and while another capture is not over."""
        return WireCapture(self._bed, self._bed.call(begin_capture, self._bed, Path(path), with_secrets))

    def mark(self, text: str) -> None:
        """A line in the capture, if there is one, to find a place again."""
        self._bed.call(lambda: self._bed.hosted.capture_host.mark(text=text))


class WireCapture:
    """One that is under way, or over. As a context it is stopped at the end."""

    def __init__(self, bed: "Testbed", capture: "Capture") -> None:
        self._bed = bed
        self._capture = capture

    @property
    def path(self) -> Path:
        return self._capture.path

    @property
    def ended_early(self) -> str | None:
        """A sentence, where the file does not have all."""
        return self._capture.ended

    def stop(self) -> None:
        """Returns when all is in the file. A file that does not have all is a CaptureWarning."""
        self._bed.call(end_capture, self._bed, self._capture)
        self._capture.wait()
        warn_if_early(self._capture)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


@checks_usage
class KafkaWireAsync:
    """The same for coroutines: `async with kafka.wire.record(path):`, or `capture = await kafka.wire.record(path)`."""

    def __init__(self, bed: "Testbed") -> None:
        self._bed = bed

    def record(self, path: str | Path, *, with_secrets: bool = False) -> "WireCaptureAsync":
        return WireCaptureAsync(self._bed, Path(path), with_secrets=with_secrets)

    async def mark(self, text: str) -> None:
        await self._bed.loop.wait_for_call(lambda: self._bed.hosted.capture_host.mark(text=text))


class WireCaptureAsync:
    """It begins when it is awaited or entered."""

    def __init__(self, bed: "Testbed", path: Path, *, with_secrets: bool) -> None:
        self._bed = bed
        self.path = path
        self._with_secrets = with_secrets
        self._capture: Capture | None = None

    async def _begin(self) -> Self:
        self._capture = await self._bed.loop.wait_for_call(begin_capture, self._bed, self.path, self._with_secrets)
        return self

    def __await__(self) -> Generator[Any, Any, Self]:
        return self._begin().__await__()

    async def __aenter__(self) -> Self:
        return await self._begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def ended_early(self) -> str | None:
        return None if self._capture is None else self._capture.ended

    async def stop(self) -> None:
        if self._capture is not None:
            await self._bed.loop.wait_for_call(end_capture, self._bed, self._capture)
            await asyncio.get_running_loop().run_in_executor(None, self._capture.wait)
            warn_if_early(self._capture)


# On the loop of the brokers.


def begin_capture(
    bed: "Testbed", path: Path, with_secrets: bool, *, bytes_max: int = sys.maxsize, **header: Any
) -> "Capture":
    """Raises CaptureError."""
    hosted = bed.hosted
    given = {"cluster_id": hosted.cluster_id, "nodes": hosted.node_ids, "seed": hosted.fault_host.seed, **header}
    return hosted.capture_host.begin(path, given, with_secrets=with_secrets, log=hosted.log, bytes_max=bytes_max)


def end_capture(bed: "Testbed", capture: "Capture") -> None:
    if bed.hosted.capture_host.capture is capture:
        bed.hosted.capture_host.end()


def warn_if_early(capture: "Capture") -> None:
    if capture.ended is not None:
        warnings.warn(CaptureWarning(capture.ended), stacklevel=3)
