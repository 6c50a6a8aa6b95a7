"""The image kept up to date by changes is the image read again, and shares with the one before what has not changed."""

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cluster.encoding import (
    CONTROLLER,
    LOG_ENDS,
    PRODUCER_IDS,
    config_value,
    controller_value,
    log_ends_value,
    partition_key,
    partition_value,
    registration_value,
    session_value,
    topic_values,
)
from ottla.cluster.image import NO_LEADER, BrokerState, LogEnd, MetadataImage, TopicInfo
from ottla.cluster.overlay import Overlay
from ottla.cluster.store import Changes, Delete, Entry, Put, Snapshot, StoreError
from ottla.cluster.updates import applied
from tests.cluster.images import TOPIC_ID, broker, image, state

EMPTY = MetadataImage("c", NO_LEADER)
NAMES = ("a", "b")


def topic(name: str, count: int, number: int = 1) -> TopicInfo:
    return TopicInfo(name, bytes([number]) * 16, (state(),) * count)


def puts(values: dict[str, bytes], revision: int = 1) -> Changes:
    return Changes(revision, tuple(Entry(key, value, revision) for key, value in values.items()), ())


def test_changed_partition_leaves_the_others_as_they_are() -> None:
    before = applied(EMPTY, puts(topic_values(topic("a", 3)) | topic_values(topic("b", 1, 2)))).image
    update = applied(before, puts({partition_key("a", 1): partition_value(state("12"))}, 7))

    assert update.topics == {"a": (1,)}
    assert update.image.topics["b"] is before.topics["b"]
    old, new = before.topics["a"].partitions, update.image.topics["a"].partitions
    assert (new[0] is old[0], new[1].isr, new[1].revision, new[2] is old[2]) == (True, (1, 2), 7, True)
    assert update.image.topics_by_id[b"\1" * 16] is update.image.topics["a"]
    assert before.topics["a"].partitions == (state(),) * 3


def test_a_topic_grows_and_goes_and_comes_again() -> None:
    image = applied(EMPTY, puts(topic_values(topic("a", 1)))).image
    grown = applied(image, puts(topic_values(topic("a", 3)), 2))
    assert (len(grown.image.topics["a"].partitions), grown.topics) == (3, {"a": (1, 2)})
    name = "topics/a"
    shrunk = applied(grown.image, Changes(3, (Entry(name, topic_values(topic("a", 2))[name], 3),), ("partitions/a/2",)))
    assert (len(shrunk.image.topics["a"].partitions), shrunk.topics) == (2, {"a": (2,)})

    gone = applied(grown.image, Changes(3, (), tuple(topic_values(topic("a", 3)))))
    assert (dict(gone.image.topics), dict(gone.image.topics_by_id), gone.topics) == ({}, {}, {"a": (0, 1, 2)})

    again = applied(gone.image, puts(topic_values(topic("a", 1, 9)), 4))
    assert again.image.topic_by_id(b"\x09" * 16) == topic("a", 1, 9)


def test_configs_are_taken_over() -> None:
    image = applied(EMPTY, puts(topic_values(topic("a", 1)))).image
    update = applied(image, puts({"configs/topics/a": config_value({"retention.ms": "1"})}, 5))
    changed = update.image.topics["a"]
    assert (changed.configs, changed.configs_revision, changed.revision) == ({"retention.ms": "1"}, 5, 1)
    assert update.topics == {"a": ()}


def test_damage_is_an_error_and_not_a_guess() -> None:
    with pytest.raises(StoreError, match="brokers/1"):
        applied(EMPTY, puts({"brokers/1": b"{}"}))
    with pytest.raises(StoreError, match="sessions/1"):
        applied(EMPTY, puts({"sessions/1": b"{}"}))


def test_a_session_counts_only_for_its_own_incarnation() -> None:
    image = applied(EMPTY, puts({"brokers/1": registration_value(broker(1))})).image
    stranger = applied(image, puts({"sessions/1": session_value("other", BrokerState.ACTIVE)}, 2)).image
    assert stranger.brokers[1].state is BrokerState.FENCED
    own = applied(image, puts({"sessions/1": session_value("i1", BrokerState.ACTIVE)}, 2))
    assert (own.image.brokers[1].state, own.image.brokers[1].session_revision, own.brokers) == (
        BrokerState.ACTIVE,
        2,
        (1,),
    )


@st.composite
def transactions(draw):
    changes = []
    kind = draw(st.sampled_from(["topic", "partition", "delete", "broker", "session", "end", "controller", "lost"]))
    name, node = draw(st.sampled_from(NAMES)), draw(st.integers(1, 3))
    match kind:
        case "topic":
            values = topic_values(topic(name, draw(st.integers(1, 3)), NAMES.index(name) + 1))
            changes = [Put(key, value) for key, value in values.items()]
        case "partition":
            changes = [("state", name, draw(st.integers(0, 2)), draw(st.sampled_from(["1", "12", "123"])))]
        case "delete":
            changes = [("delete", name)]
        case "broker":
            incarnation = draw(st.sampled_from("xy"))
            value = registration_value(broker(node, incarnation=incarnation))
            session = session_value(incarnation, BrokerState.STARTING)
            changes = [Put(f"brokers/{node}", value), Put(f"sessions/{node}", session)]
            changes += [Put(f"lost-data/{node}", b"{}")] if draw(st.booleans()) else [Delete(f"lost-data/{node}")]
        case "session":
            changes = [Put(f"sessions/{node}", session_value(draw(st.sampled_from("xy")), BrokerState.ACTIVE))]
        case "end":
            changes = [Delete(f"sessions/{node}"), Delete(CONTROLLER)]
        case "controller":
            changes = [Put(CONTROLLER, controller_value(node))]
        case "lost":
            changes = [Delete(f"lost-data/{node}")]
    return changes


