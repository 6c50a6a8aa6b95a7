"""What the controller does when the cluster changes: which partitions get another state, and why.

The broker that holds the `controller` key asks, commits the answers, and asks again with the new image.
All decisions look at the image as it is, not at what has happened: one that was missed, or whose transaction was
refused, is made again at the next event or tick. An event only says where to look first.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.cluster.encoding import CONTROLLER, SESSIONS, partition_key, partition_value
from ottla.cluster.image import NO_LEADER, BrokerState, LogEnd, MetadataImage, PartitionInfo, TopicInfo
from ottla.cluster.partition_state import Conditions, LeaderElection, longest_log, next_state
from ottla.cluster.store import Expect, Put, Transaction

# Well below etcd's bound of 128 operations, which expectations count against too.
CHANGES_PER_TRANSACTION = 64
# Looked at in one step of a loop, at some 20 µs each.
PARTITIONS_PER_STEP = 128


class TopicRules(NamedTuple):
    """`min.insync.replicas` and `unclean.leader.election.enable` as they hold for one topic."""

    min_isr: int
    unclean: bool


RulesOf = Callable[[TopicInfo], TopicRules]


class BrokerChanged(NamedTuple):
    """A broker was registered, came or left, became active or began to stop, or was unregistered."""

    node_id: int


class TopicChanged(NamedTuple):
    """A topic's configs or replicas are others."""

    name: str


class Tick(NamedTuple):
    """Time to look at everything; and, with `balance`, to give leaderships back to preferred replicas."""

    balance: bool = False


ControllerEvent = BrokerChanged | TopicChanged | Tick


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """`reason` is a sentence for the log. `loses_records`: the leader was elected uncleanly. `by_longest_log`: all who
    had every acknowledged record have lost data, and the leader has the most that is left."""

    topic: str
    index: int
    before: PartitionInfo
    after: PartitionInfo
    reason: str
    by_longest_log: bool = False

    @property
    def loses_records(self) -> bool:
        leader = self.after.leader
        if leader in (NO_LEADER, self.before.leader) or len(self.before.replicas) == 1:
            return False
        return leader not in (*self.before.isr, *self.before.elr) and leader not in self.before.adding


def decisions(
    image: MetadataImage, events: Iterable[ControllerEvent], rules_of: RulesOf
) -> Iterator[list[PartitionChange]]:
    """The partition states that have to change, each once, in the order of the events and the image, in lists for a
    transaction each. They are made as they are taken, so that a step need not look at a thousand partitions; a list is
    empty where so many were looked at that the next ones shall be looked at in another step."""
    looked_at = (change for event in events for change in _decided(image, event, rules_of))
    seen: set[tuple[str, int]] = set()
    batch: list[PartitionChange] = []
    for count, change in enumerate(looked_at, start=1):
        if change is not None and (change.topic, change.index) not in seen:
            seen.add((change.topic, change.index))
            batch.append(change)
        if len(batch) == CHANGES_PER_TRANSACTION:
            yield batch
            batch = []
        elif count % PARTITIONS_PER_STEP == 0:
            yield []
    if batch:
        yield batch


def conditions(
    topic: TopicInfo,
    rules: TopicRules,
    *,
    active: frozenset[int],
    lost_data: frozenset[int],
    balance: bool = False,
    log_ends: Mapping[int, LogEnd] | None = None,
) -> Conditions:
    return Conditions(
        active=active,
        min_isr=rules.min_isr,
        lost_data=lost_data,
        unclean=rules.unclean and not topic.is_internal,
        election=LeaderElection.PREFERRED if balance else LeaderElection.CLEAN,
        log_ends=log_ends or {},
    )


def unfinished(image: MetadataImage, node_id: int, rules_of: RulesOf) -> Iterator[tuple[str, int] | None]:
    """Partitions in which something is left to be done about the earlier life of a starting broker, which the image
    shows. Where there is none, it may become active: it leads nothing, is in no ISR that goes on without it and, if it
    lost data, in none and no ELR.

    None where so many were looked at that the next ones shall be looked at in another step."""
    looked_at = _looked_at(image, _concerned(image, BrokerChanged(node_id)), rules_of)
    for count, change in enumerate(looked_at, start=1):
        if change is not None and _has_part(change.before, node_id):
            yield change.topic, change.index
        elif count % PARTITIONS_PER_STEP == 0:
            yield None


