"""The metadata store of a process that hosts all its brokers: everything in memory, every transaction in SQLite first.

With a path, a transaction is synced to disk before its answer; without one, the store lives as long as the process.

Brokers that share a store take a `session` each. Leases are timers on the wheel that is handed in; without one they
last as long as the store does. What is under a lease is not written to the file: whoever opens it again is another
process, and owns it, so that no session outlives its process there.

Watches are fed from a queue: a transaction puts what each watch has to see at its end, and one loop empties it, so that
every watch sees every transaction in order, also those that another watch's callback has made meanwhile.

A store that is shared by several brokers gives way to others between any two pieces of work: an event loop that runs
them does one transaction, with its sync, or tells one watch of one, in a step. What is asked for meanwhile waits its
turn.
"""

import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ottla.cluster.metadata_file import MetadataFile
from ottla.cluster.store import (
    ABSENT,
    NO_LEASE,
    Change,
    Changes,
    CommitResult,
    Committed,
    Compacted,
    Conflict,
    Delete,
    Entry,
    Expect,
    Granted,
    KeepAliveResult,
    KeptAlive,
    LeaseLost,
    Put,
    Snapshot,
    Unavailable,
    WatchEvent,
)
from ottla.timer.clock import Clock
from ottla.timer.wheel import TimerEntry, TimingWheel

# So many transactions back a watch may begin; older ones have to be read.
HISTORY_MAX = 1000

T = TypeVar("T")


