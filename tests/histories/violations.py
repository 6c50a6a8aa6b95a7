"""What can be wrong with a history."""

from dataclasses import dataclass
from enum import Enum

Partition = tuple[str, int]


class Kind(Enum):
    LOST = "acknowledged with acks=all, and not in the final log"
    DUPLICATED = "written once by an idempotent producer, and at two offsets in the final log"
    REORDERED = "in the final log in another order than it was written"
    MOVED = "acknowledged or read at another offset than it has in the final log"
    VANISHED = "read by a consumer, and not in the final log"
    INVENTED = "read or in the final log, though no producer sent it"
    REFUSED_BUT_WRITTEN = "refused, and yet in the final log"
    HOLE = "an offset between start and end of the final log that has no record"
    SKIPPED = "a consumer was handed an offset that does not follow the one before"
    END_FELL = "a client saw a smaller end of a partition than it had seen before"
    COMMIT_LOST = "none was read as committed, though a commit had been acknowledged or read"
    COMMIT_MOVED_BACK = "an older commit was read, though a later one had been acknowledged or read"
    COMMIT_INVENTED = "a commit was read that no client made, or that was refused, or with another offset"


@dataclass(frozen=True)
class Violation:
    kind: Kind
    partition: Partition
    how: str

    def __str__(self) -> str:
        topic, index = self.partition
        return f"{self.kind.name} {topic}-{index}: {self.how}"
