"""The partitions of a transaction are a set, and their bytes are those that the codec of the record makes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.transactions.entry import TransactionMetadata, TransactionState
from ottla.coordinator.transactions.participants import NO_PARTICIPANTS, Participants
from ottla.coordinator.transactions.records import build_transaction_value, by_topic, parse_transaction_value
from ottla.protocol.primitives import build_uvarint

participants = st.sets(
    st.tuples(st.sampled_from(["a", "bb", "t" * 200, "z"]), st.integers(0, 2**31 - 1) | st.integers(0, 40)), max_size=60
)


def encoded_as_defined(partitions: set[tuple[str, int]], version: int) -> bytes:
    """By the message definition, field by field."""
    topics = by_topic(frozenset(partitions))
    parts = [build_uvarint(len(topics) + 1) if version else len(topics).to_bytes(4, "big")]
    for topic, indexes in topics.items():
        name = topic.encode()
        parts += [build_uvarint(len(name) + 1) if version else len(name).to_bytes(2, "big"), name]
        parts += [build_uvarint(len(indexes) + 1) if version else len(indexes).to_bytes(4, "big")]
        parts += [index.to_bytes(4, "big") for index in indexes]
        parts += [b"\x00"] if version else []
    return b"".join(parts)


@given(st.lists(participants, max_size=5))
def test_participants_are_a_set_that_grows(steps: list[set[tuple[str, int]]]) -> None:
    model: set[tuple[str, int]] = set()
    grown = NO_PARTICIPANTS
    for added in steps:
        before, grown = grown, grown.with_added(added)
        assert before == model
        model |= added
        assert (list(grown), len(grown), grown) == (sorted(model), len(model), model)
        topics = {topic for topic, _ in model}
        assert (list(grown.topics()), grown.topic_count) == (sorted(topics), len(topics))
        assert grown.has_grown_from(before)
        assert before.has_grown_from(grown) == (before == grown)
        assert by_topic(grown) == by_topic(frozenset(model))
        for version in (0, 1):
            assert grown.encoded(version) == encoded_as_defined(model, version)


@given(participants, participants)
def test_what_has_not_grown_from_another_is_known(first: set[tuple[str, int]], second: set[tuple[str, int]]) -> None:
    assert Participants.of(first).has_grown_from(Participants.of(second)) == (first >= second)
    assert {each for each in second if each in Participants.of(first)} == first & second
    assert Participants.of(first) - Participants.of(second) == first - second


@given(participants, st.sampled_from([TransactionState.ONGOING, TransactionState.PREPARE_COMMIT]), st.integers(0, 1))
def test_their_record_is_read_as_it_was_written(
    partitions: set[tuple[str, int]], state: TransactionState, version: int
) -> None:
    metadata = TransactionMetadata(7, 1, 60_000, state, Participants.of(partitions), 5, 4)
    value = build_transaction_value(metadata, version)

    assert parse_transaction_value(value) == metadata
    assert value == build_transaction_value(parse_transaction_value(value), version)


@pytest.mark.parametrize("other", ["a", ("a", 1, 2), None, ("b", 0), ("a", 3)])
def test_what_is_no_participant_is_not_in_them(other: object) -> None:
    assert other not in Participants.of({("a", 0), ("a", 2), ("c", 3)})


def test_a_topic_that_comes_twice_in_a_record_is_one() -> None:
    assert Participants.of_topics([("b", [3, 1]), ("a", [0]), ("b", [1, 2]), ("c", [])]) == {
        ("a", 0), ("b", 1), ("b", 2), ("b", 3),
    }  # fmt: skip


def test_topics_that_do_not_change_are_shared() -> None:
    """To add a partition to a wide transaction takes no time for those of other topics."""
    wide = Participants.of((f"t{number}", number) for number in range(100))
    grown = wide.with_added([("t7", 8)])

    assert [topic for topic in wide.topics() if grown._topics[topic] is not wide._topics[topic]] == ["t7"]
