"""A capture that is being written: what is noted on the loop of the brokers goes to a thread, which writes it.

The thread wakes when there is something, waits a little for more or for the end, and writes all of it at once. What
waits for it is bounded: when the disk is slower than the clients, or full, the capture ends and says so, and the
brokers go on as if there were none.
"""

import os
import sys
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event, Thread
from time import time_ns
from typing import Any, BinaryIO, Final

from ottla.storage.files import reason_of
from ottla.testing.wire_capture.blanking import RequestFilter, ResponseFilter
from ottla.testing.wire_capture.file_format import (
    BLOCK_BYTES,
    PAYLOAD_BYTES_MAX,
    CaptureError,
    RecordKind,
    build_block,
    build_header,
    build_json,
)

WAITING_BYTES_MAX: Final = 64 << 20
"""Of what was noted and is not in the file yet."""
RECORD_OVERHEAD: Final = 160
"""What a record takes in memory beside its payload, about."""
RECORDS_AT_ONCE: Final = 256
"""Before the thread lets others run."""
GATHER_S: Final = 0.02
FILE_MODE: Final = 0o600
# As plain numbers, for there are very many of them.
RECEIVED, SENT = OF_BYTES = int(RecordKind.RECEIVED), int(RecordKind.SENT)
STOPPED: Final = "stopped"
Noted = tuple[int, int, int, int, bytes]
"""The fields of a CaptureRecord."""
Filters = tuple[RequestFilter, ResponseFilter]


