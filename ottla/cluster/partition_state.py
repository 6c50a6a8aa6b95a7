"""The next state of a partition: who is in sync, who leads, who else might, and both epochs. Pure.

Everything that can happen to a partition comes through `next_state`: replicas are fenced or come back, a leader
proposes an ISR, a replica has lost data, an administrator asks for an election or a reassignment. From the state and
these conditions it makes the state that should be, and changes nothing where nothing has to change; so it may be called
at any time, and calling it twice is calling it once. What makes it safe (§19.4.3):

- A leader raises its high watermark only while the ISR has `min_isr` members and the ELR is empty. Therefore those who
  leave the ISR when it gets smaller than that have every acknowledged record for as long as they are in the ELR. That
  the leader looks at the ELR, and not only at its own idea of `min.insync.replicas`, makes a change of that config
  harmless.
- A broker that comes back without its clean-shutdown mark leaves both, also as the last member of the ISR.
- Leaders come from the ISR, else from the ELR. If no member of them is active, there is no leader, and the ISR stays as
  it was.
- If all who were in them have lost data, as after a power failure of all machines, nothing acknowledged is sure to be
  anywhere, and the longest log of the newest epoch among theirs, or one that continues it, has all that is left. It is
  elected when every broker that was in the ISR or ELR is back and has reported its log end, not before: one that is
  missing may have more. While there is no leader no log grows, so what was reported stays true; and which brokers were
  not elected stays known until the ISR is large enough again, should the one that was elected be lost too.
- An unclean election, which may lose records, is for topics configured so, or an explicit act.

The only replica of a partition keeps its place whatever it has lost: no other broker has more.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from ottla.cluster.image import NO_LEADER, NO_RECORD, LogEnd, PartitionInfo


class LeaderElection(Enum):
    """Whom an election may make leader: the present leader goes before others, or the preferred one does, or anybody
    that is active if there is no clean way."""

    CLEAN = "clean"
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a decision about a partition depends on beside its state. `unclean` allows unclean elections by config."""

    active: Collection[int]
    min_isr: int = 1
    lost_data: Collection[int] = frozenset()
    unclean: bool = False
    election: LeaderElection = LeaderElection.CLEAN
    # Elected in an UNCLEAN election; None: every replica.
    unclean_candidates: Collection[int] | None = None
    # What brokers report of their logs of this partition.
    log_ends: Mapping[int, LogEnd] = field(default_factory=dict[int, LogEnd])


def next_state(state: PartitionInfo, conditions: Conditions, isr: tuple[int, ...] | None = None) -> PartitionInfo:
    """The state that should be, with `isr` as the ISR that the leader proposes; `state` itself where it is that
    already.

    Changes of `replicas`, `adding` and `removing` are made by the caller with `replace` before, on an unchanged
    epoch."""
    wished = _completed(_in_sync(state, conditions, state.isr if isr is None else isr), conditions)
    after = _with_elr(state, _elected(wished, conditions), conditions)
    return with_epochs(state, after)


def with_epochs(before: PartitionInfo, after: PartitionInfo) -> PartitionInfo:
    """`after` with the epochs that follow from what is different (§19.3.2); `before` if nothing is."""
    after = _with(after, leader_epoch=before.leader_epoch, partition_epoch=before.partition_epoch)
    if after is before or after == before:
        return before
    if after.leader != before.leader:
        remembered = before.leader if after.leader == NO_LEADER else NO_LEADER
        after = replace(after, leader_epoch=before.leader_epoch + 1, last_leader=remembered)
    elif not set(before.replicas) <= set(after.replicas):
        # A fetch of the one that leaves may be under way; it must not count for the log with which it comes back.
        after = replace(after, leader_epoch=before.leader_epoch + 1)
    return replace(after, partition_epoch=before.partition_epoch + 1)


def effective_min_isr(state: PartitionInfo, min_isr: int) -> int:
    """§14.6.2, counting the replicas there will be after a reassignment."""
    return min(min_isr, len(state.replicas) - len(state.removing) or 1)


def _in_sync(state: PartitionInfo, conditions: Conditions, isr: tuple[int, ...]) -> PartitionInfo:
    if len(state.replicas) > 1:
        isr = tuple(replica for replica in isr if replica not in conditions.lost_data)
    active = tuple(replica for replica in isr if replica in conditions.active)
    return _with(state, isr=active or isr)


def _completed(state: PartitionInfo, conditions: Conditions) -> PartitionInfo:
    """Ends a reassignment when all that are to be added are in sync, and enough stay when the others go."""
    if not state.is_reassigning:
        return state
    replicas = _without(state.replicas, state.removing)
    isr = _without(state.isr, state.removing)
    enough = max(min(conditions.min_isr, len(replicas)), 1)
    if not set(state.adding) <= set(isr) or len(isr) < enough:
        return state
    return replace(state, replicas=replicas, isr=isr, elr=_without(state.elr, state.removing), adding=(), removing=())


