"""What is expected and changed when topics are replaced, terms begin, and deletions are seen to."""

from dataclasses import replace

from ottla.cluster.controller import CHANGES_PER_TRANSACTION
from ottla.cluster.encoding import DeletionMark, config_value, deletion_mark, deletion_value, topic_values
from ottla.cluster.image import TopicInfo
from ottla.cluster.store import ABSENT, Delete, Expect, Put
from ottla.cluster.topic_changes import (
    PARTITIONS_PER_TRANSACTION,
    TOPICS_PER_TRANSACTION,
    has_to_tidy,
    in_transactions,
    new_terms,
    replace_broker_configs,
    replace_topics,
    without_logs_on,
)
from tests.cluster.images import TOPIC_ID, image, state

REVISIONS = {"revision": 5, "configs_revision": 6}


def with_revisions(*partition_revisions: int):
    """An image with topic t, of that many partitions."""
    made = image()
    states = tuple(state(revision=revision) for revision in partition_revisions)
    return made.with_topics({"t": TopicInfo("t", TOPIC_ID, states, {"retention.ms": "1"}, **REVISIONS)})


def test_a_new_topic_expects_that_there_is_none() -> None:
    topic = TopicInfo("n", b"n" * 16, (state(), state()))
    transaction = replace_topics(image(), {"n": topic})

    assert set(transaction.changes) == {Put(key, value) for key, value in topic_values(topic).items()}
    assert transaction.expected == (Expect("topics/n", ABSENT),)


def test_growing_topic_expects_nothing_of_its_other_partitions() -> None:
    before = with_revisions(7, 8)
    topic = before.topics["t"]
    transaction = replace_topics(
        before, {"t": replace(topic, partitions=(*topic.partitions, state("1", replicas="1")))}
    )

    assert {change.key for change in transaction.changes} == {"topics/t", "partitions/t/2"}
    assert transaction.expected == (Expect("topics/t", 5),)


def test_new_configs_expect_the_old_ones() -> None:
    before = with_revisions(7)
    transaction = replace_topics(before, {"t": replace(before.topics["t"], configs={})})

    assert transaction.changes == (Put("configs/topics/t", config_value({})),)
    assert transaction.expected == (Expect("configs/topics/t", 6),)


def test_a_topic_goes_whatever_its_isr_is_and_leaves_a_mark() -> None:
    before = with_revisions(7, 8)
    mark = deletion_mark(before.topics["t"])
    transaction = replace_topics(before, {"t": None})

    assert transaction.expected == (Expect("topics/t", 5),)
    assert {change.key for change in transaction.changes if isinstance(change, Delete)} == {
        "topics/t",
        "configs/topics/t",
        "partitions/t/0",
        "partitions/t/1",
    }
    assert [change for change in transaction.changes if isinstance(change, Put)] == [
        Put(mark.key, deletion_value(mark))
    ]


def test_topic_with_another_id_comes_with_all_of_its_keys() -> None:
    """An image makes a topic of what it gets, and takes nothing from one of another id."""
    before = with_revisions(7, 8)
    topic = before.topics["t"]
    other = replace(topic, topic_id=bytes(15) + b"9", partitions=topic.partitions[:1])

    transaction = replace_topics(before, {"t": other})

    assert {change.key for change in transaction.changes if isinstance(change, Put)} == {*topic_values(other)}
    assert [each for each in transaction.changes if isinstance(each, Delete)] == [Delete("partitions/t/1")]


def test_what_stays_as_it_is_makes_no_transaction() -> None:
    before = with_revisions(7)

    assert replace_topics(before, {"t": before.topics["t"]}).changes == ()


def test_broker_configs_are_replaced_at_their_revision() -> None:
    transaction = replace_broker_configs("1", {"a": "b"}, 9)

    assert transaction.expected == (Expect("configs/brokers/1", 9),)
    assert transaction.changes == (Put("configs/brokers/1", config_value({"a": "b"})),)


def test_new_terms_fit_into_transactions_that_every_store_takes() -> None:
    count = CHANGES_PER_TRANSACTION + 1
    states = [state(leader=1, revision=index) for index in range(count)] + [state(leader=2)]
    topic = TopicInfo("t", TOPIC_ID, tuple(states))
    first, second = new_terms([topic], 1)

    assert len(first.changes) == CHANGES_PER_TRANSACTION
    assert second.expected == (Expect(f"partitions/t/{count - 1}", count - 1),)
    assert [change.key for change in (*first.changes, *second.changes)] == [f"partitions/t/{i}" for i in range(count)]
    assert b'"leader_epoch":6,"partition_epoch":10' in second.changes[0].value.replace(b" ", b"")


def test_last_broker_to_leave_a_mark_removes_it() -> None:
    two, one, none = (
        DeletionMark(bytes([n]) * 16, "t", brokers, n) for n, brokers in ((1, (1, 2)), (2, (1,)), (3, ()))
    )
    (transaction,) = without_logs_on(1, [two, one, none], registered=[1, 2])

    assert transaction.expected == (Expect(two.key, 1), Expect(one.key, 2), Expect(none.key, 3))
    assert transaction.changes == (
        Put(two.key, deletion_value(two._replace(brokers=(2,)))),
        Delete(one.key),
        Delete(none.key),
    )


def test_mark_holds_for_named_brokers_or_all_once_these_are_gone() -> None:
    mark = DeletionMark(TOPIC_ID, "t", (1, 2))

    assert has_to_tidy(1, mark, registered=[1, 2, 3])
    assert not has_to_tidy(3, mark, registered=[1, 2, 3])
    assert has_to_tidy(3, mark, registered=[3])


def test_topics_of_a_request_share_transactions_up_to_the_limit() -> None:
    few = [1] * (2 * TOPICS_PER_TRANSACTION + 1)
    assert [len(some) for some in in_transactions(few, int)] == [TOPICS_PER_TRANSACTION, TOPICS_PER_TRANSACTION, 1]

    half = PARTITIONS_PER_TRANSACTION // 2
    assert list(in_transactions([half, half, 1, half], int)) == [[half, half], [1, half]]


def test_topic_of_many_partitions_has_a_transaction_of_its_own() -> None:
    many = PARTITIONS_PER_TRANSACTION + 1

    assert list(in_transactions([1, many, 1], int)) == [[1], [many], [1]]
    assert list(in_transactions([], int)) == []
