"""What the recorder keeps of requests whose answers come in another shape than most."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.coordinator.facts import MemberJoined
from ottla.protocol.records.batch import BATCH_HEADER_SIZE
from ottla.testing.audit import committing, ledger
from ottla.testing.audit import recorder as recording
from ottla.testing.audit.history import NO_ANSWER, SentBatch
from ottla.testing.audit.ledger import BATCHES_MAX, HEADER_FROM, SentBatches
from ottla.testing.audit.recorder import Recorder
from ottla.testing.wire import ConnectionNotes, WireEvent, WireRing
from tests.audit.workload import records


def connection(**fields: Any) -> Any:
    transport = SimpleNamespace(get_write_buffer_size=lambda: 0)
    given = {"last_event_ns": 1, "parked": (), "peer_host": "here", "is_closed": False, "transport": transport}
    return SimpleNamespace(**(given | fields))


def recorder() -> Recorder:
    topic = SimpleNamespace(partitions=[1, 1])
    image: Any = SimpleNamespace(topic={"t": topic}.get, name_of=lambda _: "")
    return Recorder(WireRing(), lambda: image, {}, lambda _: ())


def request(*indexes: int) -> Any:
    parts = [SimpleNamespace(index=index, records=memoryview(records([b"%d" % index]))) for index in indexes]
    return SimpleNamespace(acks=-1, topic_data=[SimpleNamespace(name="t", topic_id=b"", partition_data=parts)])


def response(*answers: tuple[int, int, int]) -> Any:
    """Of each partition its index, offset and error."""
    parts = [SimpleNamespace(index=index, base_offset=offset, error_code=error) for index, offset, error in answers]
    return SimpleNamespace(responses=[SimpleNamespace(partition_responses=parts)])


def exchange(made: Recorder, asked: Any, answered: Any, client: Any = None) -> list[SentBatch]:
    event = WireEvent(sys.maxsize, ConnectionNotes("a", "", "a"), "Produce", 9, "")
    made.asked(event, connection() if client is None else client, asked)
    made.answered(event, answered)
    made.note_answers()
    return list(made.batches)


def test_answers_belong_to_their_batches() -> None:
    found = exchange(recorder(), request(0, 1), response((0, 5, 0), (1, -1, 3)))

    assert [(each.offset, each.error) for each in found] == [(5, 0), (-1, 3)]


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        (request(0, 1), response((1, 5, 0), (0, 6, 0))),
        (request(0, 0, 1), response((0, 5, 0), (1, 6, 0))),
    ],
    ids=["in another order", "a partition is named twice"],
)
def test_answers_that_do_not_fit_leave_doubt(asked: Any, answered: Any) -> None:
    assert {each.error for each in exchange(recorder(), asked, answered)} == {NO_ANSWER}


def test_write_that_fails_after_the_answer_is_seen() -> None:
    """The answer is changed until the end of the event."""
    made, answer = recorder(), response((0, 5, 0))
    event = WireEvent(sys.maxsize, ConnectionNotes("a", "", "a"), "Produce", 9, "")
    made.asked(event, connection(), request(0))
    made.answered(event, answer)
    answer.responses[0].partition_responses[0].error_code = 56
    made.note_answers()

    assert [each.error for each in made.batches] == [56]


def test_parked_request_is_kept_before_its_answer_comes() -> None:
    made, event = recorder(), WireEvent(sys.maxsize, ConnectionNotes("a", "", "a"), "Produce", 9, "")
    made.asked(event, connection(), request(0, 1))
    made.unanswered(event)
    assert [(each.partition, each.error) for each in made.batches] == [(0, NO_ANSWER), (1, NO_ANSWER)]

    made.answered(event, response((0, 5, 0), (1, 6, 0)))
    made.note_answers()

    assert [(each.offset, each.error) for each in made.batches] == [(5, 0), (6, 0)]
    assert not made.has_disorder


def test_parked_request_is_kept_before_earlier_ones() -> None:
    """Those whose batches are being written come after it, and say so."""
    made, notes = recorder(), ConnectionNotes("a", "", "a")
    first, parked = (WireEvent(sys.maxsize - 1 + number, notes, "Produce", 9, "") for number in (0, 1))
    made.asked(first, connection(), request(0))
    made.answered(first, response((0, 5, 0)))
    made.asked(parked, connection(), request(0))
    made.unanswered(parked)
    made.note_answers()

    assert [each.at_ns for each in made.batches] == [parked.at_ns, first.at_ns]
    assert made.has_disorder


def test_answer_without_partitions_leaves_doubt() -> None:
    (batch,) = exchange(recorder(), request(0), SimpleNamespace(responses=[]))

    assert batch.error == NO_ANSWER


@pytest.mark.parametrize(
    ("fields", "confirmed"),
    [({}, True), ({"is_closed": True}, False), ({"parked": (1,)}, False)],
    ids=["open", "closed", "it waits behind another"],
)
def test_open_connection_has_its_answers(fields: dict[str, Any], confirmed: bool) -> None:
    made = recorder()
    made._wire.count = 1
    (batch,) = exchange(made, request(0), response((0, 5, 0)), connection(**fields))
    made.confirm_open()

    assert made.connections[0].has_got(batch.answered) == confirmed


def test_commits_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "KEPT_MAX", 2)
    made = recorder()
    part = SimpleNamespace(partition_index=0, committed_offset=1, error_code=0)
    named = [SimpleNamespace(name="t", partitions=[part])]
    commit = SimpleNamespace(group_id="g", member_id="m", generation_id_or_member_epoch=1, topics=named)
    for _ in range(5):
        event = WireEvent(sys.maxsize, ConnectionNotes("a", "", "a"), "OffsetCommit", 8, "")
        made.asked(event, connection(), commit)
        made.answered(event, SimpleNamespace(topics=named))

    assert (len(made.commits.commits), made.commits.overflow) == (2, 3)


def test_batches_are_bounded() -> None:
    batches, header = SentBatches(), bytes(BATCH_HEADER_SIZE - HEADER_FROM)
    for _ in range(BATCHES_MAX + 5):
        batches.add((header, 0, 0, -1, 0))

    assert (len(batches), batches.overflow) == (BATCHES_MAX, 5)
    assert sys.getsizeof(batches._rows) / len(batches) <= 96


def test_connections_leave_nothing_by_themselves() -> None:
    """What Fetch was last given is of the connection, and goes with it."""
    made = recorder()
    for _ in range(3):
        notes = ConnectionNotes("a", "", "a")
        fetch(made, notes)
        (place,) = notes.audited.places.values()
        assert (place.position, place.high_watermark) == (0, 7)

    kept = [each for each in vars(made.fetches).values() if isinstance(each, list | dict)]
    assert (len(kept), list(filter(None, kept))) == (4, [])


def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "CONNECTIONS_MAX", 2)
    made, given = recorder(), response((0, 5, 0))
    for _ in range(3):
        exchange(made, request(0), given)
        fetch(made, ConnectionNotes("a", "", "a"))

    assert (len(made.connections), len(made._audited), len(made.batches), made.overflow) == (2, 2, 1, 4)
    assert not made.keeps_commits


def test_deletions_beyond_the_bound_are_no_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "CONNECTIONS_MAX", 0)
    made = recorder()
    part = SimpleNamespace(partition_index=0, offset=3)
    event = WireEvent(sys.maxsize, ConnectionNotes("a", "", "a"), "DeleteRecords", 2, "")
    made.asked(event, connection(), SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=[part])]))

    assert made.deleted_before == {("t", 0): 3}


def test_refused_commits_and_members_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "KEPT_MAX", 2)
    made = recorder()
    refused = [SimpleNamespace(name="t", partitions=[SimpleNamespace(partition_index=0, committed_offset=1)])]
    commit = SimpleNamespace(group_id="g", member_id="m", generation_id_or_member_epoch=1, topics=refused)
    for _ in range(5):
        made.asked(WireEvent(sys.maxsize, ConnectionNotes("a", "", "a"), "OffsetCommit", 8, ""), connection(), commit)
    assert ([len(each) for each in made.commits.attempts.values()], made.commits.overflow) == ([2], 3)

    for number in range(5):
        made.commits.observe(joined(f"g-{number}", f"m-{number}", f"client-{number}"), 0)
    assert (len(made.commits.members), made.commits.overflow) == (2, 6)


def test_a_client_of_two_groups_is_shared() -> None:
    commits = recorder().commits
    for group, client in (("g", "a"), ("g", "b"), ("h", "a"), ("g", "b")):
        commits.observe(joined(group, f"{group}-{client}", client), 0)

    assert commits.shared == {("a", "here")}


def test_partitions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "PARTITIONS_MAX", 1)
    partitions = recorder().partitions

    assert [partitions.number("t", index) for index in (0, 1, 0)] == [0, -1, 0]
    assert partitions.is_full


def joined(group: str, member: str, client: str) -> MemberJoined:
    return MemberJoined(
        group_id=group,
        generation=0,
        member_id=member,
        group_instance_id=None,
        client_id=client,
        client_host="/here",
        client_reason=None,
        members=1,
    )


def fetch(made: Recorder, notes: ConnectionNotes) -> None:
    part = SimpleNamespace(partition=0, fetch_offset=0)
    topic = SimpleNamespace(topic="t", topic_id=b"", partitions=[part])
    asked = SimpleNamespace(replica_id=-1, replica_state=None, isolation_level=0, topics=[topic])
    answer = SimpleNamespace(
        partition_index=0, error_code=0, log_start_offset=0, high_watermark=7, records=None, last_stable_offset=7
    )
    answered = SimpleNamespace(responses=[SimpleNamespace(topic="t", topic_id=b"", partitions=[answer])])
    event = WireEvent(sys.maxsize, notes, "Fetch", 12, "")
    made.asked(event, connection(), asked)
    made.answered(event, answered)