class EmbeddedStore:
    def __init__(
        self,
        path: Path | None = None,
        *,
        clock: Clock | None = None,
        wheel: TimingWheel | None = None,
        post: Callable[[Callable[[], None]], None] | None = None,
        history_max: int = HISTORY_MAX,
    ) -> None:
        """Raises StoreError when the file cannot be opened, is in use, or is not a metadata store.

        Without a clock and a wheel no lease expires by itself. `post` runs an action soon, such as a loop's
        `call_soon`. Without it nothing waits: transactions are made within the call, and watches told of them before
        it returns, after its answer."""
        self._entries: dict[str, Entry] = {}
        self._revision = 0
        self._file = MetadataFile(path) if path is not None else None
        if self._file is not None:
            entries, self._revision = self._file.load()
            self._entries = {entry.key: entry for entry in entries}
        self._clock = clock
        self._wheel = wheel
        self._leases: dict[int, _Lease] = {}
        self._lease_of: dict[str, _Lease] = {}
        self._next_lease_id = 1
        # The transactions from `_revision - len(_history) + 1` on: every one that changed something has its place.
        self._history: deque[Changes] = deque(maxlen=history_max)
        self._watches: list[_Watch] = []
        self._queue: deque[tuple[_Watch, WatchEvent]] = deque()
        self._delivering = False
        self._will_deliver = False
        self._post = post
        # Reads and commits that wait for the end of the step in which a transaction was made.
        self._calls: deque[Callable[[], None]] = deque()
        self._gives_way = False

    def session(self) -> "EmbeddedSession":
        """The store as one broker of several sees it."""
        return EmbeddedSession(self)

    def read(self, prefix: str, done: Callable[[Snapshot | Unavailable], None]) -> None:
        self._in_turn(lambda: self._read(prefix, done))

    def commit(
        self, expected: Sequence[Expect], changes: Sequence[Change], done: Callable[[CommitResult], None]
    ) -> None:
        self._in_turn(lambda: self._commit(expected, changes, done))

    def watch(self, prefix: str, from_revision: int, deliver: Callable[[WatchEvent], None]) -> "_Watch":
        watch = _Watch(prefix, from_revision, deliver)
        oldest = self._revision - len(self._history) + 1
        if from_revision < oldest:
            self._queue.append((watch, Compacted(oldest)))
        else:
            self._watches.append(watch)
            for changes in self._history:
                self._enqueue(watch, changes)
        self._deliver_soon()
        return watch

    def grant(self, ttl_ms: int, done: Callable[[Granted | Unavailable], None]) -> None:
        lease = _Lease(self._next_lease_id, ttl_ms)
        self._next_lease_id += 1
        if self._wheel is not None:
            lease.timer = self._wheel.schedule(self._now_ms() + ttl_ms, lambda: self._expire(lease))
        self._leases[lease.lease_id] = lease
        done(Granted(lease.lease_id, ttl_ms))

    def keep_alive(self, lease_id: int, done: Callable[[KeepAliveResult], None]) -> None:
        lease = self._leases.get(lease_id)
        if lease is None:
            done(LeaseLost())
            return
        if lease.timer is not None:
            lease.timer.reschedule(self._now_ms() + lease.ttl_ms)
        done(KeptAlive())

    def revoke(self, lease_id: int, done: Callable[[LeaseLost | Unavailable], None]) -> None:
        lease = self._leases.get(lease_id)
        if lease is not None:
            self._end(lease)
        try:
            done(LeaseLost())
        finally:
            self._deliver_soon()

    def close(self) -> None:
        for watch in self._watches:
            watch.cancel()
        self._watches.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    # One after the other.

    def _in_turn(self, call: Callable[[], None]) -> None:
        if self._gives_way:
            self._calls.append(call)
        else:
            call()

    def _give_way(self) -> None:
        """What is asked for from now on waits for the next step."""
        if self._post is not None and not self._gives_way:
            self._gives_way = True
            self._post(self._go_on)

    def _go_on(self) -> None:
        self._gives_way = False
        try:
            while self._calls and not self._gives_way:
                self._calls.popleft()()
        finally:
            # A callback that raised does not keep the others from their answers.
            if self._calls:
                self._give_way()

    def _read(self, prefix: str, done: Callable[[Snapshot | Unavailable], None]) -> None:
        entries = [self._entries[key] for key in sorted(self._entries) if key.startswith(prefix)]
        done(Snapshot(entries, self._revision))

    def _commit(
        self, expected: Sequence[Expect], changes: Sequence[Change], done: Callable[[CommitResult], None]
    ) -> None:
        # Before the answer, for who gets it may commit again.
        self._give_way()
        try:
            done(self._committed(expected, changes))
        finally:
            self._deliver_soon()

    # Transactions.

    def _committed(self, expected: Sequence[Expect], changes: Sequence[Change]) -> CommitResult:
        assert len({change.key for change in changes}) == len(changes), "a transaction changes a key once"
        for each in expected:
            entry = self._entries.get(each.key)
            if (ABSENT if entry is None else entry.revision) != each.revision:
                return Conflict(each.key)
        for change in changes:
            if isinstance(change, Put) and change.lease_id != NO_LEASE and change.lease_id not in self._leases:
                return LeaseLost()
        failure = self._apply(changes)
        return Committed(self._revision) if failure is None else failure

    def _apply(self, changes: Sequence[Change]) -> Unavailable | None:
        """As etcd does: what deletes only what is not there is no transaction and has no revision."""
        effective = [change for change in changes if isinstance(change, Put) or change.key in self._entries]
        if not effective:
            return None
        revision = self._revision + 1
        # The revision of what is under a lease need not outlive the process either: nobody is left who has seen it.
        if self._file is not None and not all(self._is_fleeting(change) for change in effective):
            try:
                self._file.write(effective, revision)
            except sqlite3.Error as error:
                return Unavailable(f"the metadata file cannot be written: {error}")
        self._revision = revision
        for change in effective:
            self._apply_one(change, revision)
        self._publish(effective, revision)
        return None

    def _is_fleeting(self, change: Change) -> bool:
        """Nothing of it is in the file, or goes into it."""
        was_leased = change.key in self._lease_of or change.key not in self._entries
        return was_leased and (isinstance(change, Delete) or change.lease_id != NO_LEASE)

    def _apply_one(self, change: Change, revision: int) -> None:
        lease = self._lease_of.pop(change.key, None)
        if lease is not None:
            lease.keys.discard(change.key)
        if isinstance(change, Delete):
            del self._entries[change.key]
            return
        self._entries[change.key] = Entry(change.key, change.value, revision)
        if change.lease_id != NO_LEASE:
            lease = self._leases[change.lease_id]
            lease.keys.add(change.key)
            self._lease_of[change.key] = lease

    # Leases.

    def _now_ms(self) -> int:
        assert self._clock is not None, "leases need a clock"
        return self._clock.now_ms()

    def _expire(self, lease: "_Lease") -> None:
        self._end(lease)
        self._deliver_soon()

    def _end(self, lease: "_Lease") -> None:
        failure = self._apply([Delete(key) for key in sorted(lease.keys)])
        assert failure is None, "keys under a lease are not in the file"
        del self._leases[lease.lease_id]
        if lease.timer is not None:
            lease.timer.cancel()

    # Watches.

    def _publish(self, changes: Sequence[Change], revision: int) -> None:
        puts = tuple(Entry(change.key, change.value, revision) for change in changes if isinstance(change, Put))
        deletes = tuple(change.key for change in changes if isinstance(change, Delete))
        event = Changes(revision, puts, deletes)
        self._history.append(event)
        self._watches = [watch for watch in self._watches if watch.active]
        for watch in self._watches:
            self._enqueue(watch, event)

    def _enqueue(self, watch: "_Watch", changes: Changes) -> None:
        puts = tuple(entry for entry in changes.puts if entry.key.startswith(watch.prefix))
        deletes = tuple(key for key in changes.deletes if key.startswith(watch.prefix))
        if changes.revision >= watch.from_revision and (puts or deletes):
            self._queue.append((watch, Changes(changes.revision, puts, deletes)))

    def _deliver_soon(self) -> None:
        if not self._queue or self._delivering:
            return
        if self._post is None:
            self._deliver_all()
        elif not self._will_deliver:
            self._will_deliver = True
            self._post(self._deliver_one)

    def _deliver_all(self) -> None:
        try:
            while self._queue:
                self._deliver()
        finally:
            # A callback that raised has lost its event, but not those of the others.
            self._deliver_soon()

    def _deliver_one(self) -> None:
        self._will_deliver = False
        try:
            self._deliver()
        finally:
            self._deliver_soon()

    def _deliver(self) -> None:
        watch, event = self._queue.popleft()
        self._delivering = True
        try:
            if watch.active:
                watch.deliver(event)
        finally:
            self._delivering = False


