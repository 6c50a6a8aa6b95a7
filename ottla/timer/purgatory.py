"""Where requests wait for a condition or a deadline: delayed produce, fetch, delete records, topic creation.

An operation is tried, then watched under every key whose events may complete it, then tried *again*: an event between
the first try and the watching would otherwise be missed, and the request would wait for its whole timeout. Only then
does it get a timer. It completes exactly once, whichever of event, deadline and cancellation comes first, and leaves
the timer and the watch lists of all its keys at that moment, so that what has finished accumulates nowhere.

An operation may wait for thousands of keys, and events come for one at a time. `try_complete_for` gets the key: an
operation that remembers what it has found for the others need not look at them again.

Completing may touch anything, the purgatory too. So call `check_and_complete` when your own state is consistent again:
at the end of a handler, not in the middle of an append.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable

from ottla.timer.wheel import TimerEntry, TimingWheel


class DelayedOperation(ABC):
    """Something that waits; subclasses say for what, and what happens then."""

    # The last three are the purgatory's: where it finds the operation again.
    __slots__ = ("completed", "deadline_ms", "keys", "purgatory", "timer")

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        # By an event, by its deadline, or cancelled.
        self.completed = False
        self.purgatory: Purgatory | None = None
        self.keys: tuple[Hashable, ...] = ()
        self.timer: TimerEntry | None = None

    @abstractmethod
    def try_complete(self) -> bool:
        """Return `self.force_complete()` if the condition holds, else False. Called when the operation is watched."""

    def try_complete_for(self, key: Hashable) -> bool:  # noqa: ARG002 - for those that wait for few keys
        """The same, called whenever a key had an event."""
        return self.try_complete()

    @abstractmethod
    def on_complete(self) -> None:
        """Runs exactly once unless the operation is cancelled: answer the request with what there is."""

    def on_expiration(self) -> None:  # noqa: B027 - most operations need nothing here
        """Runs after `on_complete` if it was the deadline that completed the operation."""

    def force_complete(self) -> bool:
        """Complete now, whatever the condition; says whether it was this call that did it."""
        if self.completed:
            return False
        self.completed = True
        if self.purgatory is not None:
            self.purgatory.release(self)
        self.on_complete()
        return True


class Purgatory:
    """The waiting operations of one kind, by the keys they wait for."""

    def __init__(self, name: str, wheel: TimingWheel, *, watched_max: int | None = None) -> None:
        """`watched_max` bounds `watched`; beyond it operations complete before their time, the oldest first."""
        self.name = name
        self._wheel = wheel
        self._watched_max = watched_max
        # Dicts serve as sets that keep the order of arrival. Invariant: none of them is empty.
        self._watchers: dict[Hashable, dict[DelayedOperation, None]] = {}
        self.keys = self._watchers.keys()
        """What operations wait for at present."""
        self._operations: dict[DelayedOperation, None] = {}
        # Operations whose time was over, since the start.
        self.expired: int = 0
        self.watched: int = 0
        """The number of entries in the watch lists: an operation counts once for each of its keys."""

    def __len__(self) -> int:
        """The number of waiting operations."""
        return len(self._operations)

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> bool:
        """Complete the operation if that is possible now, else let it wait; says whether it completed here."""
        assert operation.purgatory is None, f"{operation!r} waits already"
        return operation.try_complete() or self.watch(operation, keys)

    def watch(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> bool:
        """The rest of `try_complete_else_watch`, for an operation of which the caller has found out by other means that
        it was not complete."""
        assert operation.purgatory is None, f"{operation!r} waits already"
        self._watch(operation, keys)
        if operation.try_complete():
            return True
        self._keep_watched_bounded()
        # What it touched while being tried may have completed it by another way.
        if not operation.completed:
            operation.timer = self._wheel.schedule(operation.deadline_ms, lambda: _expire(operation))
        return False

    def watch_more(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> None:
        """Further keys of an operation that `watch` has begun to watch; each is tried, for its event may have come
        before. So an operation that waits for thousands is watched a few at a time."""
        if operation.completed:
            return
        fresh = tuple(key for key in dict.fromkeys(keys) if operation not in self._watchers.get(key, ()))
        self._add(operation, fresh)
        for key in fresh:
            if operation.completed or operation.try_complete_for(key):
                return
        self._keep_watched_bounded()

    def check_and_complete(self, key: Hashable) -> int:
        """Try every operation that waits for `key`, in order of arrival; gives how many completed by that.

        All of them are tried even if one raises; the exceptions come out together at the end, as an `ExceptionGroup`.
        """
        watchers = self._watchers.get(key)
        if watchers is None:
            return 0
        completed = 0
        errors: list[Exception] = []
        for operation in list(watchers):
            try:
                completed += not operation.completed and operation.try_complete_for(key)
            except Exception as error:
                errors.append(error)
        if errors:
            raise ExceptionGroup(f"operations of purgatory {self.name} failed", errors)
        return completed

    def cancel(self, operation: DelayedOperation) -> bool:
        """End the wait without completing it, as for a closed connection; says whether it was still waiting."""
        if operation.completed:
            return False
        operation.completed = True
        if operation.purgatory is self:
            self.release(operation)
        return True

    def release(self, operation: DelayedOperation) -> None:
        """Forget an operation that has completed; `force_complete` and `cancel` do this by themselves."""
        for key in operation.keys:
            watchers = self._watchers[key]
            del watchers[operation]
            if not watchers:
                del self._watchers[key]
        if operation.timer is not None:
            operation.timer.cancel()
            # Each refers to the other: what the operation holds, perhaps megabytes, would wait for the garbage
            # collector.
            operation.timer = None
        del self._operations[operation]
        self.watched -= len(operation.keys)

    def _watch(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> None:
        operation.purgatory = self
        self._operations[operation] = None
        self._add(operation, tuple(dict.fromkeys(keys)))

    def _add(self, operation: DelayedOperation, keys: tuple[Hashable, ...]) -> None:
        for key in keys:
            self._watchers.setdefault(key, {})[operation] = None
        operation.keys += keys
        self.watched += len(keys)

    def _keep_watched_bounded(self) -> None:
        while self._watched_max is not None and self.watched > self._watched_max:
            next(iter(self._operations)).force_complete()


def _expire(operation: DelayedOperation) -> None:
    purgatory = operation.purgatory
    if operation.force_complete():
        if purgatory is not None:
            purgatory.expired += 1
        operation.on_expiration()
