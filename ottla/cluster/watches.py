"""The watches of the embedded store, and the transactions that are kept for those that begin in the past.

Watches are fed from a queue: a transaction puts what each watch has to see at its end, and one loop empties it, so that
every watch sees every transaction in order, also those that another watch's callback has made in between. With `post`,
a step of the event loop delivers one transaction to one watch.

What is kept is bounded, by number and by size. A watch that would begin before it, or that has fallen behind by more
than that, gets `Compacted` once and has ended: its owner reads what there is, and watches from there.
"""

import marshal
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from struct import Struct

from ottla.cluster.store import Change, Changes, Compacted, Delete, Entry, Put, WatchEvent

# Of an entry or a key beside its text and its value.
_OVERHEAD_BYTES = 200
_SIZE = Struct(">q")


class StoreWatch:
    __slots__ = ("active", "behind_bytes", "deliver", "from_revision", "has_lost", "prefix")

    def __init__(self, prefix: str, from_revision: int, deliver: Callable[[WatchEvent], None]) -> None:
        self.prefix = prefix
        self.from_revision = from_revision
        self.deliver = deliver
        self.active = True
        # Size of what is queued for it; and whether that was too much.
        self.behind_bytes = 0
        self.has_lost = False

    def cancel(self) -> None:
        self.active = False

    def wants(self, event: WatchEvent) -> bool:
        return self.active and (not self.has_lost or isinstance(event, Compacted))


class Watches:
    def __init__(
        self, post: Callable[[Callable[[], None]], None] | None, *, history_max: int, history_bytes_max: int
    ) -> None:
        self._post = post
        self._history_max = history_max
        self._history_bytes_max = history_bytes_max
        # The last transactions, without a gap: every one that changed something has its place.
        self._history: deque[bytes] = deque()
        self._history_bytes = 0
        self._watches: list[StoreWatch] = []
        self._queue: deque[tuple[StoreWatch, WatchEvent]] = deque()
        self._delivering = False
        self._will_deliver = False

    def begin(
        self, prefix: str, from_revision: int, deliver: Callable[[WatchEvent], None], *, revision: int
    ) -> StoreWatch:
        """`revision` is that of the last transaction."""
        watch = StoreWatch(prefix, from_revision, deliver)
        oldest = revision - len(self._history) + 1
        if from_revision < oldest:
            self._queue.append((watch, Compacted(oldest)))
        else:
            self._watches.append(watch)
            for kept in islice(self._history, max(from_revision - oldest, 0), None):
                self._enqueue(watch, _under(prefix, _unpacked(kept)))
        self.deliver_soon()
        return watch

    def publish(self, changes: Sequence[Change], revision: int) -> None:
        """To be followed by `deliver_soon`."""
        puts = tuple(Entry(change.key, change.value, revision) for change in changes if isinstance(change, Put))
        deletes = tuple(change.key for change in changes if isinstance(change, Delete))
        event = Changes(revision, puts, deletes)
        self._keep(event)
        self._watches = [watch for watch in self._watches if watch.active and not watch.has_lost]
        for watch in self._watches:
            self._enqueue(watch, _under(watch.prefix, event))

    def close(self) -> None:
        for watch in self._watches:
            watch.cancel()
        self._watches.clear()

    def _keep(self, event: Changes) -> None:
        kept = _packed(event)
        self._history.append(kept)
        self._history_bytes += _size_of_packed(kept)
        while len(self._history) > self._history_max or self._history_bytes > self._history_bytes_max:
            self._history_bytes -= _size_of_packed(self._history.popleft())

    def _enqueue(self, watch: StoreWatch, event: Changes) -> None:
        """What the watch is to see of a transaction."""
        if event.revision < watch.from_revision or not (event.puts or event.deletes) or watch.has_lost:
            return
        if watch.behind_bytes and watch.behind_bytes + _size_bytes(event) > self._history_bytes_max:
            watch.has_lost = True
            self._queue.append((watch, Compacted(event.revision)))
            return
        watch.behind_bytes += _size_bytes(event)
        self._queue.append((watch, event))

    # Delivery.

    def deliver_soon(self) -> None:
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
            self.deliver_soon()

    def _deliver_one(self) -> None:
        self._will_deliver = False
        try:
            self._deliver()
        finally:
            self.deliver_soon()

    def _deliver(self) -> None:
        watch, event = self._queue.popleft()
        if isinstance(event, Changes):
            watch.behind_bytes -= _size_bytes(event)
        self._delivering = True
        try:
            if watch.wants(event):
                watch.deliver(event)
        finally:
            self._delivering = False


def _under(prefix: str, event: Changes) -> Changes:
    """What a watch of the prefix sees of it."""
    puts = tuple(entry for entry in event.puts if entry.key.startswith(prefix))
    return Changes(event.revision, puts, tuple(key for key in event.deletes if key.startswith(prefix)))


def _packed(event: Changes) -> bytes:
    """One object, with its size first. A transaction that makes topics is some thousand objects, and what is kept
    outlives the load that it was part of: CPython gives memory back by the mebibyte, and only where nothing in it is in
    use."""
    puts = [(entry.key, entry.value) for entry in event.puts]
    return _SIZE.pack(_size_bytes(event)) + marshal.dumps((event.revision, puts, event.deletes))


def _size_of_packed(kept: bytes) -> int:
    size: int = _SIZE.unpack_from(kept)[0]
    return size


def _unpacked(kept: bytes) -> Changes:
    revision, puts, deletes = marshal.loads(memoryview(kept)[_SIZE.size :])
    return Changes(revision, tuple(Entry(key, value, revision) for key, value in puts), deletes)


def _size_bytes(event: Changes) -> int:
    puts = sum(len(entry.key) + len(entry.value) + _OVERHEAD_BYTES for entry in event.puts)
    return puts + sum(len(key) + _OVERHEAD_BYTES for key in event.deletes)
