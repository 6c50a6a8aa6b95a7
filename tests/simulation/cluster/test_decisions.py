"""What the judge says of decisions, markers and answers that do not agree (I-31, I-35 to I-38)."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from ottla.coordinator.transactions.entry import (
    NO_PRODUCER_ID,
    TransactionalIdEntry,
    TransactionMetadata,
    TransactionState,
)
from ottla.coordinator.transactions.participants import Participant, Participants
from ottla.coordinator.transactions.records import build_transaction_key, build_transaction_value
from ottla.protocol.records.batch import assign_offset_and_epoch, parse_batch_header
from ottla.protocol.records.control import TransactionMarker, build_marker
from ottla.protocol.records.record import Record, build_batch, rebuild_batch
from tests.fakes.disk import FakeDisk
from tests.simulation.cluster.decisions import Decisions, OpenTransaction
from tests.simulation.cluster.known_ids import states_in
from tests.simulation.judge import Judge
from tests.simulation.trace import Trace
from tests.storage.support import NOW, new_log
from tests.storage.transactional import COMMIT, copy

PLACE, OTHER = ("payments", 0), ("payments", 1)
PRODUCER = 7
EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
COMMITTING, ABORTING = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMMITTED, ABORTED = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT


@dataclass
class Judged:
    """The judge of one transactional id, whose log its test writes."""

    index: int = 0
    high_watermark: int = 0
    replicated: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.log = new_log(FakeDisk())
        self._judge = Judge(Trace(lambda: 0))
        self.decisions = Decisions(self._judge, lambda where: self.replicated.get(where, 0))

    def say(
        self,
        *states: TransactionState,
        epoch: int = 0,
        version: int = 0,
        name: str = "pay",
        producer: int = PRODUCER,
        where: Iterable[Participant] = (PLACE,),
    ) -> None:
        """Committed at once."""
        for state in states:
            at = where if state in (ONGOING, COMMITTING, ABORTING) else ()
            said = TransactionMetadata(
                producer, epoch, 60_000, state, Participants.of(at), NOW, NOW, NO_PRODUCER_ID, NO_PRODUCER_ID, version
            )
            value = build_transaction_value(said, 1)
            record = Record(timestamp=NOW, key=build_transaction_key(name), value=value)
            copy(self.log, build_batch([record], base_offset=self.log.log_end_offset, leader_epoch=0))
            self.high_watermark = self.log.log_end_offset
            self.decisions.read_on(self)

    def mark(
        self,
        commit: bool = COMMIT,
        *,
        epoch: int = 0,
        where: tuple[str, int] = PLACE,
        offset: int = 1,
        leader_epoch: int = 0,
        is_emptied: bool = False,
    ) -> None:
        marker = build_marker(TransactionMarker(commit, 0), producer_id=PRODUCER, producer_epoch=epoch, timestamp=NOW)
        assign_offset_and_epoch(marker, 0, offset, leader_epoch)
        if is_emptied:
            marker = rebuild_batch(parse_batch_header(marker), [])
        self.decisions.marker_came(where, parse_batch_header(marker), memoryview(marker))

    def held(self) -> dict[str, Any]:
        """The entries of a coordinator that has loaded its log."""
        states = states_in(self.log, self.high_watermark)
        return {name: TransactionalIdEntry(name, state) for name, state in states.items()}

    def see_deleted(self, *where: tuple[str, int], index: int = 0, held: dict[str, Any] | None = None) -> None:
        """With the metadata of a coordinator, as they are for a step."""
        held = self.held() if held is None else held
        self.decisions.note_deleted(index, held, lambda *each: None if each in where else PLACE)
        self.decisions.end_step()

    def how(self) -> str:
        return "; ".join(self._judge.violations)

    def violated(self) -> list[str]:
        self.decisions.end_step()
        return [each.partition(":")[0] for each in self._judge.violations]


@pytest.fixture
def judged() -> Judged:
    return Judged()


def test_life_of_a_transaction_is_right(judged: Judged) -> None:
    judged.say(EMPTY, ONGOING)
    judged.decisions.check_open(PLACE, {PRODUCER: OpenTransaction(0, 0)}, 1)
    judged.say(COMMITTING)
    judged.decisions.ended((PRODUCER, 0), commit=True)
    judged.mark()
    judged.replicated[PLACE] = 2
    judged.say(COMMITTED)

    assert judged.violated() == []


@pytest.mark.parametrize(
    "states",
    [(EMPTY, COMMITTING), (ONGOING, EMPTY), (ONGOING, COMMITTING, ABORTED), (ONGOING, ABORTING, COMMITTING)],
)
def test_states_follow_each_other_by_the_table(judged: Judged, states: tuple[TransactionState, ...]) -> None:
    judged.mark(), judged.mark(commit=False)
    judged.replicated[PLACE] = 2
    judged.say(*states)

    assert "I-35" in judged.violated()


def test_outcome_of_an_epoch_is_decided_once(judged: Judged) -> None:
    judged.say(ONGOING)
    judged.say(COMMITTING, epoch=1, version=2)
    judged.mark(epoch=1)
    judged.replicated[PLACE] = 2
    judged.say(COMMITTED, epoch=1, version=2)
    assert judged.violated() == []

    judged.say(ABORTING, epoch=1, version=2)

    assert "I-35" in judged.violated()


@pytest.mark.parametrize(
    "marker",
    [{"commit": False}, {"epoch": 1}, {"where": OTHER}],
    ids=["another outcome", "another epoch", "a partition that has no part"],
)
def test_marker_that_was_not_decided_is_found(judged: Judged, marker: dict[str, Any]) -> None:
    judged.say(ONGOING, COMMITTING)
    judged.mark()
    assert judged.violated() == []

    judged.mark(**marker)

    assert judged.violated() == ["I-36"]


def test_abort_may_replace_an_emptied_commit(judged: Judged) -> None:
    """§45.5: in a replica that was away until then."""
    judged.say(ONGOING, COMMITTING)
    judged.mark(), judged.mark(is_emptied=True)

    judged.mark(commit=False)

    assert judged.violated() == []


@pytest.mark.parametrize(
    ("emptied", "marker"),
    [
        ({"offset": 2}, {"commit": False}),
        ({"leader_epoch": 1}, {"commit": False}),
        ({"epoch": 1}, {"commit": False}),
        ({"where": OTHER}, {"commit": False}),
        ({"epoch": 1}, {"commit": False, "epoch": 1}),
        ({"where": OTHER}, {"commit": False, "where": OTHER}),
    ],
    ids=["offset", "leader epoch", "producer epoch", "partition", "undecided epoch", "partition without a part"],
)
def test_abort_replaces_only_the_very_commit(judged: Judged, emptied: dict[str, Any], marker: dict[str, Any]) -> None:
    judged.say(ONGOING, COMMITTING)
    judged.mark(is_emptied=True, **emptied)

    judged.mark(**marker)

    assert judged.violated() == ["I-36"]


def test_commit_does_not_replace_an_emptied_abort(judged: Judged) -> None:
    judged.say(ONGOING, ABORTING)
    judged.mark(commit=False, is_emptied=True)

    judged.mark(commit=True)

    assert judged.violated() == ["I-36"]


def test_marker_before_its_decision_is_found(judged: Judged) -> None:
    """But in one step they come in any order."""
    judged.say(ONGOING)
    judged.mark()
    judged.say(COMMITTING)
    assert judged.violated() == []

    judged.say(COMMITTED, ONGOING, epoch=0)
    judged.mark(epoch=3)
    assert "I-36" in judged.violated()


@pytest.mark.parametrize(("replicated", "is_found"), [(1, True), (2, False)])
def test_complete_transaction_has_its_markers_replicated(judged: Judged, replicated: int, is_found: bool) -> None:
    judged.say(ONGOING, COMMITTING)
    judged.mark(offset=1)
    judged.replicated[PLACE] = replicated

    judged.say(COMMITTED)

    assert (judged.violated() == ["I-36"]) is is_found


def test_topic_known_to_be_deleted_needs_no_marker(judged: Judged) -> None:
    """The other partition does."""
    judged.say(ONGOING, COMMITTING, where=(PLACE, OTHER))
    judged.see_deleted(PLACE)

    judged.say(COMMITTED)

    assert judged.violated() == ["I-36"]
    assert str(OTHER) in judged.how()
    assert str(PLACE) not in judged.how()


def test_topic_made_again_needs_no_marker_of_before(judged: Judged) -> None:
    judged.say(ONGOING, COMMITTING)
    judged.see_deleted(PLACE)
    judged.see_deleted()

    judged.say(COMMITTED)

    assert judged.violated() == []


@pytest.mark.parametrize("who", ["before the decision", "of another index", "without the decision"])
def test_topic_that_another_knew_to_be_deleted_needs_its_marker(judged: Judged, who: str) -> None:
    judged.say(ONGOING)
    if who == "before the decision":
        judged.see_deleted(PLACE)
    ongoing = judged.held()
    judged.say(COMMITTING)
    if who == "of another index":
        judged.see_deleted(PLACE, index=1)
    elif who == "without the decision":
        judged.see_deleted(PLACE, held=ongoing)

    judged.say(COMMITTED)

    assert judged.violated() == ["I-36"]


@pytest.mark.parametrize("replicated", [1, 2])
def test_topic_that_is_deleted_takes_its_markers_along(judged: Judged, replicated: int) -> None:
    """Its coordinator does not know it yet, and has been answered that they are replicated, or not."""
    judged.say(ONGOING, COMMITTING)
    judged.mark(offset=1)
    judged.replicated[PLACE] = replicated
    assert judged.violated() == []
    judged.replicated.clear()

    judged.say(COMMITTED)

    assert judged.violated() == ([] if replicated == 2 else ["I-36"])


def test_answer_before_its_decision_is_found(judged: Judged) -> None:
    """Also of the second transaction with the same epoch."""
    judged.say(ONGOING, COMMITTING)
    judged.decisions.ended((PRODUCER, 0), commit=True)
    assert judged.violated() == []

    judged.decisions.ended((PRODUCER, 0), commit=True)

    assert judged.violated() == ["I-37"]


@pytest.mark.parametrize(
    ("state", "where", "high_watermark", "is_found"),
    [
        pytest.param(ONGOING, PLACE, 1, False, id="registered"),
        pytest.param(ONGOING, OTHER, 1, True, id="not registered"),
        pytest.param(ONGOING, OTHER, 0, False, id="not replicated"),
        pytest.param(EMPTY, PLACE, 1, True, id="no transaction"),
    ],
)
def test_open_transaction_is_known_to_its_coordinator(
    judged: Judged, state: TransactionState, where: tuple[str, int], high_watermark: int, is_found: bool
) -> None:
    judged.say(state)

    judged.decisions.check_open(where, {PRODUCER: OpenTransaction(0, 0), 4711: OpenTransaction(0, 0)}, high_watermark)

    assert (judged.violated() == ["I-38"]) is is_found


@pytest.mark.parametrize(
    ("state", "epoch", "version", "is_found"),
    [
        pytest.param(ONGOING, 0, 0, False, id="its own"),
        pytest.param(ONGOING, 1, 0, True, id="an older one"),
        pytest.param(COMMITTING, 0, 0, False, id="ended"),
        pytest.param(ABORTING, 1, 0, False, id="fenced"),
        pytest.param(COMMITTING, 1, 2, False, id="ended by KIP-890"),
        pytest.param(COMMITTING, 0, 2, True, id="ended by KIP-890 with its own epoch"),
        pytest.param(ABORTING, 2, 2, True, id="of the one after it"),
    ],
)
def test_open_transaction_has_an_epoch_that_fits(
    judged: Judged, state: TransactionState, epoch: int, version: int, is_found: bool
) -> None:
    judged.say(*dict.fromkeys((ONGOING, state)), epoch=epoch, version=version)

    judged.decisions.check_open(PLACE, {PRODUCER: OpenTransaction(0, 0)}, 1)

    assert (judged.violated() == ["I-38"]) is is_found


def test_open_transaction_of_another_producer_id_is_found(judged: Judged) -> None:
    judged.say(EMPTY)
    judged.say(EMPTY, ONGOING, producer=8)

    judged.decisions.check_open(PLACE, {PRODUCER: OpenTransaction(0, 0)}, 1)

    assert judged.violated() == ["I-38"]


@pytest.mark.parametrize("known", ["as committed", "behind", "more"])
def test_coordinator_that_knows_something_else_is_found(judged: Judged, known: str) -> None:
    judged.say(EMPTY)
    before = dict(judged.decisions._states)
    judged.say(ONGOING)
    now = dict(judged.decisions._states)

    held = {"as committed": now, "behind": before, "more": now | {"another": now["pay"]}}[known]
    judged.decisions.check_coordinator(judged.index, judged.high_watermark, held)
    judged.decisions.check_coordinator(judged.index, judged.high_watermark + 1, {})

    assert judged.violated() == ([] if known == "as committed" else ["I-17"])


def test_two_open_transactions_of_one_id_are_found(judged: Judged) -> None:
    judged.say(EMPTY)
    judged.say(EMPTY, ONGOING, producer=8)
    judged.decisions.check_open(PLACE, {8: OpenTransaction(0, 0)}, 1)
    assert judged.violated() == []

    judged.decisions.check_open(PLACE, {PRODUCER: OpenTransaction(0, 0), 8: OpenTransaction(1, 0)}, 1)

    assert "I-31" in judged.violated()


def test_what_a_rotten_disk_hides_is_no_violation(judged: Judged) -> None:
    judged.say(ONGOING)
    judged.decisions.lose_sight()

    judged.mark()

    assert judged.violated() == []
