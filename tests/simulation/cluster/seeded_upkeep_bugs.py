"""Seeded bugs around disks that rot, compaction, tombstones, deleted offsets, moved logs, and the metadata store.

Each is a function that is handed pytest's monkeypatch, as in `seeded_bugs.py`. `docs/seeded-bugs.md` lists them.
"""

from collections.abc import Callable, Iterator
from typing import Any

from ottla.broker.metadata.deleted_topics import DeletedTopics
from ottla.broker.upkeep.log_cleaner import Cleaner
from ottla.cluster.embedded import EmbeddedSession
from ottla.coordinator import group_removal
from ottla.coordinator.offsets import delete
from ottla.storage import compaction, segment_reader
from tests.simulation.cluster.store import RemoteWatch

Patch = Any


def reads_without_checksums(patch: Patch) -> None:
    """Damaged records are served."""
    unpack = segment_reader._unpack_header

    def believing(view: Any, position: int) -> Any:
        base, length, epoch, magic, _, attributes, delta = unpack(view, position)
        covered = view[position + segment_reader.CRC_COVERS_FROM : position + length + segment_reader.LENGTH_OVERHEAD]
        return base, length, epoch, magic, segment_reader.crc32c(covered), attributes, delta

    patch.setattr(segment_reader, "_unpack_header", believing)


def compacts_beyond_the_high_watermark(patch: Patch) -> None:
    plan = compaction.plan_compaction

    def all_of_it(log: Any, **named: Any) -> Any:
        return plan(log, **named | {"upper_bound": log.log_end_offset})

    patch.setattr(compaction, "plan_compaction", all_of_it)


def compacts_no_more_once_refused(patch: Patch) -> None:
    """Until the broker is started again."""
    log_failure = Cleaner._log_failure

    def end(self: Cleaner, *failure: Any) -> None:
        log_failure(self, *failure)
        self.stop()

    patch.setattr(Cleaner, "_log_failure", end)


def removes_a_tombstone_before_its_record(patch: Patch) -> None:
    stays = compaction._Cleaner._stays
    patch.setattr(
        compaction._Cleaner,
        "_stays",
        lambda self, record, header: (
            record.value is not None and (record.offset % 2 == 0 or stays(self, record, header))
        ),
    )


def writes_no_tombstones_for_deleted_groups(patch: Patch) -> None:
    """The answer says that the offsets are gone. The next coordinator has them again."""
    patch.setattr(group_removal, "append_tombstones", _complete_without_appending)


def deletes_no_offset(patch: Patch) -> None:
    patch.setattr(delete, "append_tombstones", _complete_without_appending)


def _complete_without_appending(context: Any, _group_id: str, _records: Any, after: Any) -> Iterator[None]:
    after.completed(context)
    yield


def lets_no_offset_expire(patch: Patch) -> None:
    patch.setattr(group_removal, "expired_partitions", lambda context, group: [])


def loses_a_change_of_the_store(patch: Patch) -> None:
    """A watch that was held up goes on after what it has missed."""
    healed = RemoteWatch.healed

    def skip(self: Any) -> None:
        del self._held_up[:1]
        healed(self)

    patch.setattr(RemoteWatch, "healed", skip)


def commits_whatever_was_expected(patch: Patch) -> None:
    """Two brokers that decide by the same state both change it."""
    commit = EmbeddedSession.commit
    patch.setattr(EmbeddedSession, "commit", lambda self, expected, changes, done: commit(self, [], changes, done))


def keeps_logs_that_were_moved_away(patch: Patch) -> None:
    """Of partitions that left while the broker was down."""
    patch.setattr(DeletedTopics, "_set_aside", lambda self, name, index: None)


SEEDED_UPKEEP_BUGS: dict[str, Callable[[Patch], None]] = {
    "reads without checksums": reads_without_checksums,
    "compacts beyond the high watermark": compacts_beyond_the_high_watermark,
    "compacts no more once refused": compacts_no_more_once_refused,
    "removes a tombstone before its record": removes_a_tombstone_before_its_record,
    "writes no tombstones for deleted groups": writes_no_tombstones_for_deleted_groups,
    "deletes no offset": deletes_no_offset,
    "lets no offset expire": lets_no_offset_expire,
    "loses a change of the store": loses_a_change_of_the_store,
    "commits whatever was expected": commits_whatever_was_expected,
    "keeps logs that were moved away": keeps_logs_that_were_moved_away,
}
