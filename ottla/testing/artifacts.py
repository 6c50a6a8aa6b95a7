"""What a failed test leaves with `--ottla-artifacts DIR`: a directory with the capture, the log and the report.

DIR/test_orders.py--test_refund/
    capture.owire    what went over the wire, from the begin of the test (docs/wire.md)
    broker.log       the log of its brokers: warnings and errors
    report.json      where and how it failed, and the sections that a report shows
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any, Final

from ottla.testing.report import Section
from ottla.testing.testbed import Testbed
from ottla.testing.wire_capture.recording import begin_capture, end_capture, warn_if_early

NAME_MAX: Final = 150
CAPTURE_FILE, LOG_FILE, REPORT_FILE = "capture.owire", "broker.log", "report.json"


class TestArtifacts:
    """Of one test: `begin`, then `note_failure` for each phase that fails, `end` when its brokers are as they were."""

    __test__ = False

    def __init__(self, directory: Path, test_id: str) -> None:
        words = re.sub(r"[^A-Za-z0-9_.-]+", "-", test_id.replace("::", "--"))
        self.path = directory / words[-NAME_MAX:].strip("-")
        self._test_id = test_id
        self._failures: list[dict[str, Any]] = []
        self._sections: list[Section] = []
        self._log_count = 0

    def begin(self, bed: Testbed) -> None:
        """Raises CaptureError, OSError."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._log_count = bed.hosted.log_lines.count
        self._capture = bed.call(lambda: begin_capture(bed, self.path / CAPTURE_FILE, False, test=self._test_id))
        bed.call(lambda: bed.hosted.capture_host.mark(test=self._test_id))

    def note_failure(self, phase: str, text: str, sections: list[Section]) -> None:
        self._failures.append({"phase": phase, "text": text})
        self._sections = self._sections or sections

    def end(self, bed: Testbed, *, is_kept: bool, seed: int) -> None:
        """The brokers may have stopped. The directory of a test that has passed is removed."""
        if not self._capture.is_over:
            bed.call(end_capture, bed, self._capture)
        self._capture.wait()
        if not is_kept:
            shutil.rmtree(self.path, ignore_errors=True)
            return
        warn_if_early(self._capture)
        lines = bed.hosted.log_lines.since(self._log_count)
        (self.path / LOG_FILE).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        report = {
            "test": self._test_id,
            "seed": seed,
            "failures": self._failures,
            "capture_ended_early": self._capture.ended,
            "sections": dict(self._sections),
        }
        text = json.dumps(report, indent=2, ensure_ascii=False)
        (self.path / REPORT_FILE).write_text(text + "\n", encoding="utf-8", errors="replace")
