"""Seeded bugs in what threads do beside the loop: each is sound where nothing comes between two operations of a thread.

Each is a function that is handed pytest's monkeypatch, as in `seeded_bugs.py`. `docs/seeded-bugs.md` lists them.
"""

from collections.abc import Callable
from typing import Any

from ottla.storage.durability import Durability, FlushWork
from ottla.storage.local_log import LocalLog, NamesSync

Patch = Any


def calls_durable_what_was_appended_during_a_sync(patch: Patch) -> None:
    """The thread asks the log for its end when it has synced, not before."""
    begin, run = Durability.begin_flush, FlushWork.run
    logs: dict[int, Any] = {}

    def begin_flush(self: Any) -> FlushWork:
        work = begin(self)
        logs[id(work)] = self._local
        return work

    def run_and_look(self: FlushWork) -> None:
        run(self)
        self.end_offset = logs.pop(id(self)).log_end_offset

    patch.setattr(Durability, "begin_flush", begin_flush)
    patch.setattr(FlushWork, "run", run_and_look)


def calls_names_durable_that_came_during_a_sync(patch: Patch) -> None:
    begin, run = LocalLog.begin_names_sync, NamesSync.run
    logs: dict[int, LocalLog] = {}

    def begin_sync(self: LocalLog) -> NamesSync:
        work = begin(self)
        logs[id(work)] = self
        return work

    def run_and_look(self: NamesSync) -> None:
        run(self)
        self.name_changes = logs.pop(id(self)).name_changes

    patch.setattr(LocalLog, "begin_names_sync", begin_sync)
    patch.setattr(NamesSync, "run", run_and_look)


SEEDED_THREAD_BUGS: dict[str, Callable[[Patch], None]] = {
    "calls durable what was appended during a sync": calls_durable_what_was_appended_during_a_sync,
    "calls names durable that came during a sync": calls_names_durable_that_came_during_a_sync,
}
