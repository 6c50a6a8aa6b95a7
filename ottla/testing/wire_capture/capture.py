"""A capture that is being written: what is noted on the loop of the brokers goes to a thread, which writes it.

The thread wakes when there is something, waits a little for more, and writes all of it at once. What waits for it is
bounded: when the disk is slower than the clients, or full, the capture ends and says so, and the brokers go on as if
there were none.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event, Thread
from typing import Any, BinaryIO, Final

from ottla.storage.files import reason_of
from ottla.testing.wire_capture.blanking import RequestFilter, ResponseFilter
from ottla.testing.wire_capture.file_format import (
    CaptureError,
    CaptureRecord,
    RecordKind,
    build_header,
    build_json,
    build_record,
)

WAITING_BYTES_MAX: Final = 64 << 20
"""Of what was noted and is not in the file yet."""
RECORD_OVERHEAD: Final = 160
"""What a record takes in memory beside its payload, about."""
WRITTEN_AT_ONCE: Final = 8 << 20
GATHER_S: Final = 0.02
FILE_MODE: Final = 0o600
STOPPED: Final = "stopped"


class Capture:
    """`note` and `end` are for the loop of the brokers, `wait` for any other thread. Raises CaptureError where the file
    cannot be written."""

    def __init__(
        self, path: Path, header: Mapping[str, Any], *, with_secrets: bool, waiting_bytes_max: int = WAITING_BYTES_MAX
    ) -> None:
        """`with_secrets`: what clients prove who they are with is written as well."""
        self.path = path
        self.began_ns = time.time_ns()
        self.ended: str | None = None
        """Why it ended before it was stopped: a sentence."""
        self.is_over = False
        """Nothing more is noted."""
        self.on_end: Callable[[], None] | None = None
        """Called on the loop, once, when it ends before it was stopped."""
        self._waiting_bytes_max = waiting_bytes_max
        self._records: deque[CaptureRecord] = deque()
        # Each is counted by one thread: what waits is the difference.
        self._noted_bytes = self._written_bytes = 0
        self._filters: dict[int, tuple[RequestFilter, ResponseFilter]] | None = None if with_secrets else {}
        self._failure: str | None = None
        self._last = 0
        try:
            self._file: BinaryIO = open(path, "wb", buffering=0, opener=_open_privately)  # noqa: SIM115
            self._file.write(build_header({**header, "secrets": "kept" if with_secrets else "left out"}))
        except OSError as error:
            raise CaptureError(f"cannot write the capture {path}: {reason_of(error)}") from None
        self._wake = Event()
        self._thread = Thread(target=self._write_all, name="ottla-capture", daemon=True)
        self._thread.start()

    def next_connection(self) -> int:
        """The number of another one."""
        self._last += 1
        return self._last

    def note(self, kind: int, connection: int, broker_ms: int, payload: bytes) -> None:
        if self.is_over:
            return
        waiting = self._noted_bytes - self._written_bytes
        if self._failure is not None or waiting > self._waiting_bytes_max:
            self._end_early(self._failure or f"more than {self._waiting_bytes_max >> 20} MiB waited to be written")
            return
        self._noted_bytes += len(payload) + RECORD_OVERHEAD
        self._records.append(CaptureRecord(kind, time.time_ns(), broker_ms, connection, payload))
        if not self._wake.is_set():
            self._wake.set()

    def note_json(self, kind: RecordKind, connection: int, broker_ms: int, fields: Mapping[str, Any]) -> None:
        self.note(kind, connection, broker_ms, build_json(fields))

    def end(self) -> None:
        """Nothing more is noted; `wait` comes next."""
        if not self.is_over:
            self._records.append(_end_record(STOPPED))
            self.is_over = True
        self._wake.set()

    def wait(self) -> None:
        """Returns when all is in the file, which may take a while. What was wrong is in `ended`."""
        assert self.is_over, "a capture ends before its file is whole"
        self._thread.join()
        if self.ended is None and self._failure is not None:
            self.ended = self._sentence(self._failure)

    def _end_early(self, why: str) -> None:
        self.ended = self._sentence(why)
        self.is_over = True
        self._records.append(_end_record(why))
        self._wake.set()
        if self.on_end is not None:
            self.on_end()

    def _sentence(self, why: str) -> str:
        return f"the capture {self.path} ended early: {why}"

    # In the thread.

    def _write_all(self) -> None:
        try:
            while self._write_some():
                pass
        except OSError as error:
            self._failure = reason_of(error)
            self._records.clear()
        finally:
            try:
                self._file.close()
            except OSError as error:
                self._failure = self._failure or reason_of(error)

    def _write_some(self) -> bool:
        self._wake.wait()
        if not self.is_over:
            time.sleep(GATHER_S)
        self._wake.clear()
        out: list[bytes] = []
        size = written = 0
        has_ended = False
        while self._records and size < WRITTEN_AT_ONCE:
            record = self._records.popleft()
            written += len(record.payload) + RECORD_OVERHEAD
            has_ended = record.kind == RecordKind.END
            built = b"".join(map(build_record, self._as_written(record)))
            out.append(built)
            size += len(built)
        data = memoryview(b"".join(out))
        while data:
            data = data[self._file.write(data) :]
        self._written_bytes += written
        if self._records:
            self._wake.set()
        return not has_ended

    def _as_written(self, record: CaptureRecord) -> list[CaptureRecord]:
        """Without secrets."""
        filters, number = self._filters, record.connection
        if filters is None:
            return [record]
        if record.kind == RecordKind.RECEIVED:
            requests, _ = filters.get(number) or self._new_filters(number)
            return [record._replace(payload=requests.add(record.payload))]
        if record.kind == RecordKind.SENT:
            _, responses = filters.get(number) or self._new_filters(number)
            return [record._replace(payload=responses.add(record.payload))]
        if record.kind == RecordKind.CLOSED and number in filters:
            requests, responses = filters.pop(number)
            rest = ((RecordKind.RECEIVED, requests.rest()), (RecordKind.SENT, responses.rest()))
            return [*(record._replace(kind=kind, payload=data) for kind, data in rest if data), record]
        if record.kind == RecordKind.END:
            left = [(number, *each) for number, each in filters.items()]
            filters.clear()
            kept = [(number, RecordKind.RECEIVED, requests.rest()) for number, requests, _ in left]
            kept += [(number, RecordKind.SENT, responses.rest()) for number, _, responses in left]
            return [
                *(record._replace(kind=kind, connection=number, payload=data) for number, kind, data in kept if data),
                record,
            ]
        return [record]

    def _new_filters(self, number: int) -> tuple[RequestFilter, ResponseFilter]:
        assert self._filters is not None, "a capture with secrets has no filters"
        requests = RequestFilter()
        made = self._filters[number] = requests, ResponseFilter(requests)
        return made


def _end_record(why: str) -> CaptureRecord:
    return CaptureRecord(RecordKind.END, time.time_ns(), 0, 0, build_json({"cause": why}))


def _open_privately(path: str, flags: int) -> int:
    """Records of users are for their owner's eyes."""
    import os

    return os.open(path, flags, FILE_MODE)
