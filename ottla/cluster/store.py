"""Where the cluster's metadata lives: keys with values and revisions, changed by compare-and-set.

The store counts its transactions: every one that changes something has a revision, and an entry knows the revision that
wrote it last. Expecting a key to be at a revision is how a decision made on a picture of the cluster is refused when
the picture was old. A watch delivers the transactions after a revision, one by one and in order.

A lease is a promise to come back: keys put under it go when it is not kept alive in time, in one transaction.

Answers come through callbacks, because a store may be another process: the embedded one calls back before the call
returns, one across the network later. Answers to reads and commits come in the order of the calls. The callback of a
watch may call the store, and is not called again, nor is that of another watch, before it has returned. Each broker has
a store object of its own, its session; closing it ends its watches and leaves its leases to expire.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ottla.protocol.address import Address, parse_addresses

ABSENT = 0
NO_LEASE = 0

ACLS = "acls/"
QUOTAS = "quotas/"
# Keys with secret values: no text shows them.
SCRAM = "scram/"
SECRETS = "secrets/"


class StoreError(Exception):
    """The store cannot be opened or read: one sentence for the operator."""


class Entry(NamedTuple):
    """A key as last written; `revision` is that of the transaction that wrote it and grows with every transaction."""

    key: str
    value: bytes
    revision: int

    def __repr__(self) -> str:
        return f"Entry(key={self.key!r}, value={_shown(self)}, revision={self.revision})"


class Expect(NamedTuple):
    """The transaction holds only if the key was last written at this revision (ABSENT: is not there)."""

    key: str
    revision: int


class Put(NamedTuple):
    """With a lease, the key goes when the lease does; a later put without one keeps it."""

    key: str
    value: bytes
    lease_id: int = NO_LEASE

    def __repr__(self) -> str:
        return f"Put(key={self.key!r}, value={_shown(self)}, lease_id={self.lease_id})"


class Delete(NamedTuple):
    key: str


Change = Put | Delete


class Transaction(NamedTuple):
    """What a decision wants of the store: changes that hold only as long as the expectations do. No key twice."""

    expected: tuple[Expect, ...]
    changes: tuple[Change, ...]


class Committed(NamedTuple):
    """All changes are durable and visible, at this revision."""

    revision: int


class Conflict(NamedTuple):
    """A key was not as expected; nothing has changed."""

    key: str


class LeaseLost:
    """The lease has expired or was revoked; its keys are gone, or were not written."""


class Unavailable(NamedTuple):
    """The store did not answer, or could not do it. With a remote store a transaction may be seen later all the
    same."""

    reason: str


class NotAdmitted(Unavailable):
    """The store will have nothing to do with this broker: it does not accept its login or its certificate, or the
    broker not the store's. Somebody has to mend that; nothing has changed."""


class TooLarge(Unavailable):
    """The store takes no transaction of this size, now or later; nothing has changed."""


CommitResult = Committed | Conflict | LeaseLost | Unavailable


class Snapshot(NamedTuple):
    """All entries under a prefix, sorted by key, as they were after the transaction `revision`."""

    entries: Sequence[Entry]
    revision: int

    @property
    def last_changed(self) -> int:
        """The last transaction that wrote one of the entries, 0 without any. A watch of the prefix delivers it;
        `revision` may be that of one which others have made elsewhere in the store."""
        return max((entry.revision for entry in self.entries), default=0)


class Granted(NamedTuple):
    """A new lease. The store may have made its time longer than requested."""

    lease_id: int
    ttl_ms: int


class KeptAlive:
    """The lease runs for its whole time again, counted from before this answer."""


KeepAliveResult = KeptAlive | LeaseLost | Unavailable


class Changes(NamedTuple):
    """What one transaction did to the watched keys."""

    revision: int
    puts: tuple[Entry, ...]
    deletes: tuple[str, ...]


class Compacted(NamedTuple):
    """What comes next is not kept any more; the watch has ended. Read, and watch from there (`follow` does)."""

    revision: int


WatchEvent = Changes | Compacted


class Watch(Protocol):
    def cancel(self) -> None:
        """Nothing is delivered any more, not even what has happened already."""
        ...


class MetadataStore(Protocol):
    """Linearizable: a read sees every transaction whose answer was given before its request."""

    def read(self, prefix: str, done: Callable[[Snapshot | Unavailable], None]) -> None:
        """All entries whose key starts with `prefix`."""
        ...

    def commit(
        self, expected: Sequence[Expect], changes: Sequence[Change], done: Callable[[CommitResult], None]
    ) -> None:
        """Apply all changes at once if every expectation holds, else none. Names no key in two changes."""
        ...

    def watch(self, prefix: str, from_revision: int, deliver: Callable[[WatchEvent], None]) -> Watch:
        """Deliver the transactions from `from_revision` on that touch a key under `prefix`, each once and in order."""
        ...

    def grant(self, ttl_ms: int, done: Callable[[Granted | Unavailable], None]) -> None:
        """Make a lease that ends `ttl_ms` after the last time it was kept alive."""
        ...

    def keep_alive(self, lease_id: int, done: Callable[[KeepAliveResult], None]) -> None:
        """To be called several times within the lease's time. An answer is not in the order of reads and commits."""
        ...

    def revoke(self, lease_id: int, done: Callable[[LeaseLost | Unavailable], None]) -> None:
        """End a lease and delete its keys at once."""
        ...

    def close(self) -> None:
        """End the session: its watches end, and no callback comes any more."""
        ...


def _shown(written: Entry | Put) -> str:
    return "[hidden]" if written.key.startswith((SCRAM, SECRETS)) else repr(written.value)


class StoreUrl(NamedTuple):
    """Where a metadata store is."""

    endpoints: list[Address]
    has_tls: bool


def parse_store_url(url: str) -> StoreUrl:
    """`etcd://HOST:PORT[,HOST:PORT…]`, or `etcds://…` with TLS; raises StoreError with a sentence for the user."""
    scheme, separator, hosts = url.partition("://")
    if "@" in hosts:
        # Not shown: there may be a password in it.
        raise StoreError(
            "a metadata store is etcd://HOST:PORT, without a user: that is in ottla.metadata.etcd.user and "
            "ottla.metadata.etcd.password"
        )
    if scheme not in ("etcd", "etcds") or not separator:
        raise StoreError(
            f"'{url}' is not a metadata store: etcd://HOST:PORT[,HOST:PORT…] is expected, or etcds:// with TLS"
        )
    try:
        return StoreUrl(parse_addresses(hosts.rstrip("/")), has_tls=scheme == "etcds")
    except ValueError as error:
        raise StoreError(f"{error} in {url}") from None


class StoreWatcher:
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
