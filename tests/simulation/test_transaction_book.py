"""What the book of transactions lets readers miss, and what not (I-8, I-22, I-24)."""

import pytest

from tests.simulation.judge import Judge
from tests.simulation.trace import Trace
from tests.simulation.transaction_book import NEVER, Line, Transaction, TransactionBook

PARTITION = ("payments", 0)
ID = "pay"


@pytest.fixture
def judge() -> Judge:
    return Judge(Trace(lambda: 0))


def book_of(judge: Judge, *, loses_records: bool = True) -> TransactionBook:
    book = TransactionBook(judge, [PARTITION], loses_records=loses_records)
    book.lines[ID] = Line()
    book.handed_out(ID, (1, 0), (-1, -1))
    return book


def committed(book: TransactionBook, offset: int, key: bytes = b"k") -> Transaction:
    transaction = book.begin(ID, (1, 0))
    values = book.write(transaction, PARTITION, [key])
    book.written_at(PARTITION, values, offset)
    book.ask_to_end(transaction, commit=True)
    book.ended(transaction, commit=True)
    return transaction


def violated(judge: Judge) -> list[str]:
    return [violation.partition(":")[0] for violation in judge.violations]


def test_committed_record_that_is_missing_is_found(judge: Judge) -> None:
    book = book_of(judge)
    committed(book, 5)

    book.judge_all({PARTITION: 5}, is_compacted=False)

    assert violated(judge) == ["I-22"]


def test_deleted_record_is_not_missed(judge: Judge) -> None:
    book = book_of(judge)
    committed(book, 5)

    book.judge_all({PARTITION: 6}, is_compacted=False)

    assert violated(judge) == []


def test_of_a_key_the_latest_committed_record_must_be_there(judge: Judge) -> None:
    book = book_of(judge)
    committed(book, 5)
    last = committed(book, 7)

    book.judge_all({}, is_compacted=True)

    assert violated(judge) == ["I-22"]
    assert str(last) in judge.violations[0]


def test_what_was_seen_before_the_end_must_be_there_in_the_end(judge: Judge) -> None:
    book = book_of(judge)
    (value,) = committed(book, 5).written
    book.see("reader", PARTITION, 5, value, at_the_end=False)

    book.judge_all({}, is_compacted=False)

    assert violated(judge) == ["I-22"]


@pytest.mark.parametrize("commit", [True, False])
def test_end_that_a_replaced_producer_gets_is_found(judge: Judge, commit: bool) -> None:
    book = book_of(judge)
    transaction = book.begin(ID, (1, 0))
    book.handed_out(ID, (1, 1), (1, 0))

    book.ask_to_end(transaction, commit=commit)
    assert violated(judge) == []
    book.ended(transaction, commit=commit)

    assert violated(judge) == ["I-8"]


@pytest.mark.parametrize(
    ("offsets", "values", "is_found"),
    [(range(4, 8), set(), True), (range(4, 8), {"1/0"}, False), (range(6, 8), set(), False)],
    ids=["missing", "there", "not passed"],
)
def test_answer_that_passes_a_committed_record_has_it(
    judge: Judge, offsets: range, values: set[str], is_found: bool
) -> None:
    book = book_of(judge, loses_records=False)
    committed(book, 5)

    book.passed("reader", PARTITION, offsets, values)

    assert violated(judge) == (["I-22"] if is_found else [])


def test_answer_may_pass_a_record_that_is_not_committed(judge: Judge) -> None:
    book = book_of(judge, loses_records=False)
    book.written_at(PARTITION, book.write(book.begin(ID, (1, 0)), PARTITION, [b"k"]), 5)

    book.passed("reader", PARTITION, range(4, 8), set())

    assert violated(judge) == []


