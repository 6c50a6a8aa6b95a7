"""OffsetDelete, in groups of every kind (§9.7): what a group is subscribed to stays (§5.8)."""

import pytest

from ottla.coordinator.classic import group as group_module
from ottla.coordinator.events import DeleteGroup, DeleteOffsets, OffsetToCommit
from ottla.coordinator.results import DeleteOffsetsResult
from ottla.protocol.consumer_protocol import parse_subscribed_topics
from ottla.protocol.errors import ErrorCode
from tests.coordinator.harness import Client, Shell, short_subscription, subscription


def delete(shell: Shell, *topics: tuple[str, tuple[int, ...]]) -> DeleteOffsetsResult:
    return shell.send(DeleteOffsets(shell.token(), "g", topics))


def errors(result: DeleteOffsetsResult) -> list[ErrorCode]:
    return [partition.error for partition in result.partitions]


def test_offset_delete_of_an_unknown_or_dead_group(shell: Shell) -> None:
    assert delete(shell, ("t", (0,))) == DeleteOffsetsResult(ErrorCode.GROUP_ID_NOT_FOUND)
    shell.commit(1)
    shell.hold_appends = True
    shell.send(DeleteGroup(shell.token(), "g"))
    assert delete(shell, ("t", (0,))) == DeleteOffsetsResult(ErrorCode.GROUP_ID_NOT_FOUND)


def test_offset_delete_in_an_empty_group_takes_all_that_is_named(shell: Shell) -> None:
    shell.commit(1, offsets=(OffsetToCommit("t", 0, 1), OffsetToCommit("t", 1, 1), OffsetToCommit("u", 0, 1)))
    assert errors(delete(shell, ("t", (0, 9)), ("u", (0,)))) == [ErrorCode.NONE] * 3
    assert [shell.committed("t", 0), shell.committed("t", 1), shell.committed("u", 0)] == [-1, 1, -1]


def test_offset_delete_leaves_what_the_group_is_subscribed_to(shell: Shell) -> None:
    (client,) = shell.stable_group("c1", protocols=(("range", subscription("t")),))
    client.commit(1)
    client.commit(1, topic="old")
    answer = delete(shell, ("t", (0,)), ("old", (0,)))
    assert errors(answer) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert [shell.committed("t"), shell.committed("old")] == [1, -1]


def test_offset_delete_reads_short_subscriptions(shell: Shell) -> None:
    (client,) = shell.stable_group("c1", protocols=(("range", short_subscription("t")),))
    client.commit(1, topic="old")
    assert errors(delete(shell, ("t", (0,)), ("old", (0,)))) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert shell.committed("old") == -1


def test_offset_delete_keeps_all_under_unreadable_subscription(shell: Shell) -> None:
    (client,) = shell.stable_group("c1", protocols=(("range", b"\0\0\xff"),))
    client.commit(1, topic="old")
    assert errors(delete(shell, ("old", (0,)))) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


@pytest.mark.parametrize("joins", [subscription("old"), b""], ids=["of the topic", "unreadable"])
def test_offset_delete_in_a_rebalance_knows_the_last_generation(shell: Shell, joins: bytes) -> None:
    """§5.8: who joins counts from the next generation on."""
    (client,) = shell.stable_group("c1", protocols=(("range", subscription("t")),))
    client.commit(1)
    client.commit(1, topic="old")
    shell.client("c2", protocols=(("range", joins),)).join()
    assert shell.state("g") == "PreparingRebalance"

    answer = delete(shell, ("t", (0,)), ("old", (0,)))
    assert errors(answer) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert [shell.committed("t"), shell.committed("old")] == [1, -1]


def test_offset_delete_in_the_first_rebalance_keeps_all(shell: Shell) -> None:
    shell.client("c1", protocols=(("range", subscription("t")),)).join()
    assert shell.state("g") == "PreparingRebalance"
    assert errors(delete(shell, ("old", (0,)))) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_offset_delete_after_all_had_left_takes_all(shell: Shell) -> None:
    (client,) = shell.stable_group("c1", protocols=(("range", subscription("t")),))
    client.leave()
    shell.client("c2", protocols=(("range", subscription("t")),)).join()
    assert shell.state("g") == "PreparingRebalance"
    assert errors(delete(shell, ("t", (0,)))) == [ErrorCode.NONE]


def test_members_are_read_once_for_many_topics(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.stable_group("c1", "c2", protocols=(("range", subscription("t")),))
    read: list[bytes] = []

    def counted(data: bytes) -> list[str]:
        read.append(data)
        return parse_subscribed_topics(data)

    monkeypatch.setattr(group_module, "parse_subscribed_topics", counted)
    answer = delete(shell, *((f"topic-{number}", (0,)) for number in range(100)))
    assert errors(answer) == [ErrorCode.NONE] * 100
    assert len(read) == 2


def test_offset_delete_needs_an_empty_group_of_other_protocols(shell: Shell) -> None:
    clients: list[Client] = shell.stable_group("c1", protocol_type="connect")
    assert delete(shell, ("t", (0,))) == DeleteOffsetsResult(ErrorCode.NON_EMPTY_GROUP)
    clients[0].leave()
    assert errors(delete(shell, ("t", (0,)))) == [ErrorCode.NONE]


def test_offset_delete_that_is_not_stored(shell: Shell) -> None:
    shell.commit(1)
    shell.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS
    assert delete(shell, ("t", (0,))) == DeleteOffsetsResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert shell.committed() == 1