def _elected(state: PartitionInfo, conditions: Conditions) -> PartitionInfo:
    in_sync = [replica for replica in state.replicas if replica in state.isr and replica in conditions.active]
    if in_sync:
        return _with(state, leader=_chosen(state, in_sync, conditions.election))
    for replica in state.replicas:
        if replica in state.elr and replica in conditions.active and replica not in conditions.lost_data:
            return replace(state, leader=replica, isr=(replica,))
    longest = longest_log(state, conditions)
    if longest is not None:
        known = _without(_union(state.last_known_elr, (state.last_leader,)), (longest, NO_LEADER))
        return replace(state, leader=longest, isr=(longest,), elr=(), last_known_elr=known)
    candidate = _unclean_candidate(state, conditions)
    if candidate is None:
        return _with(state, leader=NO_LEADER)
    return replace(state, leader=candidate, isr=(candidate,), elr=(), last_known_elr=())


def longest_log(state: PartitionInfo, conditions: Conditions) -> int | None:
    """Where no member of ISR or ELR is left and all who were in them have reported their log ends: the one of these
    with the longest log of the newest epoch, or a replica that continues it; else None. One that ends before what
    another has deleted is none: it would give offsets of committed records a second time."""
    if state.leader != NO_LEADER or state.isr or state.elr:
        return None
    reported = {
        replica: end
        for replica in state.replicas
        if replica in conditions.active
        and replica not in conditions.lost_data
        and (end := conditions.log_ends.get(replica)) is not None
        and end.leader_epoch == state.leader_epoch
    }
    had_all = {*state.last_known_elr, state.last_leader}.intersection(state.replicas)
    if not reported or not (had_all or set(state.replicas)) <= reported.keys():
        return None
    # A log without records ends where it begins: what stood before was committed, and deleted since.
    committed = max((end.end_offset for end in reported.values() if end.last_epoch == NO_RECORD), default=0)
    candidates = {replica: end for replica, end in reported.items() if end.end_offset >= committed}
    known = [end for replica, end in candidates.items() if replica in had_all]
    if known:
        longest = max(known, key=_length)
        candidates = {
            replica: end for replica, end in candidates.items() if replica in had_all or _continues(end, longest)
        }
    # Of equal ones the first replica.
    return max(candidates, key=lambda replica: _length(candidates[replica]))


def _length(end: LogEnd) -> tuple[int, int]:
    return end.last_epoch, end.end_offset


def _continues(log: LogEnd, other: LogEnd) -> bool:
    """Whether the log has all of the other one, and perhaps more. One that was not in sync may have records of a newer
    epoch that were never committed, in the place of such that were."""
    if other.last_epoch == NO_RECORD:
        return True
    end = next((start for epoch, start in log.epochs if epoch > other.last_epoch), log.end_offset)
    return other.last_epoch in dict(log.epochs) and end >= other.end_offset


def _chosen(state: PartitionInfo, in_sync: list[int], election: LeaderElection) -> int:
    if election is LeaderElection.PREFERRED and in_sync[0] == state.replicas[0]:
        return in_sync[0]
    return state.leader if state.leader in in_sync else in_sync[0]


def _unclean_candidate(state: PartitionInfo, conditions: Conditions) -> int | None:
    """Who has led last, else who was in the ISR or ELR before it lost data, is likely to have the most."""
    if conditions.election is LeaderElection.UNCLEAN:
        allowed = state.replicas if conditions.unclean_candidates is None else conditions.unclean_candidates
    elif conditions.unclean:
        allowed = state.replicas
    else:
        return None
    for replica in (state.last_leader, *state.last_known_elr, *state.replicas):
        if replica in allowed and replica in conditions.active and replica in state.replicas:
            return replica
    return None


def _with_elr(before: PartitionInfo, after: PartitionInfo, conditions: Conditions) -> PartitionInfo:
    if _is_unclean(before, after, conditions):
        return _with(
            after, elr=(), last_known_elr=() if longest_log(before, conditions) is None else after.last_known_elr
        )
    is_large_enough = len(after.isr) >= effective_min_isr(after, conditions.min_isr)
    if is_large_enough and after.leader != NO_LEADER:
        return _with(after, elr=(), last_known_elr=())
    had_all = _union(before.elr, before.isr)
    elr = (
        ()
        if is_large_enough
        else tuple(r for r in had_all if r not in after.isr and r not in conditions.lost_data and r in after.replicas)
    )
    known = tuple(r for r in _union(before.last_known_elr, had_all) if r in after.replicas)
    return _with(after, elr=elr, last_known_elr=_without(known, (*after.isr, *elr)))


def _is_unclean(before: PartitionInfo, after: PartitionInfo, conditions: Conditions) -> bool:
    """The leader was in neither set, or has lost data since."""
    if after.leader == NO_LEADER or len(after.replicas) == 1 or after.leader == before.leader:
        return False
    return after.leader not in _union(before.isr, before.elr) or after.leader in conditions.lost_data


def _with(state: PartitionInfo, **fields: int | tuple[int, ...]) -> PartitionInfo:
    """`state` itself where it says so already: of thousands that are looked at, most do, and a copy takes long."""
    if all(getattr(state, name) == value for name, value in fields.items()):
        return state
    return replace(state, **fields)  # type: ignore[arg-type]


def _union(first: Iterable[int], second: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def _without(replicas: Iterable[int], gone: Collection[int]) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica not in gone)
