"""Tests that begin with what seed.json says, change it, and must not be met by each other. Ottla's alone."""

from tests.kit.suite.cases import Case
from tests.kit.suite.library import Library, Sent
from tests.kit.suite.place import Place, Seen

BOOKS, PENS = 6, 4


def test_seeded_group_goes_on_from_its_offsets(place: Place, library: Library, case: Case, seen: Seen) -> None:
    library.send("stock", [Sent(b"cup %d" % number, partition=1) for number in range(case.count)])

    reads = library.consume(["stock"], "auditors", BOOKS - 4 + PENS - 1 + case.count)

    values = sorted(each.value for each in reads if each.value)
    cups = [b"cup %d" % number for number in range(case.count)]
    assert values == sorted([b"book 4", b"book 5", b"pen 1", b"pen 2", b"pen 3", *cups])
    assert [library.committed("stock", "auditors", partition) for partition in (0, 1)] == [BOOKS, PENS + case.count]
    seen([(each.partition, each.offset) for each in sorted(reads)])


def test_seeded_topic_is_as_the_seed_says(place: Place, library: Library, case: Case, seen: Seen) -> None:
    bounds = [library.bounds("stock", partition) for partition in (0, 1)]
    assert bounds == [(0, BOOKS), (0, PENS)]
    assert [library.committed("stock", "auditors", partition) for partition in (0, 1)] == [4, 1]

    match case.partitions:
        case 1:
            library.delete_topic("stock")
        case 2:
            library.delete_records("stock", 0, 3)
            library.commit("stock", "auditors", {0: 0, 1: 0})
        case _:
            library.grow("stock", 5)
    seen(bounds)
