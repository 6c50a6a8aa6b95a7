"""Keeping up with a metadata store: everything as it is, then every change, and everything again after a gap."""

from collections.abc import Callable

from ottla.cluster.store import Changes, Compacted, MetadataStore, Snapshot, Unavailable, Watch, WatchEvent


class Follower:
    """Reads a prefix, then watches it from there. Where the store has not kept what comes next, it begins again.

    `deliver` gets a Snapshot first, then Changes with rising revisions; another Snapshot stands for all that was
    missed. `failed` gets the reason when the store cannot be read, or has gone back to an earlier revision, having lost
    what followed; `start` may then be called again."""

    def __init__(
        self,
        store: MetadataStore,
        prefix: str,
        deliver: Callable[[Snapshot | Changes], None],
        failed: Callable[[Unavailable], None],
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._deliver = deliver
        self._failed = failed
        self._watch: Watch | None = None
        self._stopped = False
        self._revision = 0

    def start(self) -> None:
        self._store.read(self._prefix, self._took)

    def stop(self) -> None:
        self._stopped = True
        if self._watch is not None:
            self._watch.cancel()

    def _took(self, result: Snapshot | Unavailable) -> None:
        if self._stopped:
            return
        if isinstance(result, Unavailable):
            self._failed(result)
            return
        if result.revision < self._revision:
            self._failed(Unavailable(f"it was at revision {self._revision} and is at {result.revision}"))
            return
        self._revision = result.revision
        self._deliver(result)
        if not self._stopped:
            self._watch = self._store.watch(self._prefix, result.revision + 1, self._saw)

    def _saw(self, event: WatchEvent) -> None:
        if self._stopped:
            return
        if isinstance(event, Compacted):
            self.start()
        else:
            self._revision = event.revision
            self._deliver(event)