class EmbeddedSession:
    """One broker's view of a shared store. Once it is closed, as by a crash, nothing comes back to its owner."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self._watches: list[_Watch] = []
        self._closed = False

    def read(self, prefix: str, done: Callable[[Snapshot | Unavailable], None]) -> None:
        if not self._closed:
            self._store.read(prefix, self._answering(done))

    def commit(
        self, expected: Sequence[Expect], changes: Sequence[Change], done: Callable[[CommitResult], None]
    ) -> None:
        if not self._closed:
            self._store.commit(expected, changes, self._answering(done))

    def watch(self, prefix: str, from_revision: int, deliver: Callable[[WatchEvent], None]) -> "_Watch":
        watch = self._store.watch(prefix, from_revision, deliver)
        self._watches = [each for each in self._watches if each.active]
        self._watches.append(watch)
        if self._closed:
            watch.cancel()
        return watch

    def grant(self, ttl_ms: int, done: Callable[[Granted | Unavailable], None]) -> None:
        if not self._closed:
            self._store.grant(ttl_ms, done)

    def keep_alive(self, lease_id: int, done: Callable[[KeepAliveResult], None]) -> None:
        if not self._closed:
            self._store.keep_alive(lease_id, done)

    def revoke(self, lease_id: int, done: Callable[[LeaseLost | Unavailable], None]) -> None:
        if not self._closed:
            self._store.revoke(lease_id, done)

    def close(self) -> None:
        """What was asked for is done all the same."""
        self._closed = True
        for watch in self._watches:
            watch.cancel()
        self._watches.clear()

    def _answering(self, done: Callable[[T], None]) -> Callable[[T], None]:
        def answer(result: T) -> None:
            if not self._closed:
                done(result)

        return answer


class _Lease:
    __slots__ = ("keys", "lease_id", "timer", "ttl_ms")

    def __init__(self, lease_id: int, ttl_ms: int) -> None:
        self.lease_id = lease_id
        self.ttl_ms = ttl_ms
        self.keys: set[str] = set()
        self.timer: TimerEntry | None = None


class _Watch:
    __slots__ = ("active", "deliver", "from_revision", "prefix")

    def __init__(self, prefix: str, from_revision: int, deliver: Callable[[WatchEvent], None]) -> None:
        self.prefix = prefix
        self.from_revision = from_revision
        self.deliver = deliver
        self.active = True

    def cancel(self) -> None:
        self.active = False
