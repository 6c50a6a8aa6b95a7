"""Offsets that are committed or asked for by the thousand come in slices, and are one step all the same."""

from typing import Any

import pytest

from ottla.coordinator import durable_state
from ottla.coordinator.classic import describe
from ottla.coordinator.events import DescribeGroup, FetchOffsets, ListGroups, OffsetToCommit
from ottla.coordinator.offsets import commit, fetch
from ottla.coordinator.runtime import partition
from ottla.coordinator.runtime.effects import Append, Reply, TransactionCompleted
from tests.coordinator.harness import Shell, simple_commit

PER_SLICE = 4
COUNT = 3 * PER_SLICE + 1
SLICES = 4


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setattr(commit, "OFFSETS_PER_SLICE", PER_SLICE)
    monkeypatch.setattr(fetch, "OFFSETS_PER_SLICE", PER_SLICE)
    monkeypatch.setattr(partition, "RECORDS_PER_SLICE", PER_SLICE)
    monkeypatch.setattr(durable_state, "OFFSETS_PER_SLICE", PER_SLICE)
    monkeypatch.setattr(describe, "GROUPS_PER_SLICE", PER_SLICE)
    return Shell(members_per_slice=PER_SLICE)


def offsets() -> tuple[OffsetToCommit, ...]:
    return tuple(OffsetToCommit("t", index, index) for index in range(COUNT))


def kinds(shell: Shell) -> list[list[type]]:
    return [[type(effect) for effect in effects] for effects in shell.slices]


def test_many_offsets_are_committed_in_slices(shell: Shell) -> None:
    shell.hold_appends = True
    shell.slices.clear()
    shell.send(simple_commit(shell.token(), 0, offsets=offsets()))

    assert kinds(shell) == [[], [], [], [Append]]


def test_many_records_are_replayed_in_slices(shell: Shell) -> None:
    shell.hold_appends = True
    shell.send(simple_commit(shell.token(), 0, offsets=offsets()))
    shell.slices.clear()
    shell.complete_append()

    assert len(shell.slices) == SLICES
    assert [shell.committed(partition=index) for index in range(COUNT)] == list(range(COUNT))


def test_transaction_of_many_offsets_ends_in_slices(shell: Shell) -> None:
    shell.commit_in_transaction(0, offsets=offsets())
    shell.slices.clear()
    shell.write_marker(7, commit=True)

    assert len(shell.slices) == SLICES
    assert [shell.committed(partition=index) for index in range(COUNT)] == list(range(COUNT))


def test_unload_in_the_middle_of_a_marker_forgets_all(shell: Shell) -> None:
    shell.commit_in_transaction(0, offsets=offsets())
    shell.perform(shell.partition.step(TransactionCompleted(7, commit=True), shell.now_ms, shell.wall_ms))
    assert shell.partition.rest
    shell.unload()

    assert not shell.partition.rest
    assert not shell.partition.shard.durable.knows("g")


@pytest.mark.parametrize("topics", [None, (("t", tuple(range(COUNT))),)])
def test_many_offsets_are_fetched_in_slices(shell: Shell, topics: Any) -> None:
    shell.send(simple_commit(shell.token(), 0, offsets=offsets()))
    shell.slices.clear()
    result = shell.send(FetchOffsets(shell.token(), "g", topics))

    assert [each.offset for each in result.partitions] == list(range(COUNT))
    assert kinds(shell) == [[], [], [], [Reply]]


def test_many_members_are_described_in_slices(shell: Shell) -> None:
    clients = shell.stable_group(*(f"c{number}" for number in range(COUNT)))
    shell.slices.clear()
    result = shell.send(DescribeGroup(shell.token(), "g"))

    assert [each.assignment for each in result.members] == [client.name.encode() for client in clients]
    assert kinds(shell) == [[], [], [], [Reply]]


def test_many_groups_are_listed_in_slices(shell: Shell) -> None:
    for number in range(COUNT):
        shell.commit(1, group_id=f"g{number}")
    shell.slices.clear()
    result = shell.send(ListGroups(shell.token()))

    assert [each.group_id for each in result.groups] == [f"g{number}" for number in range(COUNT)]
    assert kinds(shell) == [[], [], [], [Reply]]
