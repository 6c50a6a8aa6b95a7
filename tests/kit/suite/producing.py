"""What producers write is there, in its place and as it was."""

import time

from tests.kit.suite.cases import Case
from tests.kit.suite.library import Library, Read, Sent
from tests.kit.suite.place import Place, Seen


def all_of(library: Library, place: Place, case: Case) -> list[Read]:
    """Each partition from its begin to its end, without a group."""
    reads: list[Read] = []
    for partition in range(case.partitions):
        first, end = library.bounds(place.topic, partition)
        reads += library.read(place.topic, partition, first, end - first) if end > first else []
    return reads


def plain(reads: list[Read]) -> list[tuple[int, int, bytes | None]]:
    return sorted((each.partition, each.offset, each.value) for each in reads)


def test_records_keep_the_order_of_their_partition(place: Place, library: Library, case: Case, seen: Seen) -> None:
    place.create(case.partitions)

    placed = library.send(place.topic, case.records())

    reads = all_of(library, place, case)
    assert plain(reads) == case.written()
    assert sorted(placed) == [(partition, offset) for partition, offset, _ in case.written()]
    seen(plain(reads))


def test_equal_keys_share_a_partition(place: Place, library: Library, case: Case, seen: Seen) -> None:
    place.create(case.partitions)
    keys = [b"alice", b"bob", b"carol"]

    library.send(place.topic, [Sent(b"%d" % number, keys[number % 3]) for number in range(case.count)])

    reads = all_of(library, place, case)
    for key in keys:
        mine = sorted(each for each in reads if each.key == key)
        assert len({each.partition for each in mine}) == 1
        assert [each.value for each in mine] == [b"%d" % n for n in range(case.count) if keys[n % 3] == key]
    seen(plain(reads))


def test_headers_and_missing_values_come_back(place: Place, library: Library, case: Case, seen: Seen) -> None:
    place.create(1)
    headers = (("trace", b"%d" % case.count), ("trace", b"again"), ("empty", b""))

    library.send(place.topic, [Sent(None, b"key", 0, headers), Sent(b"", b"key", 0)])

    tombstone, empty = library.read(place.topic, 0, 0, 2)
    assert (tombstone.value, tombstone.key, tombstone.headers) == (None, b"key", headers)
    assert (empty.value, empty.key, empty.headers) == (b"", b"key", ())
    seen([list(map(list, tombstone.headers)), tombstone.offset, empty.offset])


def test_compressed_records_come_back(place: Place, library: Library, case: Case, seen: Seen) -> None:
    place.create(case.partitions)
    values = [b"%d " % number * 200 for number in range(case.count)]

    library.send(place.topic, [Sent(each, partition=0) for each in values], compression=case.codec)

    reads = library.read(place.topic, 0, 0, case.count)
    assert [each.value for each in reads] == values
    assert [each.offset for each in reads] == list(range(case.count))
    seen([each.offset for each in reads])


def test_idempotent_producers_write_each_record_once(place: Place, library: Library, case: Case, seen: Seen) -> None:
    """Two of them, one after the other: each has an id of its own, and begins at sequence 0."""
    place.create(case.partitions)

    for name in ("first", "second"):
        library.send(place.topic, case.records(name), idempotent=True)

    reads = all_of(library, place, case)
    assert len(reads) == 2 * case.count
    assert {each.value for each in reads} == {each.value for name in ("first", "second") for each in case.records(name)}
    seen(plain(reads))


def test_records_go_where_they_are_sent(place: Place, library: Library, case: Case, seen: Seen) -> None:
    place.create(case.partitions + 1)

    library.send(place.topic, [Sent(b"%d" % number, partition=case.partitions) for number in range(case.count)])

    bounds = [library.bounds(place.topic, partition) for partition in range(case.partitions + 1)]
    assert bounds == [(0, 0)] * case.partitions + [(0, case.count)]
    seen(bounds)


def test_timestamps_find_their_records(place: Place, library: Library, case: Case, seen: Seen) -> None:
    place.create(1)
    began_ms = int(time.time() * 1000) - 60_000

    library.send(place.topic, [Sent(b"x", None, 0, (), began_ms + 1000 * number) for number in range(case.count)])

    asked = (began_ms - 5, began_ms + 1000, began_ms + 1001, began_ms + 1000 * case.count)
    found = [library.offset_at(place.topic, 0, at_ms) for at_ms in asked]
    assert found == [0, 1, 2, None]
    seen(found)
