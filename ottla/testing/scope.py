"""Which part of its brokers a control address is for: all of it here, what is a worker's in `ottla.testing.shared`.

A worker is a process of pytest-xdist that shares the broker with others. What begins with its prefix is its own.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ottla.testing.audit.auditor import Auditor
from ottla.testing.testbed import Testbed
from ottla.testing.wire import ConnectionNotes

if TYPE_CHECKING:
    from ottla.testing.faults.faults import Fault


class ControlScope:
    """Everything here runs on the loop of the brokers."""

    prefix = ""
    """Of names of topics, groups, clients and rules; empty: all of them."""

    def __init__(self, bed: Testbed) -> None:
        self._bed = bed

    @property
    def auditor(self) -> Auditor:
        return self._bed.auditor

    def covers(self, name: str) -> bool:
        return name.startswith(self.prefix)

    def covers_connection(self, notes: ConnectionNotes) -> bool:
        return not self.prefix or notes.worker == self.prefix

    def faults(self) -> "list[Fault]":
        """Since the last `clear`, those that were removed too."""
        faults = self._bed.hosted.fault_host.faults_if_used
        return [] if faults is None else [each for each in faults.all_since_clear() if self.covers(each.id)]

    def unused_faults(self) -> list[str]:
        """In sentences, those that never acted and should have, and steps of scripts that did not run."""
        faults, scripts = self._bed.hosted.fault_host.faults_if_used, self._bed.scripts_if_used
        sentences = [] if scripts is None else scripts.unused()
        unused = [] if faults is None else faults.unused()
        return sentences + [each.text for each in unused if each.is_error and self.covers(each.fault.id)]

    async def clear_scripts(self) -> None:
        """What has not run does not run any more."""
        scripts = self._bed.scripts_if_used
        if scripts is not None:
            await scripts.clear()

    def clear_faults(self) -> None:
        """They are counted, removed and forgotten."""
        faults = self._bed.hosted.fault_host.faults_if_used
        if faults is None:
            return
        if self._bed.wire.coverage is not None:
            self._bed.wire.coverage.note_injected(self.faults())
        faults.clear(self.prefix)

    def begin_test(self, name: str) -> None:
        """Connections from now on are opened in this test."""
        self._bed.wire.test = name

    def end_test(self) -> None:
        self._bed.wire.test = ""

    def check(self, method: str, path: str, given: Mapping[str, str], body: Any) -> None:
        """Whether this may be asked for: `path` as the table of requests has it, `given` for its parts in braces.
        Raises Problem."""

    def check_rule(self, rule: Mapping[str, Any]) -> None:
        """Raises RuleError."""
