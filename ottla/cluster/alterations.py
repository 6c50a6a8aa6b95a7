"""What brokers and administrators may ask of a partition: another ISR, an election, other replicas. Pure.

Each gives the new state, or raises the KafkaError of the answer.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ottla.cluster.controller import PartitionChange, RulesOf, conditions, reason_of
from ottla.cluster.image import NO_LEADER, BrokerState, MetadataImage, PartitionInfo, TopicInfo
from ottla.cluster.partition_state import Conditions, LeaderElection, next_state, with_epochs
from ottla.protocol.errors import (
    ErrorCode,
    FencedLeaderEpoch,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    UnknownTopicOrPartition,
    error_for,
)

UNKNOWN_EPOCH = -1


class IsrProposal(NamedTuple):
    """What a leader sends with AlterPartition. Members carry the broker epoch with which they fetched;
    UNKNOWN_EPOCH is not checked."""

    broker_id: int
    broker_epoch: int
    leader_epoch: int
    partition_epoch: int
    members: Sequence[tuple[int, int]]


def alter_isr(
    image: MetadataImage, name: str, index: int, proposal: IsrProposal, rules_of: RulesOf
) -> PartitionChange | None:
    """The change a leader has proposed, checked in the order of §19.3.3; None where the state is that already."""
    sender = image.brokers.get(proposal.broker_id)
    if sender is None or sender.epoch != proposal.broker_epoch:
        raise error_for(ErrorCode.STALE_BROKER_EPOCH, f"broker {proposal.broker_id} is registered with another epoch")
    topic, state = _existing(image, name, index)
    _check_epochs(state, proposal)
    isr = tuple(node_id for node_id, _ in proposal.members)
    if len(set(isr)) != len(isr) or not set(isr) <= set(state.replicas) or state.leader not in isr:
        raise InvalidRequest(f"ISR {list(isr)} of replicas {list(state.replicas)} with leader {state.leader}")
    for node_id, epoch in proposal.members:
        _check_eligible(image, node_id, epoch)
    return _change(topic, index, state, next_state(state, _conditions(image, topic, rules_of), _in_order(state, isr)))


def leave(
    image: MetadataImage, name: str, index: int, node_id: int, rules_of: RulesOf, *, has_lost: bool
) -> PartitionChange | None:
    """The change after which a partition goes on without the replica on a broker with a disk error, as if that broker
    were not active; `has_lost` if it may lack what was acknowledged. None where no other replica can lead."""
    topic, state = _existing(image, name, index)
    usual = _conditions(image, topic, rules_of)
    without = replace(
        usual,
        active=frozenset(usual.active) - {node_id},
        lost_data=frozenset(usual.lost_data) | ({node_id} if has_lost else frozenset()),
        unclean=False,
    )
    after = next_state(state, without)
    return None if after.leader == NO_LEADER else _change(topic, index, state, after)


def elect_preferred(image: MetadataImage, name: str, index: int, rules_of: RulesOf) -> PartitionChange:
    """Make the first replica lead, if it is active and in the ISR (ElectLeaders, type 0)."""
    topic, state = _existing(image, name, index)
    preferred = state.replicas[0]
    if state.leader == preferred:
        raise error_for(ErrorCode.ELECTION_NOT_NEEDED, f"replica {preferred} leads already")
    after = next_state(state, replace(_conditions(image, topic, rules_of), election=LeaderElection.PREFERRED))
    change = _change(topic, index, state, after)
    if change is None or after.leader != preferred:
        raise error_for(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"replica {preferred} is not active and in the ISR")
    return change


def elect_unclean(image: MetadataImage, name: str, index: int, rules_of: RulesOf) -> PartitionChange:
    """Give a partition without leader one, by the explicit will of an administrator (ElectLeaders, type 1).

    Where nothing clean is left this may lose records. Of internal topics only those may be elected that have been
    leader or in the ISR before they lost data."""
    topic, state = _existing(image, name, index)
    if state.leader != NO_LEADER:
        raise error_for(ErrorCode.ELECTION_NOT_NEEDED, f"the partition has leader {state.leader}")
    candidates = (state.last_leader, *state.last_known_elr) if topic.is_internal else None
    wished = replace(
        _conditions(image, topic, rules_of), election=LeaderElection.UNCLEAN, unclean_candidates=candidates
    )
    change = _change(topic, index, state, next_state(state, wished))
    if change is None or change.after.leader == NO_LEADER:
        raise error_for(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica that may be elected is active")
    return change


def reassign(
    image: MetadataImage,
    name: str,
    index: int,
    target: Sequence[int] | None,
    rules_of: RulesOf,
    *,
    keeps_factor: bool = False,
) -> PartitionChange | None:
    """Begin to move a partition to other replicas, or (None) give up a move; None where nothing is to change.
    `keeps_factor` refuses another number of replicas than the partition has, or is moving to.

    The new replicas join, catch up, and once all are in the ISR the others leave: `next_state` ends it."""
    topic, state = _existing(image, name, index)
    original = tuple(replica for replica in state.replicas if replica not in state.adding)
    if target is None:
        wished = _cancelled(state, original)
    else:
        _check_replicas(target, image)
        if keeps_factor:
            _check_factor(target, state)
        wished = _begun(state, original, tuple(target))
    after = next_state(wished, _conditions(image, topic, rules_of))
    return _change(topic, index, state, with_epochs(state, after))


def reassignments(image: MetadataImage) -> list[tuple[str, int, PartitionInfo]]:
    """The partitions that are being moved."""
    return [(topic.name, index, state) for topic, index, state in image.partitions() if state.is_reassigning]


def _begun(state: PartitionInfo, original: tuple[int, ...], target: tuple[int, ...]) -> PartitionInfo:
    adding = tuple(replica for replica in target if replica not in original)
    removing = tuple(replica for replica in original if replica not in target)
    replicas = target + removing
    return replace(_cut_to(state, replicas), replicas=replicas, adding=adding, removing=removing)


def _cancelled(state: PartitionInfo, original: tuple[int, ...]) -> PartitionInfo:
    if not state.is_reassigning:
        raise error_for(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition is not being moved")
    return replace(_cut_to(state, original), replicas=original, adding=(), removing=())


def _cut_to(state: PartitionInfo, replicas: tuple[int, ...]) -> PartitionInfo:
    """Without those that are replicas no more, if the records stay with the others."""
    isr = tuple(replica for replica in state.isr if replica in replicas)
    elr = tuple(replica for replica in state.elr if replica in replicas)
    if state.isr and not isr:
        raise InvalidReplicaAssignment(f"only replicas {list(state.isr)}, which would go, are in sync")
    known = tuple(replica for replica in state.last_known_elr if replica in replicas)
    return replace(state, isr=isr, elr=elr, last_known_elr=known)


def _check_factor(target: Sequence[int], state: PartitionInfo) -> None:
    factor = len(state.replicas) - len(state.removing)
    if len(target) != factor:
        raise InvalidReplicationFactor(f"replicas {list(target)} would change the replication factor of {factor}")


def _check_replicas(target: Sequence[int], image: MetadataImage) -> None:
    if not target:
        raise InvalidReplicaAssignment("a partition needs at least one replica")
    if len(set(target)) != len(target):
        raise InvalidReplicaAssignment(f"replicas {list(target)} name a broker twice")
    unknown = [replica for replica in target if replica not in image.brokers]
    if unknown:
        raise InvalidReplicaAssignment(f"there is no broker {unknown[0]}")


def _check_epochs(state: PartitionInfo, proposal: IsrProposal) -> None:
    if proposal.leader_epoch > state.leader_epoch or proposal.partition_epoch > state.partition_epoch:
        raise error_for(ErrorCode.NOT_CONTROLLER, "the leader has seen a later state than this image has")
    if proposal.leader_epoch < state.leader_epoch:
        raise FencedLeaderEpoch(f"leader epoch {proposal.leader_epoch}, current is {state.leader_epoch}")
    if proposal.broker_id != state.leader:
        raise InvalidRequest(f"broker {proposal.broker_id} does not lead, {state.leader} does")
    if proposal.partition_epoch < state.partition_epoch:
        raise error_for(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"partition epoch {proposal.partition_epoch}, current is {state.partition_epoch}",
        )


def _check_eligible(image: MetadataImage, node_id: int, epoch: int) -> None:
    broker = image.brokers.get(node_id)
    if broker is None or broker.state is not BrokerState.ACTIVE:
        what = "not registered" if broker is None else broker.state.value
        raise error_for(ErrorCode.INELIGIBLE_REPLICA, f"broker {node_id} is {what}")
    if epoch not in (UNKNOWN_EPOCH, broker.epoch):
        raise error_for(ErrorCode.INELIGIBLE_REPLICA, f"broker {node_id} has epoch {broker.epoch}, not {epoch}")


def _existing(image: MetadataImage, name: str, index: int) -> tuple[TopicInfo, PartitionInfo]:
    topic, state = image.topic(name), image.partition(name, index)
    if topic is None or state is None:
        raise UnknownTopicOrPartition(f"there is no partition {index} of a topic '{name}'")
    return topic, state


def _in_order(state: PartitionInfo, isr: tuple[int, ...]) -> tuple[int, ...]:
    """Members keep their places, so that only a change of members is a change; new ones come last."""
    kept = tuple(replica for replica in state.isr if replica in isr)
    return kept + tuple(replica for replica in isr if replica not in kept)


def _conditions(image: MetadataImage, topic: TopicInfo, rules_of: RulesOf) -> Conditions:
    return conditions(topic, rules_of(topic), active=image.active_brokers, lost_data=image.brokers_that_lost_data)


def _change(topic: TopicInfo, index: int, before: PartitionInfo, after: PartitionInfo) -> PartitionChange | None:
    if after == before:
        return None
    return PartitionChange(topic.name, index, before, after, reason_of(before, after))