def test_offset_is_pending_until_an_end_is_asked_for(judge: Judge) -> None:
    book = book_of(judge)
    transaction = book.begin(ID, (1, 0))
    assert book.pending_offsets(ID) == []
    transaction.has_pending_offset = True
    assert book.pending_offsets(ID) == [transaction]

    book.ask_to_end(transaction, commit=True)

    assert book.pending_offsets(ID) == []


@pytest.mark.parametrize(("loses_records", "possible"), [(True, {1, 2}), (False, {1})])
def test_offset_in_doubt_may_be_there_where_records_go(judge: Judge, loses_records: bool, possible: set[int]) -> None:
    book = book_of(judge, loses_records=loses_records)
    committed(book, 5).commits_offset = True
    doubtful = book.begin(ID, (1, 0))
    doubtful.commits_offset = True
    book.ask_to_end(doubtful, commit=True)

    assert book.last_offsets(ID) == possible


def test_without_a_committed_offset_there_is_none(judge: Judge) -> None:
    assert book_of(judge).last_offsets(ID) == {NEVER}


def test_producer_id_after_a_rollover_may_be_smaller(judge: Judge) -> None:
    """Each broker has a block of ids."""
    book = book_of(judge)
    book.handed_out(ID, (1, 5), (1, 0))

    book.handed_out(ID, (0, 0), (1, 5))
    assert violated(judge) == []

    book.handed_out(ID, (1, 5), (0, 0))
    assert violated(judge) == ["I-8"]


def test_producer_id_of_another_transactional_id_is_found(judge: Judge) -> None:
    book = book_of(judge)
    book.lines["other"] = Line()

    book.handed_out("other", (1, 1), (-1, -1))

    assert violated(judge) == ["I-8"]


def test_record_without_its_marker_may_be_read(judge: Judge) -> None:
    book = book_of(judge)
    aborted = book.begin(ID, (1, 0))
    (value,) = book.write(aborted, PARTITION, [b"k"])
    book.undecided_in = lambda partition: {5}

    book.see("reader", PARTITION, 5, value, at_the_end=True)
    assert violated(judge) == []
    book.see("reader", PARTITION, 6, value, at_the_end=True)
    assert violated(judge) == ["I-21"]


def copied(book: TransactionBook, *inputs: range) -> None:
    book.lines["copy"] = Line(copies=True)
    book.handed_out("copy", (2, 0), (-1, -1))
    for each in inputs:
        transaction = book.begin("copy", (2, 0))
        transaction.inputs = each
        book.ask_to_end(transaction, commit=True)
        book.ended(transaction, commit=True)


@pytest.mark.parametrize(
    ("inputs", "offset", "is_wrong"),
    [
        ([range(2), range(2, 3)], 3, False),
        ([], -1, False),
        ([range(2), range(1, 3)], 3, True),
        ([range(2), range(2)], 2, True),
        ([range(2), range(3, 4)], 4, True),
        ([range(2)], 3, True),
        ([range(2)], -1, True),
    ],
    ids=["once", "nothing", "overlapping", "twice", "one left out", "offset too far", "no offset"],
)
def test_inputs_are_copied_once(judge: Judge, inputs: list[range], offset: int, is_wrong: bool) -> None:
    book = book_of(judge)
    copied(book, *inputs)
    aborted = book.begin("copy", (2, 0))
    aborted.inputs = range(9)

    assert (book.wrong_copy("copy", offset) is not None) is is_wrong


@pytest.mark.parametrize("loses_records", [True, False])
def test_copy_in_doubt_counts_if_it_was_seen(judge: Judge, loses_records: bool) -> None:
    book = book_of(judge, loses_records=loses_records)
    copied(book, range(2))
    doubtful = book.begin("copy", (2, 0))
    doubtful.inputs = range(2, 4)
    book.ask_to_end(doubtful, commit=True)

    assert (book.wrong_copy("copy", 4) is None) is loses_records
    doubtful.seen.add("x")
    assert book.wrong_copy("copy", 4) is None
    assert book.wrong_copy("copy", 2) is not None
