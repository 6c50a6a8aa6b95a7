"""A follower and a store that goes back."""

from collections.abc import Callable

from ottla.cluster.store import Changes, Compacted, Entry, Snapshot, StoreWatcher, Unavailable, WatchEvent

BEFORE = Snapshot((Entry("a", b"1", 8),), 8)


class Rewound:
    """A store that makes its watcher read everything again, and then has less."""

    def __init__(self) -> None:
        self.content = BEFORE
        self.deliver: Callable[[WatchEvent], None] = lambda event: None

    def read(self, prefix: str, done: Callable[[Snapshot], None]) -> None:
        done(self.content)

    def watch(self, prefix: str, start_revision: int, deliver: Callable[[WatchEvent], None]) -> None:
        self.deliver = deliver


def test_what_a_store_has_lost_is_not_taken_for_deleted() -> None:
    store, delivered, failed = Rewound(), [], []
    StoreWatcher(store, "", delivered.append, failed.append).start()
    later = Changes(9, (Entry("a", b"2", 9),), ())
    store.deliver(later)
    store.content = BEFORE

    store.deliver(Compacted(10))

    assert delivered == [BEFORE, later]
    assert failed == [Unavailable("it was at revision 9 and is at 8")]


def test_one_that_has_caught_up_again_is_followed() -> None:
    store, delivered, failed = Rewound(), [], []
    follower = StoreWatcher(store, "", delivered.append, failed.append)
    follower.start()
    store.content = Snapshot((), 7)
    store.deliver(Compacted(10))
    store.content = Snapshot((Entry("a", b"1", 8),), 12)

    follower.start()

    assert delivered == [BEFORE, store.content]
    assert len(failed) == 1
