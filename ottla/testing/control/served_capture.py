"""A capture that is begun, ended and fetched over HTTP.

Its file has no name as soon as it is open, so that nothing is left of it when the process ends, however it does; what
has no name is read by its descriptor. It is on the file system of the data, for its owner alone, and bounded.
"""

import asyncio
import os
from typing import Final

from ottla.storage.files import reason_of
from ottla.testing.testbed import Testbed
from ottla.testing.wire_capture.file_format import CaptureError
from ottla.testing.wire_capture.recording import begin_capture, end_capture

CAPTURE_BYTES_MAX: Final = 256 << 20
PIECE_BYTES: Final = 256 << 10


class ServedCapture:
    """Everything here runs on the loop of the brokers."""

    def __init__(self, bed: Testbed) -> None:
        """It captures from now on. Secrets are left out. Raises CaptureError."""
        self._bed = bed
        self.is_stopped = False
        path = bed.capture_path
        self._capture = begin_capture(bed, path, False, bytes_max=CAPTURE_BYTES_MAX)
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            path.unlink()
        except OSError as error:
            end_capture(bed, self._capture)
            raise CaptureError(f"cannot write the capture {path}: {reason_of(error)}") from None

    @property
    def size(self) -> int:
        """Of the file, in bytes."""
        return os.fstat(self._descriptor).st_size

    @property
    def why_early(self) -> str | None:
        """Why it does not have all."""
        return self._capture.why_early

    async def stop(self) -> None:
        """Returns when all is in the file."""
        end_capture(self._bed, self._capture)
        await asyncio.get_running_loop().run_in_executor(None, self._capture.wait)
        self.is_stopped = True

    def content(self) -> "CaptureContent":
        """Of one that is over."""
        return CaptureContent(self._descriptor, self.size)

    def close(self) -> None:
        """The file goes when no client reads it any more."""
        os.close(self._descriptor)


class CaptureContent:
    """What `ottla.broker.admin.http.HttpRest` asks for: the bytes of a file, for one client."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.size = size
        self._descriptor = os.dup(descriptor)
        self._position = 0
        self._is_closed = False

    def read(self) -> bytes:
        """Raises OSError."""
        piece = os.pread(self._descriptor, PIECE_BYTES, self._position)
        self._position += len(piece)
        return piece

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            os.close(self._descriptor)