@settings(max_examples=150, deadline=None)
@given(st.lists(transactions(), max_size=25))
def test_changes_one_by_one_make_what_reading_again_makes(history: list) -> None:
    keys: dict[str, Entry] = {}
    image = EMPTY
    for revision, wished in enumerate(history, 1):
        changes = []
        for change in wished:
            if change[0] == "delete":
                prefixes = (f"topics/{change[1]}", f"partitions/{change[1]}/", f"configs/topics/{change[1]}")
                changes += [Delete(key) for key in keys if key.startswith(prefixes)]
            elif change[0] == "state":
                key = partition_key(change[1], change[2])
                changes += [Put(key, partition_value(state(change[3])))] if key in keys else []
            elif isinstance(change, Put) and change.key.startswith("topics/") and change.key in keys:
                break
            elif isinstance(change, Put) or change.key in keys:
                changes.append(change)
        if not changes or session_of_a_stranger(changes, keys):
            continue
        for change in changes:
            if isinstance(change, Put):
                keys[change.key] = Entry(change.key, change.value, revision)
            else:
                del keys[change.key]
        entries = tuple(keys[change.key] for change in changes if isinstance(change, Put))
        gone = tuple(change.key for change in changes if isinstance(change, Delete))
        image = applied(image, Changes(revision, entries, gone)).image

        fresh = applied(EMPTY, Snapshot([keys[key] for key in sorted(keys)], revision)).image
        assert (dict(image.topics), dict(image.brokers)) == (dict(fresh.topics), dict(fresh.brokers))
        assert (image.controller_id, image.controller_epoch) == (fresh.controller_id, fresh.controller_epoch)
        assert dict(image.topics_by_id) == {each.topic_id: each for each in image.topics.values()}
        over = applied(replace(image, revision=0), Snapshot([keys[key] for key in sorted(keys)], revision))
        assert (dict(over.topics), over.brokers) == ({}, ())


def session_of_a_stranger(changes: list, keys: dict[str, Entry]) -> bool:
    """Sessions are put with or after their registration, never for another incarnation's."""
    (first, *more) = changes
    if more or not isinstance(first, Put) or not first.key.startswith("sessions/"):
        return False
    registered = keys.get(first.key.replace("sessions/", "brokers/"))
    incarnation = json.loads(first.value)["incarnation"]
    return registered is None or json.loads(registered.value)["incarnation"] != incarnation


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5) | st.none()), max_size=300))
def test_an_overlay_is_a_dict(changes: list[tuple[int, int | None]]) -> None:
    expected: dict[int, int] = {}
    overlay: Overlay[int, int] = Overlay()
    kept = overlay
    for key, value in changes:
        overlay = overlay.with_changes({key: value})
        if value is None:
            expected.pop(key, None)
        else:
            expected[key] = value
        assert (overlay.get(key), len(overlay)) == (value, len(expected))
    assert dict(overlay) == expected
    assert len(list(overlay)) == len(expected)
    assert dict(kept) == {}


def test_copies_of_a_large_overlay_share_what_has_not_changed() -> None:
    overlay = Overlay({number: number for number in range(10_000)})
    rng = random.Random(1)
    for _ in range(100):
        after = overlay.with_changes({rng.randrange(10_000): -1})
        assert after._base is overlay._base
        overlay = after


def test_log_ends_are_of_a_broker_as_long_as_their_key_is_there() -> None:
    reported = {(TOPIC_ID, 3): LogEnd(5, 10, ((3, 0), (4, 7))), (TOPIC_ID, 4): LogEnd(5, 0)}
    before = image(state())
    key = f"{LOG_ENDS}2"

    after = applied(before, Changes(1001, (Entry(key, log_ends_value(reported), 1001),), ()))
    gone = applied(after.image, Changes(1002, (), (key,)))

    assert (after.image.brokers[2].log_ends, after.brokers) == (reported, (2,))
    assert (gone.image.brokers[2].log_ends, gone.brokers) == ({}, (2,))


def test_the_next_producer_id_is_that_of_its_key() -> None:
    claimed = applied(EMPTY, puts({PRODUCER_IDS: b"1000"})).image
    read_again = applied(claimed, Snapshot((Entry(PRODUCER_IDS, b"2000", 2),), 2)).image

    assert (claimed.next_producer_id, read_again.next_producer_id) == (1000, 2000)
    assert applied(claimed, Changes(3, (), (PRODUCER_IDS,))).image.next_producer_id == 0
    assert applied(claimed, Snapshot((), 3)).image.next_producer_id == 0
    with pytest.raises(StoreError, match="producer-ids is damaged"):
        applied(EMPTY, puts({PRODUCER_IDS: b"many"}))
