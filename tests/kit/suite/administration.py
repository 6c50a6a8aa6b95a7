"""Topics that grow, lose their beginning, and are made again, by the admin clients."""

from tests.kit.suite.cases import Case
from tests.kit.suite.library import WITHIN_S, Library, Sent
from tests.kit.suite.place import Place, Seen
from tests.waiting import wait_for


def test_topic_that_grows_takes_records_in_its_new_place(
    place: Place, library: Library, case: Case, seen: Seen
) -> None:
    place.create(case.partitions)
    library.send(place.topic, case.records())

    library.grow(place.topic, case.partitions + 2)
    wait_for(lambda: library.partitions(place.topic) == case.partitions + 2, WITHIN_S, "the topic did not grow")
    library.send(place.topic, [Sent(b"new", partition=case.partitions + 1)])

    (read,) = library.read(place.topic, case.partitions + 1, 0, 1)
    assert read.value == b"new"
    bounds = [library.bounds(place.topic, partition) for partition in range(case.partitions + 2)]
    assert sum(end for _, end in bounds) == case.count + 1
    seen(bounds)


def test_deleted_records_are_gone(place: Place, library: Library, case: Case, seen: Seen) -> None:
    place.create(1)
    library.send(place.topic, [Sent(b"%d" % number, partition=0) for number in range(case.count)])

    library.delete_records(place.topic, 0, case.count - 2)

    assert library.bounds(place.topic, 0) == (case.count - 2, case.count)
    reads = library.consume([place.topic], place.group, 2)
    assert [each.value for each in reads] == [b"%d" % (case.count - 2), b"%d" % (case.count - 1)]
    seen([each.offset for each in reads])


def test_topic_that_is_made_again_is_empty(place: Place, library: Library, case: Case, seen: Seen) -> None:
    place.create(case.partitions)
    library.send(place.topic, case.records("old"))

    library.delete_topic(place.topic)
    place.wait_until_gone()
    place.create(1)
    library.send(place.topic, [Sent(b"new", partition=0)])

    assert library.bounds(place.topic, 0) == (0, 1)
    (read,) = library.read(place.topic, 0, 0, 1)
    assert read.value == b"new"
    seen([read.offset, library.partitions(place.topic)])
