"""The metadata store of a process that hosts all its brokers: everything in memory, every transaction in SQLite first.

With a path, a transaction is synced to disk before its answer; without one, the store lives as long as the process.

Brokers that share a store take a `session` each. Leases are timers on the wheel that is handed in; without one they
last as long as the store does. What is under a lease is not written to the file: what opens it again is another
process, and owns it, so that no session outlives its process there.

A store on an event loop gives way to others between any two pieces of work: one transaction is made visible, or one
watch gets one, in a step. What comes in between waits its turn. Transactions are written in a thread, all that
wait for it together, with one sync; each is visible, and answered, when it is durable. Those of a group that could not
be written are tried one by one, so that each is refused for its own sake. What a crash has interrupted was answered
to no caller, and is in the file as a whole or not at all.
"""

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from ottla.cluster.metadata_file import MetadataFile
from ottla.cluster.staging import Staged, Staging
from ottla.cluster.store import (
    NO_LEASE,
    Change,
    CommitResult,
    Committed,
    Conflict,
    Delete,
    Entry,
    Expect,
    Granted,
    KeepAliveResult,
    KeptAlive,
    LeaseLost,
    Snapshot,
    Unavailable,
    WatchEvent,
)
from ottla.cluster.watches import StoreWatch, Watches
from ottla.timer.clock import Clock
from ottla.timer.wheel import TimerEntry, TimingWheel

# So many transactions back, and so many bytes, a watch may begin; what is older has to be read.
HISTORY_MAX = 1000
HISTORY_BYTES_MAX = 8 << 20
# Written together: some milliseconds' worth of changes to look at, and one sync.
GROUP_CHANGES_MAX = 1000

Offload = Callable[[Callable[[], None], Callable[[], None]], None]
"""Runs the first in a thread, then the second on the event loop, also when the first fails."""

T = TypeVar("T")


