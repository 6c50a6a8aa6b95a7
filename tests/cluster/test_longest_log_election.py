"""All replicas that were in sync have lost data: the longest log of the newest epoch is elected, once all are back."""

from dataclasses import replace

import pytest

from ottla.cluster.image import NO_LEADER, NO_RECORD, LogEnd, PartitionInfo
from ottla.cluster.partition_state import next_state
from tests.cluster.images import conditions, state


def ends(**of_replica: tuple[int, int]) -> dict[int, LogEnd]:
    """`_1=(last epoch, end offset)`, reported in leader epoch 5."""
    return {
        int(name[1:]): LogEnd(5, end, () if epoch == NO_RECORD else ((epoch, 0),))
        for name, (epoch, end) in of_replica.items()
    }


def ends_beside(*epochs: tuple[int, int]) -> dict[int, LogEnd]:
    """Replica 3 was not in sync: its log ends at 12 in leader epoch 4, the others' in epoch 2."""
    return ends(_1=(2, 10), _2=(2, 11)) | {3: LogEnd(5, 12, epochs)}


LEADERLESS = state("", NO_LEADER, last_known_elr="12", last_leader=1)


@pytest.mark.parametrize(
    ("before", "active", "log_ends", "leader"),
    [
        pytest.param(LEADERLESS, "123", ends(_1=(4, 10), _2=(4, 11)), 2, id="the longest log"),
        pytest.param(LEADERLESS, "123", ends(_1=(4, 10), _2=(3, 11)), 1, id="of the newest epoch"),
        pytest.param(LEADERLESS, "123", ends(_1=(4, 10), _2=(4, 10)), 1, id="the first of equal ones"),
        pytest.param(LEADERLESS, "123", ends(_1=(4, 10), _2=(4, 9), _3=(4, 12)), 3, id="one that was not in sync"),
        pytest.param(LEADERLESS, "123", ends_beside((1, 0), (2, 5), (4, 11)), 3, id="one that continues the longest"),
        pytest.param(LEADERLESS, "123", ends_beside((1, 0), (2, 5), (4, 10)), 2, id="one that parts from the longest"),
        pytest.param(LEADERLESS, "123", ends_beside((1, 0), (3, 11), (4, 11)), 2, id="one without its epoch"),
        pytest.param(LEADERLESS, "123", ends_beside((4, 11)), 2, id="one whose older epochs are not known"),
        pytest.param(
            LEADERLESS,
            "123",
            ends(_1=(NO_RECORD, 11), _2=(NO_RECORD, 11), _3=(4, 7)),
            1,
            id="one whose records were all deleted",
        ),
        pytest.param(
            LEADERLESS, "123", ends(_1=(NO_RECORD, 11), _2=(4, 11)), 2, id="one with a record that was deleted"
        ),
        pytest.param(
            LEADERLESS, "123", ends(_1=(NO_RECORD, 11), _2=(4, 13)), 2, id="one that goes on behind what is deleted"
        ),
        pytest.param(LEADERLESS, "12", ends(_1=(4, 10), _2=(4, 11)), 2, id="without one that was not in sync"),
        pytest.param(LEADERLESS, "13", ends(_1=(4, 10), _2=(4, 11), _3=(4, 12)), NO_LEADER, id="one is missing"),
        pytest.param(LEADERLESS, "123", ends(_1=(4, 10), _3=(4, 12)), NO_LEADER, id="one has not reported"),
        pytest.param(
            replace(LEADERLESS, leader_epoch=6), "123", ends(_1=(4, 10), _2=(4, 11)), NO_LEADER, id="reported before"
        ),
        pytest.param(
            state("", NO_LEADER, last_known_elr="2", last_leader=1),
            "123",
            ends(_2=(4, 10)),
            NO_LEADER,
            id="last leader",
        ),
        pytest.param(state("", NO_LEADER), "123", ends(_1=(4, 1), _2=(4, 2)), NO_LEADER, id="none known: all wait"),
        pytest.param(state("", NO_LEADER, elr="3"), "12", ends(_1=(4, 1), _2=(4, 2)), NO_LEADER, id="the ELR may come"),
    ],
)
def test_longest_log_is_elected_once_last_isr_members_are_back(
    before: PartitionInfo, active: str, log_ends: dict[int, LogEnd], leader: int
) -> None:
    after = next_state(before, conditions(active, log_ends=log_ends))

    assert after.leader == leader
    if leader != NO_LEADER:
        assert (after.isr, after.leader_epoch) == ((leader,), 6)
        assert set(after.last_known_elr) == {1, 2} - {leader}, "should this one be lost too"


def test_replicas_that_lost_data_stay_known_without_a_leader() -> None:
    """Also where min.insync.replicas is 1, so that no smaller ISR has an ELR."""
    before = state("123", NO_LEADER, last_leader=1)

    one_back = next_state(before, conditions("", lost="1", min_isr=1))
    all_back = next_state(one_back, conditions("", lost="123", min_isr=1))

    assert (one_back.isr, one_back.last_known_elr) == ((2, 3), (1,))
    assert (all_back.isr, set(all_back.last_known_elr)) == ((), {1, 2, 3})
