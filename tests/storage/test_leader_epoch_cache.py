"""Leader epochs in memory: where each begins and ends (§14.3)."""

import pytest

from ottla.storage.leader_epoch_cache import (
    EpochEntry,
    LeaderEpochCache,
)


def cache(*entries: tuple[int, int]) -> LeaderEpochCache:
    return LeaderEpochCache(EpochEntry(*entry) for entry in entries)


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(7, (7, 300)), (4, (4, 250)), (5, (4, 250)), (1, (1, 100)), (0, (0, 0)), (9, (-1, -1)), (-1, (-1, -1))],
)
def test_the_end_offset_for_an_epoch_is_that_of_the_example(epoch: int, answer: tuple[int, int]) -> None:
    """§14.3.5"""
    assert cache((1, 0), (4, 100), (7, 250)).end_offset_for(epoch, 300) == answer


def test_an_empty_cache_knows_no_epoch() -> None:
    assert cache().end_offset_for(0, 10) == (-1, -1)
    assert (cache().latest_epoch, cache().epoch_at(5)) == (-1, -1)


@pytest.mark.parametrize(
    ("assigned", "entries"),
    [
        ((7, 260), ((1, 0), (4, 100), (7, 250))),
        ((8, 300), ((1, 0), (4, 100), (7, 250), (8, 300))),
        ((8, 250), ((1, 0), (4, 100), (8, 250))),
        ((5, 300), ((1, 0), (4, 100), (5, 300))),
        ((7, 200), ((1, 0), (4, 100), (7, 200))),
        ((0, 0), ((0, 0),)),
    ],
)
def test_an_assigned_epoch_removes_what_contradicts_it(
    assigned: tuple[int, int], entries: tuple[tuple[int, int], ...]
) -> None:
    """§14.3.2"""
    epochs = cache((1, 0), (4, 100), (7, 250))
    epochs.assign(*assigned)
    assert epochs.entries == entries


def test_truncation_trims_the_cache_on_either_side() -> None:
    """§14.3.4"""
    epochs = cache((1, 0), (4, 100), (7, 250))
    epochs.truncate_from_end(250)
    assert epochs.entries == ((1, 0), (4, 100))
    epochs.truncate_from_start(50)
    assert epochs.entries == ((1, 50), (4, 100))
    epochs.truncate_from_start(150)
    assert epochs.entries == ((4, 150),)
    assert [epochs.epoch_at(offset) for offset in (149, 150, 900)] == [-1, 4, 4]


def test_epochs_before_one_that_begins_at_the_log_start_go() -> None:
    epochs = cache((1, 0), (4, 100), (7, 250))
    epochs.truncate_from_start(100)
    assert epochs.entries == ((4, 100), (7, 250))


def test_file_whose_entries_do_not_rise_is_believed_from_its_end() -> None:
    assert cache((1, 0), (5, 100), (3, 200), (4, 150)).entries == ((1, 0), (4, 150))
