"""DescribeGroups and ListGroups (G01, §10)."""

import pytest

from ottla.coordinator.events import DeleteGroup, DescribeGroup, ListGroups
from ottla.coordinator.results import DescribedMember, DescribeResult, ListedGroup
from ottla.protocol.errors import ErrorCode
from tests.coordinator.harness import Shell, subscription

PROTOCOLS = (("range", subscription("t")), ("sticky", b"s"))


def describe(shell: Shell, group_id: str = "g") -> DescribeResult:
    return shell.send(DescribeGroup(shell.token(), group_id))


def test_everything_about_a_stable_group_is_visible(shell: Shell) -> None:
    """G01"""
    shell.stable_group("c1", instance_id="instance", protocols=PROTOCOLS, session_timeout_ms=7_000)
    assert describe(shell) == DescribeResult(
        error=ErrorCode.NONE,
        group_id="g",
        exists=True,
        state="Stable",
        protocol_type="consumer",
        protocol_name="range",
        generation=1,
        leader_id="instance-0001",
        members=(
            DescribedMember(
                member_id="instance-0001",
                group_instance_id="instance",
                client_id="c1",
                client_host="/c1.example",
                metadata=subscription("t"),
                assignment=b"c1",
                session_timeout_ms=7_000,
                rebalance_timeout_ms=60_000,
                protocols=("range", "sticky"),
            ),
        ),
    )


def test_members_of_unstable_group_are_shown_without_metadata(shell: Shell) -> None:
    """G01"""
    c1, _ = shell.stable_group("c1", "c2")
    c1.join()
    described = describe(shell)
    assert (described.state, described.protocol_type, described.protocol_name) == (
        "PreparingRebalance",
        "consumer",
        "",
    )
    assert [member.metadata for member in described.members] == [b"", b""]


def test_members_show_their_last_assignment_during_rebalance(shell: Shell) -> None:
    """G01"""
    c1, c2 = shell.stable_group("c1", "c2")

    c1.join()
    preparing = describe(shell)
    c2.join()
    completing = describe(shell)

    for described in (preparing, completing):
        assert [member.assignment for member in described.members] == [b"c1", b"c2"]


def test_rebalance_given_up_while_completing_forgets_assignments(shell: Shell) -> None:
    c1, c2 = shell.stable_group("c1", "c2")
    c1.join()
    c2.join()

    c2.join(protocols=(("range", subscription("u")),))

    described = describe(shell)
    assert (described.state, [member.assignment for member in described.members]) == ("PreparingRebalance", [b""] * 2)


def test_group_of_a_refused_first_join_exists_and_is_empty(shell: Shell) -> None:
    shell.client("c").join(protocols=())

    described = describe(shell)

    assert (described.exists, described.state, described.members) == (True, "Empty", ())


def test_an_unknown_group_is_dead_and_no_error(shell: Shell) -> None:
    assert describe(shell) == DescribeResult(ErrorCode.NONE, "g", exists=False, state="Dead")


def test_a_group_being_deleted_is_dead(shell: Shell) -> None:
    shell.commit(1)
    shell.hold_appends = True
    shell.send(DeleteGroup(shell.token(), "g"))
    assert (describe(shell).state, describe(shell).exists) == ("Dead", False)


STABLE = ListedGroup("stable", "consumer", "Stable", "classic")
PREPARING = ListedGroup("preparing", "connect", "PreparingRebalance", "classic")
SIMPLE = ListedGroup("simple", "", "Empty", "classic")


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        ((), (), [STABLE, PREPARING, SIMPLE]),
        (("Stable",), (), [STABLE]),
        (("sTABLE", "EMPTY"), (), [STABLE, SIMPLE]),
        (("nonsense",), (), []),
        (("nonsense", "preparingrebalance"), (), [PREPARING]),
        ((), ("Classic",), [STABLE, PREPARING, SIMPLE]),
        ((), ("consumer",), []),
        (("Stable",), ("classic", "consumer"), [STABLE]),
    ],
)
def test_groups_are_listed_by_state_and_type(
    shell: Shell, states: tuple[str, ...], types: tuple[str, ...], expected: list[ListedGroup]
) -> None:
    shell.stable_group("c1", group_id="stable")
    shell.client("c2", group_id="preparing", protocol_type="connect").join()
    shell.commit(1, group_id="simple")
    result = shell.send(ListGroups(shell.token(), states, types))
    assert (result.error, list(result.groups)) == (ErrorCode.NONE, expected)
