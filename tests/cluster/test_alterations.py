"""What may be asked of a partition, and the error when it may not."""

import pytest

from ottla.cluster.alterations import (
    IsrProposal,
    alter_isr,
    elect_preferred,
    elect_unclean,
    reassign,
    reassignments,
)
from ottla.cluster.controller import Tick, TopicChanged, transaction_of_leader, transactions
from ottla.cluster.image import CONSUMER_OFFSETS, BrokerState
from ottla.cluster.store import Expect
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.cluster.images import broker, decide, image, rules, state, with_broker


def proposal(members: str = "12", **fields) -> IsrProposal:
    fields = {"broker_id": 1, "broker_epoch": 101, "leader_epoch": 5, "partition_epoch": 9, **fields}
    return IsrProposal(members=[(int(digit), 100 + int(digit)) for digit in members], **fields)


def refusal(action) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        action()
    assert str(raised.value)
    return raised.value.code


@pytest.mark.parametrize(
    ("asked", "index", "code"),
    [
        (proposal(broker_epoch=100, leader_epoch=99), 9, ErrorCode.STALE_BROKER_EPOCH),
        (proposal(), 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (proposal(leader_epoch=6, partition_epoch=8), 0, ErrorCode.NOT_CONTROLLER),
        (proposal(leader_epoch=4, partition_epoch=10), 0, ErrorCode.NOT_CONTROLLER),
        (proposal(leader_epoch=4, broker_id=2, broker_epoch=102), 0, ErrorCode.FENCED_LEADER_EPOCH),
        (proposal(broker_id=2, broker_epoch=102, partition_epoch=8), 0, ErrorCode.INVALID_REQUEST),
        (proposal("", partition_epoch=8), 0, ErrorCode.INVALID_UPDATE_VERSION),
        (proposal(""), 0, ErrorCode.INVALID_REQUEST),
        (proposal("2"), 0, ErrorCode.INVALID_REQUEST),
        (proposal("11"), 0, ErrorCode.INVALID_REQUEST),
        (proposal("14"), 0, ErrorCode.INVALID_REQUEST),
        (proposal("13"), 0, ErrorCode.INELIGIBLE_REPLICA),
        (IsrProposal(1, 101, 5, 9, [(1, 101), (2, 77)]), 0, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_proposals_are_checked_in_order(asked: IsrProposal, index: int, code: ErrorCode) -> None:
    """§19.3.3."""
    assert refusal(lambda: alter_isr(image(state("12"), active="12"), "t", index, asked, rules())) is code


@pytest.mark.parametrize("condition", [BrokerState.FENCED, BrokerState.STARTING, BrokerState.STOPPING])
def test_who_is_not_active_cannot_join(condition: BrokerState) -> None:
    made = image(state("12"), others=(broker(3, condition),))
    assert refusal(lambda: alter_isr(made, "t", 0, proposal("123"), rules())) is ErrorCode.INELIGIBLE_REPLICA


def test_a_proposal_is_committed_against_what_it_was_made_on() -> None:
    made = image(state("12", revision=77))
    change = alter_isr(made, "t", 0, proposal("321"), rules())

    assert change.after == state("123", partition_epoch=10)
    transaction = transaction_of_leader(change, made)
    assert transaction.expected == (
        Expect("partitions/t/0", 77),
        Expect("sessions/1", 201),
        Expect("sessions/2", 202),
        Expect("sessions/3", 203),
    )
    assert alter_isr(made, "t", 0, proposal("21"), rules()) is None


def test_preferred_election() -> None:
    made = image(state("123", 2), state("123", 1), state("23", 2), active="123")

    assert elect_preferred(made, "t", 0, rules()).after.leader == 1
    assert refusal(lambda: elect_preferred(made, "t", 1, rules())) is ErrorCode.ELECTION_NOT_NEEDED
    assert refusal(lambda: elect_preferred(made, "t", 2, rules())) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert [(change.index, change.after.leader) for change in decide(made, Tick(balance=True), rules())] == [(0, 1)]


def test_unclean_election_by_hand() -> None:
    """R13."""
    lost = state("1", -1, last_leader=1)
    made = image(lost, state("12", 2), active="23")

    change = elect_unclean(made, "t", 0, rules())
    assert (change.after.leader, change.after.isr, change.loses_records) == (2, (2,), True)
    assert "lost" in change.reason
    assert refusal(lambda: elect_unclean(made, "t", 1, rules())) is ErrorCode.ELECTION_NOT_NEEDED
    dark = image(lost, active="")
    assert refusal(lambda: elect_unclean(dark, "t", 0, rules())) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_internal_topics_elect_only_those_who_had_the_records() -> None:
    made = image(state("", -1, last_leader=1, last_known_elr="3"), name=CONSUMER_OFFSETS, active="2")
    unclean = rules(unclean=True)
    assert decide(made, Tick(), unclean) == []
    refused = refusal(lambda: elect_unclean(made, CONSUMER_OFFSETS, 0, unclean))
    assert refused is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE

    back = with_broker(made, broker(3))
    assert elect_unclean(back, CONSUMER_OFFSETS, 0, unclean).after.leader == 3


def test_a_reassignment_goes_its_way() -> None:
    four = (broker(4),)
    begun = reassign(image(state(), others=four), "t", 0, [4, 2, 3], rules()).after
    assert begun == state("123", replicas="4231", adding="4", removing="1", partition_epoch=10)

    made = image(begun, others=four)
    assert reassignments(made) == [("t", 0, begun)]
    done = alter_isr(made, "t", 0, proposal("1234", partition_epoch=10), rules()).after
    assert done == state("234", 4, replicas="423", leader_epoch=6, partition_epoch=11)


def test_a_reassignment_is_given_up() -> None:
    under_way = state("1234", replicas="4231", adding="4", removing="1")
    after = reassign(image(under_way, others=(broker(4),)), "t", 0, None, rules()).after

    assert after == state("123", replicas="231", leader_epoch=6, partition_epoch=10)


def test_replica_that_leaves_ends_the_leaders_term() -> None:
    """§19.3.2: it is back at once, and what its deleted log had asked for may still be under way."""
    left = reassign(image(state()), "t", 0, [1, 2], rules()).after
    assert left == state("12", replicas="12", leader_epoch=6, partition_epoch=10)

    back = reassign(image(left), "t", 0, [1, 2, 3], rules()).after
    assert back == state("12", replicas="123", adding="3", leader_epoch=6, partition_epoch=11)


def test_a_change_of_order_is_done_at_once() -> None:
    assert reassign(image(state()), "t", 0, [3, 2, 1], rules()).after == state(replicas="321", partition_epoch=10)
    assert reassign(image(state()), "t", 0, [1, 2, 3], rules()) is None


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_reassignments_that_make_no_sense_are_refused(target, code: ErrorCode) -> None:
    assert refusal(lambda: reassign(image(state()), "t", 0, target, rules())) is code


def test_other_number_of_replicas_is_refused_where_forbidden() -> None:
    """KIP-860; what a reassignment under way leads to is what counts."""
    under_way = state("123", replicas="4123", adding="4", removing="1")
    made = image(under_way, others=(broker(4), broker(5)))

    assert reassign(made, "t", 0, [5, 2, 3], rules(), keeps_factor=True).after.adding == (5,)
    four = [4, 1, 2, 3]
    refused = refusal(lambda: reassign(made, "t", 0, four, rules(), keeps_factor=True))
    assert refused is ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(made, "t", 0, four, rules()) is not None


def test_giving_up_may_not_leave_only_those_out_of_sync() -> None:
    under_way = state("4", 4, replicas="4231", adding="4", removing="1")
    made = image(under_way, others=(broker(4),))
    assert refusal(lambda: reassign(made, "t", 0, None, rules())) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_lower_min_insync_replicas_ends_the_elr_at_next_check() -> None:
    made = image(state("1", elr="23"))
    assert decide(made, TopicChanged("t"), rules(2)) == []
    (change,) = decide(made, TopicChanged("t"), rules(1))
    assert change.after.elr == ()


def test_large_decisions_are_cut_into_transactions() -> None:
    made = image(*(state("123", 3, revision=index + 1) for index in range(130)), active="12")
    cut = list(transactions(decide(made, Tick(), rules()), made))

    assert [len(each.changes) for each in cut] == [64, 64, 2]
    assert all(each.expected[0] == Expect("controller", 50) for each in cut)
    assert all(each.expected[-1] == Expect("sessions/1", 201) for each in cut)
