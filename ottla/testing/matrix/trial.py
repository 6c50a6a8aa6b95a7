"""One run of a test in the matrix: the first, without a fault, which shows what the test uses, or one under a fault."""

from collections import Counter
from typing import TYPE_CHECKING

from ottla.testing.audit.findings import AuditFinding, FindingKind
from ottla.testing.matrix.matrix_faults import MatrixFault, happenings_over
from ottla.testing.testbed import Testbed

if TYPE_CHECKING:
    from ottla.testing.faults.faults import Fault


class Trial:
    """Testbeds join it at the begin of the test, when its topics and rules are there, and leave it at the end."""

    def __init__(self, fault: MatrixFault | None) -> None:
        """None: of the first run."""
        self.fault = fault
        self.apis: set[str] = set()
        """Those that clients have used."""
        self.brokers = 0
        """How many the largest testbed has."""
        self.findings: list[AuditFinding] = []
        self._added: list[Fault] = []
        self._marks: dict[Testbed, int] = {}

    @property
    def is_again(self) -> bool:
        return self.fault is not None

    @property
    def hits(self) -> int:
        """How many requests the fault has acted on."""
        return sum(each.hits for each in self._added)

    def kinds(self) -> Counter[FindingKind]:
        """How many findings of each kind the audit had."""
        return Counter(each.kind for each in self.findings)

    def begin(self, bed: Testbed) -> None:
        """Raises RuleError."""
        self._marks[bed] = bed.wire.count
        self.brokers = max(self.brokers, bed.hosted.count)
        if self.fault is not None:
            rule = {**self.fault.rule(bed), "id": f"matrix-{self.fault.name}", "optional": True}
            self._added.append(bed.hosted.fault_host.faults.add(rule))

    def end(self, bed: Testbed, found: list[AuditFinding]) -> None:
        """Before the testbed is emptied."""
        self.findings += found
        # All of a connection, for the first requests of a long test are no longer among the last ones.
        for event in bed.call(bed.wire.since, self._marks.pop(bed)):
            if not event.connection.is_of_broker:
                self.apis.update(event.connection.apis)
        if self.is_again:
            for each in self._added:
                each.remove()
            # Two would start the same broker.
            bed.run(happenings_over())
            bed.run(bed.control.heal())
