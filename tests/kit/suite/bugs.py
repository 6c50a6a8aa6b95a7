"""Bugs of the kit that the suite finds when they are seeded: each makes one test meet another one."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from ottla.broker.assembly import Parts
from ottla.testing.snapshots import snapshots
from ottla.testing.worlds import WorldKeeper


def reset_keeps_topics() -> None:
    """Coordinators are emptied, and topics are not deleted."""

    async def delete_nothing(self: WorldKeeper, all_parts: Sequence[Parts]) -> int:
        return 0

    WorldKeeper._delete = delete_nothing


def restore_keeps_groups() -> None:
    """Coordinators do not load what the snapshot has."""

    def as_they_are(self: WorldKeeper, parts: Parts) -> AbstractContextManager[None]:
        return nullcontext()

    WorldKeeper.without_coordinators = as_they_are


def restore_keeps_appends() -> None:
    """A log with another end counts as unchanged."""
    snapshots._is_as_kept = lambda parts, snapshot, now, kept: now is not None


BUGS: dict[str, Callable[[], None]] = {
    "reset-keeps-topics": reset_keeps_topics,
    "restore-keeps-groups": restore_keeps_groups,
    "restore-keeps-appends": restore_keeps_appends,
}