class EmbeddedStore:
    def __init__(
        self,
        path: Path | None = None,
        *,
        clock: Clock | None = None,
        wheel: TimingWheel | None = None,
        post: Callable[[Callable[[], None]], None] | None = None,
        offload: Offload | None = None,
        history_max: int = HISTORY_MAX,
        history_bytes_max: int = HISTORY_BYTES_MAX,
        renewal_grace_ms: int = 0,
    ) -> None:
        """Raises StoreError when the file cannot be opened, is in use, or is not a metadata store.

        Without a clock and a wheel no lease expires by itself. A lease whose time is over ends `renewal_grace_ms`
        later, counted from when the store notices: where the holders run on the store's own loop, what holds up the
        loop keeps them from renewing in time. `post` runs an action soon, such as a loop's `call_soon`. Without it
        nothing waits: transactions are made within the call, and watches get them before it returns, after its answer.
        With `offload` the file is written in a thread."""
        self._entries: dict[str, Entry] = {}
        self._revision = 0
        self._file = MetadataFile(path) if path is not None else None
        if self._file is not None:
            entries, self._revision = self._file.load()
            self._entries = {entry.key: entry for entry in entries}
        self._clock = clock
        self._wheel = wheel
        self._renewal_grace_ms = renewal_grace_ms
        self._leases: dict[int, _Lease] = {}
        self._lease_of: dict[str, _Lease] = {}
        self._next_lease_id = 1
        self._watches = Watches(post, history_max=history_max, history_bytes_max=history_bytes_max)
        self._post = post
        self._offload = offload
        # Reads, commits and ends of leases that wait for the end of a step, or of a write.
        self._calls: deque[_Commit | Callable[[], None]] = deque()
        self._gives_way = False
        self._is_writing = False
        # Of a group that was written, what is not visible yet.
        self._written: deque[tuple[_Commit, CommitResult | Staged]] = deque()
        # So many transactions of a group that could not be written are tried one by one.
        self._singly = 0
        self._closed = False

    def session(self) -> "EmbeddedSession":
        """The store as one broker of several sees it."""
        return EmbeddedSession(self)

    def read(self, prefix: str, done: Callable[[Snapshot | Unavailable], None]) -> None:
        self._in_turn(lambda: self._read(prefix, done))

    def commit(
        self, expected: Sequence[Expect], changes: Sequence[Change], done: Callable[[CommitResult], None]
    ) -> None:
        self._in_turn(_Commit(expected, changes, done))

    def watch(self, prefix: str, from_revision: int, deliver: Callable[[WatchEvent], None]) -> StoreWatch:
        return self._watches.begin(prefix, from_revision, deliver, revision=self._revision)

    def grant(self, ttl_ms: int, done: Callable[[Granted | Unavailable], None]) -> None:
        lease = _Lease(self._next_lease_id, ttl_ms)
        self._next_lease_id += 1
        if self._wheel is not None:
            lease.timer = self._wheel.schedule(self._now_ms() + ttl_ms, lambda: self._time_is_over(lease))
        self._leases[lease.lease_id] = lease
        done(Granted(lease.lease_id, ttl_ms))

    def keep_alive(self, lease_id: int, done: Callable[[KeepAliveResult], None]) -> None:
        lease = self._leases.get(lease_id)
        if lease is None or lease.is_ending:
            done(LeaseLost())
            return
        if lease.timer is not None:
            lease.is_in_grace = False
            lease.timer.reschedule(self._now_ms() + lease.ttl_ms)
        done(KeptAlive())

    def revoke(self, lease_id: int, done: Callable[[LeaseLost | Unavailable], None]) -> None:
        self._end(self._leases.get(lease_id), lambda: done(LeaseLost()))

    def close(self) -> None:
        """A write that is under way is waited for; what it has written is answered to no caller."""
        self._closed = True
        self._watches.close()
        if self._file is not None:
            self._file.close()
            self._file = None

    # One after the other.

    def _in_turn(self, call: "_Commit | Callable[[], None]") -> None:
        if self._closed:
            return
        if self._gives_way or self._is_writing or self._written:
            self._calls.append(call)
        else:
            self._do(call)

    def _do(self, call: "_Commit | Callable[[], None]") -> None:
        if isinstance(call, _Commit):
            self._write(self._group(call))
        else:
            call()

    def _give_way(self) -> None:
        """What comes from now on waits for the next step."""
        if self._post is not None and not self._gives_way and not self._closed:
            self._gives_way = True
            self._post(self._go_on)

    def _go_on(self) -> None:
        self._gives_way = False
        try:
            while (self._written or self._calls) and not (self._gives_way or self._is_writing or self._closed):
                if self._written:
                    self._finish(*self._written.popleft())
                else:
                    self._do(self._calls.popleft())
        finally:
            # A callback that raised does not keep the others from their answers.
            if (self._written or self._calls) and not self._is_writing:
                self._give_way()

    def _read(self, prefix: str, done: Callable[[Snapshot | Unavailable], None]) -> None:
        entries = [self._entries[key] for key in sorted(self._entries) if key.startswith(prefix)]
        done(Snapshot(entries, self._revision))

    # Transactions.

    def _group(self, first: "_Commit") -> "list[_Commit]":
        """With those that wait behind it, where one write is as good as several."""
        group = [first]
        if self._offload is None or self._file is None or self._singly:
            self._singly = max(self._singly - 1, 0)
            return group
        changes = len(first.changes)
        while self._calls and changes < GROUP_CHANGES_MAX:
            call = self._calls[0]
            if not isinstance(call, _Commit):
                break
            self._calls.popleft()
            group.append(call)
            changes += len(call.changes)
        return group

    def _write(self, group: "list[_Commit]") -> None:
        staging = Staging(self._entries, self._lease_of, self._leases, self._revision)
        decided = [staging.decide(each.expected, each.changes) for each in group]
        file = self._file
        writes = [
            (each.changes, each.revision) for each in decided if isinstance(each, Staged) and each.is_for_the_file
        ]
        if file is None or not writes:
            self._finish_group(group, decided)
        elif self._offload is None:
            self._after_write(group, decided, file.write(writes))
        else:
            self._is_writing = True
            failures: list[str | None] = ["the write was interrupted"]

            def work() -> None:
                failures[0] = file.write(writes)

            self._offload(work, lambda: self._after_write(group, decided, failures[0]))

    def _after_write(
        self, group: "list[_Commit]", decided: Sequence[Staged | Conflict | LeaseLost], failure: str | None
    ) -> None:
        self._is_writing = False
        if self._closed:
            return
        if failure is not None and len(group) > 1:
            self._singly = len(group)
            self._calls.extendleft(reversed(group))
            self._go_on()
            return
        unavailable = None if failure is None else Unavailable(f"the metadata file cannot be written: {failure}")
        self._finish_group(group, [unavailable or each for each in decided])

    def _finish_group(self, group: "list[_Commit]", decided: Sequence[CommitResult | Staged]) -> None:
        first, *others = zip(group, decided, strict=True)
        self._written.extend(others)
        try:
            self._finish(*first)
        finally:
            if not self._gives_way:
                self._go_on()

    def _finish(self, commit: "_Commit", decided: CommitResult | Staged) -> None:
        # Before the answer, for who gets it may commit again.
        self._give_way()
        try:
            if isinstance(decided, Staged):
                self._apply(decided)
                commit.done(Committed(decided.revision))
            else:
                commit.done(decided)
        finally:
            self._watches.deliver_soon()

    def _apply(self, staged: Staged) -> None:
        if not staged.changes:
            return
        self._revision = staged.revision
        for change in staged.changes:
            self._apply_one(change, staged.revision)
        self._watches.publish(staged.changes, staged.revision)

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

    def _time_is_over(self, lease: "_Lease") -> None:
        if self._renewal_grace_ms and not lease.is_in_grace:
            assert lease.timer is not None, "the time of a lease is a timer's"
            lease.is_in_grace = True
            lease.timer.reschedule(self._now_ms() + self._renewal_grace_ms)
        else:
            self._end(lease, lambda: None)

    def _end(self, lease: "_Lease | None", done: Callable[[], None]) -> None:
        """At once, but not between a decision about its keys and what that has made of them."""

        def end() -> None:
            try:
                if lease is not None and lease.lease_id in self._leases:
                    self._delete_keys_of(lease)
                done()
            finally:
                self._watches.deliver_soon()

        if lease is not None:
            lease.is_ending = True
            if lease.timer is not None:
                lease.timer.cancel()
        if self._is_writing or self._written:
            self._calls.append(end)
        else:
            end()

    def _delete_keys_of(self, lease: "_Lease") -> None:
        staging = Staging(self._entries, self._lease_of, self._leases, self._revision)
        deletion = staging.decide((), [Delete(key) for key in sorted(lease.keys)])
        assert isinstance(deletion, Staged), "nothing is expected of keys under a lease"
        assert not deletion.is_for_the_file, "keys under a lease are not in the file"
        self._apply(deletion)
        del self._leases[lease.lease_id]


