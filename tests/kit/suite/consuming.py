"""Members of groups get each record once, commit, and go on from there."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.kit.suite.cases import Case
from tests.kit.suite.library import WITHIN_S, Follower, Library, Read
from tests.kit.suite.place import Place, Seen
from tests.waiting import wait_for


def plain(reads: list[Read]) -> list[tuple[int, int, bytes | None]]:
    return sorted((each.partition, each.offset, each.value) for each in reads)


def committed(library: Library, place: Place, case: Case) -> list[int | None]:
    return [library.committed(place.topic, place.group, partition) for partition in range(case.partitions)]


def ends(case: Case) -> list[int]:
    """Of the partitions, when `case.records` are all there is."""
    return [len(range(partition, case.count, case.partitions)) for partition in range(case.partitions)]


def test_group_reads_all_and_commits_the_end(place: Place, library: Library, case: Case, seen: Seen) -> None:
    place.create(case.partitions)
    library.send(place.topic, case.records())

    reads = library.consume([place.topic], place.group, case.count)

    assert plain(reads) == case.written()
    assert committed(library, place, case) == ends(case)
    seen(plain(reads))


def test_group_goes_on_from_what_it_committed(place: Place, library: Library, case: Case, seen: Seen) -> None:
    place.create(case.partitions)
    library.send(place.topic, case.records())

    first = library.consume([place.topic], place.group, case.count // 2)
    second = library.consume([place.topic], place.group, case.count - case.count // 2)

    assert plain(first + second) == case.written()
    assert committed(library, place, case) == ends(case)
    seen(plain(first + second))


def test_uncommitted_records_come_again(place: Place, library: Library, case: Case, seen: Seen) -> None:
    place.create(case.partitions)
    library.send(place.topic, case.records())

    for _ in range(2):
        reads = library.consume([place.topic], place.group, case.count, commits=False)
        assert plain(reads) == case.written()

    assert committed(library, place, case) == [None] * case.partitions
    seen(plain(reads))


def test_groups_do_not_share_their_offsets(place: Place, library: Library, case: Case, seen: Seen) -> None:
    place.create(case.partitions)
    library.send(place.topic, case.records())

    reads = [library.consume([place.topic], f"{place.group}{name}", case.count) for name in ("-a", "-b")]

    assert [plain(each) for each in reads] == [case.written()] * 2
    assert committed(library, place, case) == [None] * case.partitions
    seen([plain(each) for each in reads])


@contextmanager
def followers(library: Library, place: Place) -> Iterator[tuple[Follower, Follower]]:
    two = Follower(), Follower()
    threads = [threading.Thread(target=library.follow, args=(place.topic, place.group, each)) for each in two]
    for thread in threads:
        thread.start()
    try:
        yield two
    finally:
        for each in two:
            each.over.set()
        for thread in threads:
            thread.join()


def test_two_members_share_the_partitions(place: Place, library: Library, case: Case, seen: Seen) -> None:
    partitions = case.partitions + 1
    place.create(partitions)

    with followers(library, place) as (first, second):

        def share_all() -> bool:
            parts = first.assigned, second.assigned
            return all(parts) and sum(map(len, parts)) == len(parts[0] | parts[1]) == partitions

        wait_for(share_all, WITHIN_S, lambda: f"{first.assigned} and {second.assigned}")
        library.send(place.topic, case.records())
        wait_for(lambda: len(first.reads + second.reads) >= case.count, WITHIN_S, "not all records came")
        sizes = sorted((len(first.assigned), len(second.assigned)))

    assert plain(first.reads + second.reads) == case.written()
    assert not {each.partition for each in first.reads} & {each.partition for each in second.reads}
    seen([sizes, plain(first.reads + second.reads)])


def test_reader_begins_where_it_says(place: Place, library: Library, case: Case, seen: Seen) -> None:
    place.create(case.partitions)
    library.send(place.topic, case.records())
    last = case.partitions - 1
    end = ends(case)[last]

    reads = library.read(place.topic, last, end - 2, 2)

    assert plain(reads) == [each for each in case.written() if each[0] == last][-2:]
    seen(plain(reads))


def test_member_begins_at_offsets_that_were_set(place: Place, library: Library, case: Case, seen: Seen) -> None:
    place.create(case.partitions)
    library.send(place.topic, case.records())

    library.commit(place.topic, place.group, dict.fromkeys(range(case.partitions), 1))

    reads = library.consume([place.topic], place.group, case.count - case.partitions)
    assert plain(reads) == [each for each in case.written() if each[1] >= 1]
    assert committed(library, place, case) == ends(case)
    seen(plain(reads))


def test_one_group_reads_two_topics(place: Place, library: Library, case: Case, seen: Seen) -> None:
    topics = [place.topic, f"{place.topic}-more"]
    for topic in topics:
        place.create(case.partitions, topic)
        library.send(topic, case.records(topic))

    reads = library.consume(topics, place.group, 2 * case.count)

    for topic in topics:
        assert plain([each for each in reads if each.topic == topic]) == case.written(topic)
    # Names of topics are the suite's only under Ottla.
    seen(sorted((topics.index(each.topic), each.partition, each.offset) for each in reads))