def is_unfinished(image: MetadataImage, node_id: int, key: tuple[str, int], rules_of: RulesOf) -> bool:
    """Whether `unfinished` may still give this partition: to be checked first, for it costs nothing."""
    topic, state = image.topic(key[0]), image.partition(*key)
    if topic is None or state is None or not _has_part(state, node_id):
        return False
    return any(_looked_at(image, [(topic, key[1], state)], rules_of))


def _has_part(state: PartitionInfo, node_id: int) -> bool:
    return node_id in (state.leader, *state.isr, *state.elr)


def _decided(image: MetadataImage, event: ControllerEvent, rules_of: RulesOf) -> Iterator[PartitionChange | None]:
    return _looked_at(image, _concerned(image, event), rules_of, balance=isinstance(event, Tick) and event.balance)


def _looked_at(
    image: MetadataImage,
    partitions: Iterable[tuple[TopicInfo, int, PartitionInfo]],
    rules_of: RulesOf,
    *,
    balance: bool = False,
) -> Iterator[PartitionChange | None]:
    """For each of the partitions its change, or None where it is as it should be."""
    active, lost = image.active_brokers, image.brokers_that_lost_data
    for topic, index, state in partitions:
        log_ends = _log_ends(image, topic, index, state) if state.leader == NO_LEADER else None
        now = conditions(topic, rules_of(topic), active=active, lost_data=lost, balance=balance, log_ends=log_ends)
        after = next_state(state, now)
        if after is state:
            yield None
            continue
        longest = longest_log(state, now) if log_ends else None
        reason = reason_of(state, after) if longest is None else _reason_of_longest(state, now.log_ends, longest)
        yield PartitionChange(topic.name, index, state, after, reason, by_longest_log=longest is not None)


def _log_ends(image: MetadataImage, topic: TopicInfo, index: int, state: PartitionInfo) -> dict[int, LogEnd]:
    brokers = ((replica, image.brokers.get(replica)) for replica in state.replicas)
    key = (topic.topic_id, index)
    return {
        replica: broker.log_ends[key] for replica, broker in brokers if broker is not None and key in broker.log_ends
    }


def may_stop(image: MetadataImage, node_id: int) -> bool:
    """Whether a stopping broker has handed over all it can: it leads nothing any more (§19.1.4)."""
    return all(state.leader != node_id for _, _, state in image.partitions())


def may_hand_over(image: MetadataImage, node_id: int) -> bool:
    """Whether a partition that a stopping broker leads has a replica on another one that stays, or is just coming."""
    staying = {
        broker.node_id
        for broker in image.brokers.values()
        if broker.state in (BrokerState.ACTIVE, BrokerState.STARTING) and broker.node_id != node_id
    }
    return any(state.leader == node_id and not staying.isdisjoint(state.replicas) for _, _, state in image.partitions())


def transactions(changes: Iterable[PartitionChange], image: MetadataImage) -> Iterator[Transaction]:
    """The changes in transactions of a size that every store takes. Each holds only while we are the controller, the
    partitions are as decided on, and the new leaders still have the sessions that were seen."""
    batch: list[PartitionChange] = []
    for change in changes:
        batch.append(change)
        if len(batch) == CHANGES_PER_TRANSACTION:
            yield _transaction(batch, image)
            batch = []
    if batch:
        yield _transaction(batch, image)


def transaction_of_leader(change: PartitionChange, image: MetadataImage) -> Transaction:
    """A change of the ISR as its leader commits it: no controller, but all members' sessions as they were seen."""
    return transaction_of_leaders([change], image)


def transaction_of_leaders(changes: Sequence[PartitionChange], image: MetadataImage) -> Transaction:
    members = {node_id for change in changes for node_id in change.after.isr if node_id in image.brokers}
    expected = [Expect(partition_key(change.topic, change.index), change.before.revision) for change in changes]
    expected += _sessions(sorted(members), image)
    return Transaction(tuple(expected), tuple(_put(change) for change in changes))


