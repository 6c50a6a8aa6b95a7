"""What an audit can find."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple


class Blame(Enum):
    """Whose fault a finding is."""

    BROKER = "broker"
    APPLICATION = "application"
    LEFTOVER = "leftover"


class FindingKind(Enum):
    """Each with what it means. B: of the broker; P: of the programs under test; L: what a test has left behind."""

    B1 = "acknowledged, and not in the log below the high watermark, or not committed"
    B2 = "one sequence of an idempotent producer is in the log twice"
    B3 = "sequences of an idempotent producer are out of order in the log"
    B4 = "a log start offset or a high watermark went back for one connection"
    B5 = "delivered above the high watermark, or above the last stable offset, or aborted without being listed"
    B6 = "a fetch skipped records"
    B7 = "a commit of an older generation was accepted"
    B9 = "replicas differ below the high watermark"
    P1 = "a batch is in the log twice after a retry without idempotence"
    P2 = "committed beyond what was delivered to the client"
    P3 = "a commit below the group's earlier one"
    P4 = "delivered again to another member, as it was not committed"
    P5 = "records that no client consumed"
    P6 = "a transaction was left open"
    P7 = "a member was removed because of its silence"
    P8 = "records were refused for good"
    P9 = "an assignor gave a partition to two members, or to none"
    L1 = "a connection was left open"
    L2 = "a group still has members"
    L3 = "a fault rule never acted"

    @property
    def blame(self) -> Blame:
        return {"B": Blame.BROKER, "P": Blame.APPLICATION, "L": Blame.LEFTOVER}[self.name[0]]


class LogDamage(NamedTuple):
    """What a test has done to logs behind the back of their broker."""

    cause: str
    """`lose_unsynced on broker 2`."""
    partitions: frozenset[str]
    """`orders-0`."""


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """Something that went wrong, with the requests and answers that show it."""

    kind: FindingKind
    what: str
    """One line."""
    where: str = ""
    """A partition, a group or both: `orders-0`, `shop orders-0`."""
    client_id: str = ""
    """Of whom its events are; empty where that is no single client."""
    events: tuple[str, ...] = ()
    """Up to three requests and answers that show it, the oldest first."""
    explained_by: str | None = None
    """A fault rule, or a damage to logs, that may be behind it; such a finding fails no test."""

    def is_error(self, mode: str) -> bool:
        """Whether it fails a test; `mode` is that of `ottla_audit`."""
        if self.explained_by is not None or self.kind.blame is Blame.LEFTOVER:
            return False
        return mode == "all" or (mode == "errors" and self.kind.blame is Blame.BROKER)

    def explained(self, why: str) -> "AuditFinding":
        return replace(self, explained_by=why)

    def lines(self) -> list[str]:
        """For people: what was found, and below it what shows it."""
        place = f" {self.where}" if self.where else ""
        why = "" if self.explained_by is None else f" (explained by {self.explained_by})"
        return [f"{self.kind.name}{place}: {self.what}{why}", *(f"    {event}" for event in self.events)]
