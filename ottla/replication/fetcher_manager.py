"""Which fetchers there are, and which partition belongs to which (R01).

A partition is copied by fetcher `fetcher_id_of(topic, partition)` of its leader. Fetchers come into being with their
first partition, are replaced when their leader is reached elsewhere, and end when they have none left. Add and remove
all partitions of a metadata update, then `take_changes`: a fetcher that loses one and gets another does not end.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.replication.fetcher import Fetcher, FetcherKey
from ottla.replication.fetcher_requests import FetcherConfig, FollowerKey, LeaderEndpoint
from ottla.replication.follower_effects import Effect, LogEffect
from ottla.replication.partition import Partition
from ottla.replication.replica_follower import ReplicaFollower
from ottla.replication.replication_quota import ReplicationQuota

_INT32_MIN = -0x8000_0000


def fetcher_id_of(topic: str, partition: int, fetchers_per_leader: int) -> int:
    """Kafka's choice: `abs(31 * topic.hashCode() + partition) % n`, in Java's 32 bits."""
    code_units = topic.encode("utf-16-be")
    value = 0
    for high, low in zip(code_units[::2], code_units[1::2], strict=True):
        value = 31 * value + (high << 8 | low) & 0xFFFF_FFFF
    value = 31 * value + partition & 0xFFFF_FFFF
    signed = value + 2 * _INT32_MIN if value >= -_INT32_MIN else value
    # Java's Math.abs leaves the smallest int negative; Kafka's own abs makes it 0.
    return (0 if signed == _INT32_MIN else abs(signed)) % fetchers_per_leader


@dataclass(slots=True)
class FetcherChanges:
    """Tasks that the shell has to end, to start, and to wake, for their fetchers may have a request."""

    ended: list[Fetcher] = field(default_factory=list[Fetcher])
    started: list[Fetcher] = field(default_factory=list[Fetcher])
    woken: list[Fetcher] = field(default_factory=list[Fetcher])


class FetcherManager:
    def __init__(
        self,
        config: FetcherConfig,
        *,
        fetchers_per_leader: int = 1,
        quota: ReplicationQuota | None = None,
        new_follower: Callable[..., ReplicaFollower] = ReplicaFollower,
    ) -> None:
        self._config = config
        self._fetchers_per_leader = fetchers_per_leader
        self._quota = quota or ReplicationQuota()
        self._new_follower = new_follower
        self._fetchers: dict[FetcherKey, Fetcher] = {}
        self._places: dict[tuple[str, int], tuple[Fetcher, FollowerKey]] = {}
        self._changes = FetcherChanges()

    def follower(self, topic: str, index: int) -> ReplicaFollower | None:
        place = self._places.get((topic, index))
        return None if place is None else place[0].followers[place[1]]

    def add_partition(self, partition: Partition, endpoint: LeaderEndpoint) -> list[Effect]:
        """Copy the partition from the leader of its term, at `endpoint`. Nothing changes if that is done already.

        The effects are to be performed at once, before this broker's role in the partition can change again."""
        name = (partition.topic, partition.index)
        fetcher_id = fetcher_id_of(*name, self._fetchers_per_leader)
        key = FetcherKey(partition.leader_id, fetcher_id)
        fetcher = self._fetchers.get(key)
        if fetcher is None or fetcher.endpoint != endpoint:
            fetcher = self._begin(key, endpoint)
        known = fetcher.followers.get((partition.topic_id, partition.index))
        if known is not None and known.partition is partition and known.leader_epoch == partition.leader_epoch:
            return []
        self.remove_partition(*name)
        follower = self._new_follower(partition, back_off_ms_max=self._config.back_off_ms)
        effects = follower.start()
        fetcher.add(follower)
        self._places[name] = (fetcher, follower.key)
        self._wake(fetcher)
        return effects

    def remove_partition(self, topic: str, index: int) -> None:
        """This broker leads the partition now, or no broker does, or it has no replica of it any more."""
        place = self._places.pop((topic, index), None)
        if place is not None:
            fetcher, key = place
            fetcher.remove(key)

    def performed(self, effect: LogEffect, error: Exception | None, now_ms: int) -> list[Effect]:
        """As `Fetcher.performed`, whichever fetcher has the partition."""
        place = self._places.get((effect.partition.topic, effect.partition.index))
        return [] if place is None else place[0].performed(effect, error, now_ms)

    def synced(self, topic: str, index: int) -> list[Effect]:
        """The log was synced, or could not be; its fetcher may go on."""
        place = self._places.get((topic, index))
        if place is None or not place[0].is_syncing:
            return []
        self._wake(place[0])
        return place[0].synced(place[1])

    def _wake(self, fetcher: Fetcher) -> None:
        if fetcher not in self._changes.woken:
            self._changes.woken.append(fetcher)

    def move_leader(self, leader_id: int, endpoint: LeaderEndpoint) -> None:
        """The broker is reached elsewhere now."""
        for key, fetcher in list(self._fetchers.items()):
            if key.leader_id == leader_id and fetcher.endpoint != endpoint:
                self._begin(key, endpoint)

    def take_changes(self) -> FetcherChanges:
        """All changes since the last call, to be performed; fetchers without partitions are among the ended."""
        for key, fetcher in list(self._fetchers.items()):
            if fetcher.is_empty:
                del self._fetchers[key]
                self._end(fetcher)
        changes, self._changes = self._changes, FetcherChanges()
        # One that began and ended since then has no task to be woken.
        there = set(self._fetchers.values()).difference(changes.started)
        changes.woken = [fetcher for fetcher in changes.woken if fetcher in there]
        return changes

    def _begin(self, key: FetcherKey, endpoint: LeaderEndpoint) -> Fetcher:
        """A fetcher for `key`, with the followers of the one it replaces."""
        fetcher = Fetcher(key, endpoint, self._config, self._quota)
        old = self._fetchers.get(key)
        self._fetchers[key] = fetcher
        self._changes.started.append(fetcher)
        if old is not None:
            for partition_key, follower in list(old.followers.items()):
                old.remove(partition_key)
                fetcher.add(follower)
                self._places[follower.partition.topic, follower.partition.index] = (fetcher, partition_key)
            self._end(old)
        return fetcher

    def _end(self, fetcher: Fetcher) -> None:
        if fetcher in self._changes.started:
            self._changes.started.remove(fetcher)
        else:
            self._changes.ended.append(fetcher)