def by_topic(
    changes: Iterable[PartitionChange], what: Callable[[PartitionChange], str]
) -> dict[tuple[str, str], list[int]]:
    """The partitions of each topic with which the same has happened: for one line in a log instead of hundreds."""
    found: dict[tuple[str, str], list[int]] = {}
    for change in changes:
        found.setdefault((change.topic, what(change)), []).append(change.index)
    return found


def isr_change(change: PartitionChange) -> str:
    """Who has left the ISR or joined it, in words."""
    removed = sorted(set(change.before.isr) - set(change.after.isr))
    added = sorted(set(change.after.isr) - set(change.before.isr))
    parts = [f"{what} {', '.join(map(str, who))}" for what, who in (("without", removed), ("with", added)) if who]
    return " and ".join(parts) or "with the same members"


def leader_change(change: PartitionChange, image: MetadataImage) -> str | None:
    """Why the leader is another one, in a word or two; None if it is the same or there is none."""
    before, after = change.before, change.after
    if after.leader in (before.leader, NO_LEADER):
        return None
    if change.loses_records or change.by_longest_log:
        return "unclean"
    if after.replicas != before.replicas or after.leader in before.adding:
        return "reassignment"
    former = image.brokers.get(before.leader)
    if former is not None and former.state is BrokerState.STOPPING:
        return "shutdown"
    return "preferred" if former is not None and former.state is BrokerState.ACTIVE else "failure"


def reason_of(before: PartitionInfo, after: PartitionInfo) -> str:
    if after.leader == before.leader:
        return _reason_without_election(before, after)
    if after.leader == NO_LEADER:
        return f"leader {before.leader} is not active, and neither is any other member of ISR and ELR"
    if after.leader in before.isr:
        return f"leader {after.leader} follows {before.leader}, from the ISR"
    if after.leader in before.elr:
        return f"leader {after.leader} follows {before.leader}, from the eligible leader replicas"
    if after.leader in before.adding:
        return f"leader {after.leader} follows {before.leader}, with the new replicas"
    return f"leader {after.leader} was elected uncleanly: records that only others have are lost"


def _reason_of_longest(before: PartitionInfo, log_ends: Mapping[int, LogEnd], leader: int) -> str:
    end = log_ends[leader]
    return (
        f"leader {leader} was elected by its log, the longest of the newest epoch, which ends at offset "
        f"{end.end_offset} of leader epoch {end.last_epoch}: ISR and ELR {sorted(before.last_known_elr)} are back, and "
        f"all have lost data"
    )


def _reason_without_election(before: PartitionInfo, after: PartitionInfo) -> str:
    if after.replicas != before.replicas:
        return f"replicas are {list(after.replicas)}, were {list(before.replicas)}"
    if after.isr != before.isr:
        return f"ISR is {list(after.isr)}, was {list(before.isr)}"
    return f"eligible leader replicas are {list(after.elr)}, were {list(before.elr)}"


def _concerned(image: MetadataImage, event: ControllerEvent) -> Iterator[tuple[TopicInfo, int, PartitionInfo]]:
    match event:
        case BrokerChanged(node_id):
            for topic, index, state in image.partitions():
                if node_id in state.replicas:
                    yield topic, index, state
        case TopicChanged(name):
            changed = image.topic(name)
            if changed is not None:
                for index, state in enumerate(changed.partitions):
                    yield changed, index, state
        case Tick():
            yield from image.partitions()


def _transaction(batch: list[PartitionChange], image: MetadataImage) -> Transaction:
    leaders = {change.after.leader for change in batch if change.after.leader not in (NO_LEADER, change.before.leader)}
    expected = [Expect(CONTROLLER, image.controller_epoch)]
    expected += [Expect(partition_key(change.topic, change.index), change.before.revision) for change in batch]
    expected += _sessions(sorted(leaders), image)
    return Transaction(tuple(expected), tuple(_put(change) for change in batch))


def _sessions(node_ids: Iterable[int], image: MetadataImage) -> list[Expect]:
    return [Expect(f"{SESSIONS}{node_id}", image.brokers[node_id].session_revision) for node_id in node_ids]


def _put(change: PartitionChange) -> Put:
    return Put(partition_key(change.topic, change.index), partition_value(change.after))
