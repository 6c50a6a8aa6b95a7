"""What a transaction has written is read when it is committed, and not when it is aborted; its offsets go with it."""

from tests.kit.suite.cases import Case
from tests.kit.suite.library import READ_COMMITTED, READ_UNCOMMITTED, Library
from tests.kit.suite.place import Place, Seen


def test_aborted_records_are_not_read(place: Place, library: Library, case: Case, seen: Seen) -> None:
    place.create(case.partitions)
    for name, commits in (("first", True), ("ghost", False), ("second", True)):
        library.transact(f"{place.topic}-till", place.topic, case.records(name), commits=commits)

    reads = library.consume([place.topic], place.group, 2 * case.count, isolation=READ_COMMITTED)

    wanted = {each.value for name in ("first", "second") for each in case.records(name)}
    assert {each.value for each in reads} == wanted
    everything = library.consume([place.topic], f"{place.group}-dirty", 3 * case.count, isolation=READ_UNCOMMITTED)
    assert {each.value for each in everything} - wanted == {each.value for each in case.records("ghost")}
    seen(sorted((each.partition, each.offset, each.value) for each in reads))


def test_offsets_are_committed_with_their_transaction(place: Place, library: Library, case: Case, seen: Seen) -> None:
    shipped = f"{place.topic}-shipped"
    place.create(case.partitions)
    place.create(case.partitions, shipped)
    library.send(place.topic, case.records())
    found: list[int | None] = []

    for offset, commits in ((1, False), (2, True)):
        read = (place.group, place.topic, {0: offset})
        library.transact(f"{place.topic}-copy", shipped, case.records(), commits=commits, read=read)
        found.append(library.committed(place.topic, place.group, 0))

    assert found == [None, 2]
    reads = library.consume([shipped], f"{place.group}-after", case.count, isolation=READ_COMMITTED)
    assert sorted(each.value for each in reads if each.value) == sorted(
        each.value for each in case.records() if each.value
    )
    seen([found, sorted((each.partition, each.offset) for each in reads)])