class Capture:
    """`note` and `end` are for the loop of the brokers, `wait` for any other thread. Raises CaptureError where the file
    cannot be written."""

    def __init__(
        self,
        path: Path,
        header: Mapping[str, Any],
        *,
        with_secrets: bool,
        waiting_bytes_max: int = WAITING_BYTES_MAX,
        bytes_max: int = sys.maxsize,
    ) -> None:
        """`with_secrets`: what clients prove who they are with is written as well. `bytes_max`: what all records may
        have; with more the capture ends."""
        self.path = path
        self.why_early: str | None = None
        """Why it ended before it was stopped."""
        self.is_over = False
        """Nothing more is noted."""
        self.on_end: Callable[[], None] | None = None
        """Called on the loop, once, when it ends before it was stopped."""
        self._waiting_bytes_max = waiting_bytes_max
        self._bytes_max = bytes_max
        self._records: deque[Noted] = deque()
        self._is_awake = False
        # Each is counted by one thread: what waits is the difference.
        self._noted_bytes = self._written_bytes = 0
        self._filters: dict[int, Filters] | None = None if with_secrets else {}
        self._failure: str | None = None
        self._last = 0
        try:
            self._file: BinaryIO = open(path, "wb", buffering=0, opener=_open_privately)  # noqa: SIM115
            self._file.write(build_header({**header, "secrets": "kept" if with_secrets else "left out"}))
        except OSError as error:
            raise CaptureError(f"cannot write the capture {path}: {reason_of(error)}") from None
        self._wake = Event()
        self._is_much = Event()  # So much, or the end, that nothing more is waited for.
        self._thread = Thread(target=self._write_all, name="ottla-capture", daemon=True)
        self._thread.start()

    def next_connection(self) -> int:
        """The number of another one."""
        self._last += 1
        return self._last

    def note(self, kind: int, connection: int, broker_ms: int, payload: bytes) -> None:
        if self.is_over:
            return
        if len(payload) > PAYLOAD_BYTES_MAX:
            for start in range(0, len(payload), PAYLOAD_BYTES_MAX):
                self.note(kind, connection, broker_ms, payload[start : start + PAYLOAD_BYTES_MAX])
            return
        noted = self._noted_bytes + len(payload) + RECORD_OVERHEAD
        waiting = noted - self._written_bytes
        if waiting > self._waiting_bytes_max or noted > self._bytes_max or self._failure is not None:
            full = f"more than {self._waiting_bytes_max >> 20} MiB waited to be written"
            if noted > self._bytes_max:
                full = f"it would have more than {self._bytes_max >> 20} MiB"
            self._end_early(self._failure or full)
            return
        self._noted_bytes = noted
        self._records.append((kind, time_ns(), broker_ms, connection, payload))
        if not self._is_awake:
            self._wake.set()
        elif noted - self._written_bytes > BLOCK_BYTES and not self._is_much.is_set():
            self._is_much.set()

    def note_json(self, kind: RecordKind, connection: int, broker_ms: int, fields: Mapping[str, Any]) -> None:
        self.note(kind, connection, broker_ms, build_json(fields))

    def end(self) -> None:
        """Nothing more is noted; `wait` comes next."""
        if not self.is_over:
            self._records.append(_end_record(STOPPED))
            self.is_over = True
        self._wake.set()
        self._is_much.set()

    def wait(self) -> None:
        """Returns when all is in the file, which may take a while. What was wrong is in `ended`."""
        assert self.is_over, "a capture ends before its file is whole"
        self._thread.join()
        if self.why_early is None:
            self.why_early = self._failure

    @property
    def ended(self) -> str | None:
        """Why it ended before it was stopped: a sentence."""
        return None if self.why_early is None else f"the capture {self.path} ended early: {self.why_early}"

    def _end_early(self, why: str) -> None:
        self.why_early = why
        self.is_over = True
        self._records.append(_end_record(why))
        self._wake.set()
        self._is_much.set()
        if self.on_end is not None:
            self.on_end()

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
        """False when nothing more comes."""
        records = self._records
        if not records:
            self._is_awake = False
            # Who notes something from here on sets it.
            if not records:
                self._wake.wait()
            self._wake.clear()
            self._is_awake = True
            if not self.is_over:
                self._is_much.wait(GATHER_S)
            self._is_much.clear()
        out: list[Noted] = []
        size, filters = 0, self._filters
        while records and len(out) < RECORDS_AT_ONCE and size < BLOCK_BYTES:
            record = records.popleft()
            size += len(record[4])
            if filters is None:
                out.append(record)
                continue
            kind, machine_ns, broker_ms, number, payload = record
            if kind in OF_BYTES:
                both = filters.get(number) or self._new_filters(number)
                out.append((kind, machine_ns, broker_ms, number, both[kind == SENT].add(payload)))
            else:
                self._add_ending(out, record, filters)
        if out:
            self._write(build_block(out))
        self._written_bytes += size + RECORD_OVERHEAD * len(out)
        return not out or out[-1][0] != RecordKind.END

    def _write(self, parts: list[bytes]) -> None:
        """Raises OSError."""
        left = sum(map(len, parts)) - os.writev(self._file.fileno(), parts)
        if left:
            # The disk has taken a part of it, as a full one does.
            rest = memoryview(b"".join(parts))[-left:]
            while rest:
                rest = rest[self._file.write(rest) :]

    def _add_ending(self, out: list[Noted], record: Noted, filters: dict[int, Filters]) -> None:
        """With what was kept back of connections that end with it."""
        kind, machine_ns, broker_ms, number, _ = record
        ending = filters if kind == RecordKind.END else [number] if kind == RecordKind.CLOSED else ()
        for each in list(ending):
            requests, responses = filters.get(each) or self._new_filters(each)
            rest = ((RECEIVED, requests.rest()), (SENT, responses.rest()))
            out += [(direction, machine_ns, broker_ms, each, data) for direction, data in rest if data]
            filters.pop(each, None)
        out.append(record)

    def _new_filters(self, number: int) -> Filters:
        assert self._filters is not None, "a capture with secrets has no filters"
        requests = RequestFilter()
        made = self._filters[number] = requests, ResponseFilter(requests)
        return made


def _end_record(why: str) -> Noted:
    return RecordKind.END, time_ns(), 0, 0, build_json({"cause": why})


def _open_privately(path: str, flags: int) -> int:
    """Records of users are for their owner's eyes."""
    return os.open(path, flags, FILE_MODE)