class EmbeddedSession:
    """One broker's view of a shared store. Once it is closed, as by a crash, nothing comes back to its owner."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self._watches: list[StoreWatch] = []
        self._closed = False

    def read(self, prefix: str, done: Callable[[Snapshot | Unavailable], None]) -> None:
        if not self._closed:
            self._store.read(prefix, self._answering(done))

    def commit(
        self, expected: Sequence[Expect], changes: Sequence[Change], done: Callable[[CommitResult], None]
    ) -> None:
        if not self._closed:
            self._store.commit(expected, changes, self._answering(done))

    def watch(self, prefix: str, from_revision: int, deliver: Callable[[WatchEvent], None]) -> StoreWatch:
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
        """The request is carried out all the same."""
        self._closed = True
        for watch in self._watches:
            watch.cancel()
        self._watches.clear()

    def _answering(self, done: Callable[[T], None]) -> Callable[[T], None]:
        def answer(result: T) -> None:
            if not self._closed:
                done(result)

        return answer


class _Commit(NamedTuple):
    expected: Sequence[Expect]
    changes: Sequence[Change]
    done: Callable[[CommitResult], None]


class _Lease:
    __slots__ = ("is_ending", "is_in_grace", "keys", "lease_id", "timer", "ttl_ms")

    def __init__(self, lease_id: int, ttl_ms: int) -> None:
        self.lease_id = lease_id
        self.ttl_ms = ttl_ms
        self.keys: set[str] = set()
        self.is_ending = False
        self.is_in_grace = False
        self.timer: TimerEntry | None = None
