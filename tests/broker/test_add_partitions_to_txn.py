"""What a broker asks the coordinators of transactions, and what it makes of their answers (§40.2)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.coordinators import add_partitions_to_txn
from ottla.broker.coordinators.add_partitions_to_txn import AddPartitionsToTxnManager, Answered, Question
from ottla.protocol.codec import decode_whole
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from tests.broker.test_peer_connection import serving
from tests.broker.wire import running_broker, until
from tests.fakes.frames import parse_request_header, response_frame

VERSION = 5
COORDINATOR = 5
NONE = ErrorCode.NONE
Asked = tuple[str, int, int, bool, dict[str, list[int]]]
Codes = Mapping[tuple[str, int], ErrorCode]


class Coordinator:
    """The broker that is asked: keeps each answer back until `answer` is called, and hangs up for None."""

    def __init__(self) -> None:
        self.requests: list[list[Asked]] = []
        self.asked_here: list[tuple[Question, list[tuple[str, int]]]] = []
        self.answers: asyncio.Queue[Callable[[AddPartitionsToTxnRequest], AddPartitionsToTxnResponse] | None] = (
            asyncio.Queue()
        )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                request = _request_in(frame)
                self.requests.append([_as_asked(each) for each in request.transactions])
                answer = await self.answers.get()
                if answer is None:
                    break
                writer.write(response_frame(answer(request), VERSION, int.from_bytes(frame[4:8], "big")))
        except asyncio.IncompleteReadError:
            pass
        writer.close()

    def answer(self, code: ErrorCode = NONE, *, as_a_whole: ErrorCode = NONE) -> None:
        self.answers.put_nowait(lambda request: _response(request, code, as_a_whole))

    def hang_up(self) -> None:
        self.answers.put_nowait(None)


def _request_in(frame: bytes) -> AddPartitionsToTxnRequest:
    header = parse_request_header(frame, {AddPartitionsToTxnRequest.API_KEY: AddPartitionsToTxnRequest})
    assert header.api_version == VERSION
    return decode_whole(AddPartitionsToTxnRequest, VERSION, frame[header.body_offset :])


def _as_asked(each: Any) -> Asked:
    topics = {topic.name: topic.partitions for topic in each.topics}
    return each.transactional_id, each.producer_id, each.producer_epoch, each.verify_only, topics


def _response(request: AddPartitionsToTxnRequest, code: ErrorCode, as_a_whole: ErrorCode) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        error_code=int(as_a_whole),
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=int(code))
                            for index in topic.partitions
                        ],
                    )
                    for topic in each.topics
                ],
            )
            for each in request.transactions
        ],
    )


class Asking:
    def __init__(self, broker: Any, manager: AddPartitionsToTxnManager, coordinator: Coordinator, image: Any) -> None:
        self.broker = broker
        self.manager = manager
        self.coordinator = coordinator
        self.image = image
        self.answered: list[tuple[str, Codes]] = []

    def ask(
        self, name: str, *partitions: int, transactional_id: str = "tx", epoch: int = 0, registers: bool = False
    ) -> None:
        """`name` is that of the question in `answered`."""
        self.manager.ask(
            transactional_id,
            7,
            epoch,
            [("t", index) for index in partitions or (0,)],
            lambda codes: self.answered.append((name, codes)),
            registers=registers,
        )

    async def until_asked(self, requests: int) -> None:
        await until(self.broker, lambda: len(self.coordinator.requests) == requests)

    async def until_answered(self, count: int) -> list[tuple[str, Codes]]:
        await until(self.broker, lambda: len(self.answered) == count)
        return self.answered


@asynccontextmanager
async def asking(tmp_path: Path) -> AsyncIterator[Asking]:
    coordinator = Coordinator()
    async with running_broker(tmp_path) as broker, serving(coordinator.serve) as address:
        led = SimpleNamespace(leader=COORDINATOR)
        leader = SimpleNamespace(node_id=COORDINATOR, is_live=True, endpoint=lambda listener: address)

        def ask_here(question: Question, partitions: Collection[tuple[str, int]], answered: Answered) -> None:
            coordinator.asked_here.append((question, list(partitions)))
            answered(dict.fromkeys(partitions, NONE))

        image: Any = SimpleNamespace(
            topic=lambda name: SimpleNamespace(partitions=[led] * 3), brokers={COORDINATOR: leader}
        )
        metadata: Any = SimpleNamespace(image=image)
        manager = AddPartitionsToTxnManager(
            broker.runtime, metadata, broker.network, ask_here, inter_broker_listener="PLAINTEXT", login=None
        )
        yield Asking(broker, manager, coordinator, image)


async def test_question_is_one_request_and_its_answer_one_code_each(tmp_path: Path) -> None:
    async with asking(tmp_path) as asked:
        asked.coordinator.answer()
        asked.coordinator.answer(ErrorCode.TRANSACTION_ABORTABLE)
        asked.ask("verify", 0, 2)
        await asked.until_answered(1)
        asked.ask("register", 1, registers=True)

        assert await asked.until_answered(2) == [
            ("verify", {("t", 0): NONE, ("t", 2): NONE}),
            ("register", {("t", 1): ErrorCode.TRANSACTION_ABORTABLE}),
        ]
        assert asked.coordinator.requests == [
            [("tx", 7, 0, True, {"t": [0, 2]})],
            [("tx", 7, 0, False, {"t": [1]})],
        ]


async def test_coordinator_on_the_same_broker_needs_no_connection(tmp_path: Path) -> None:
    async with asking(tmp_path) as asked:
        node_id = asked.broker.runtime.node_id
        here = SimpleNamespace(node_id=node_id, is_live=True)
        asked.image.topic = lambda name: SimpleNamespace(partitions=[SimpleNamespace(leader=node_id)])
        asked.image.brokers[node_id] = here
        asked.ask("here", 0, 1)

        assert asked.answered == [("here", {("t", 0): NONE, ("t", 1): NONE})]
        question = Question("tx", 7, 0, registers=False)
        assert (asked.coordinator.asked_here, asked.coordinator.requests) == ([(question, [("t", 0), ("t", 1)])], [])


async def test_questions_that_wait_go_with_the_next_request(tmp_path: Path) -> None:
    """§40.2.4, §40.2.5: those that are alike are one; of each transactional id there is one."""
    async with asking(tmp_path) as asked:
        asked.ask("first", transactional_id="other")
        await asked.until_asked(1)
        asked.ask("a", 0)
        asked.ask("b", 0, 1)
        asked.ask("c", 2, registers=True)
        asked.ask("d", 3, transactional_id="third")
        for _ in range(3):
            asked.coordinator.answer()

        assert dict(await asked.until_answered(5)) == {
            "first": {("t", 0): NONE},
            "a": {("t", 0): NONE},
            "b": {("t", 0): NONE, ("t", 1): NONE},
            "c": {("t", 2): NONE},
            "d": {("t", 3): NONE},
        }
        assert asked.coordinator.requests[1:] == [
            [("tx", 7, 0, True, {"t": [0, 1]}), ("third", 7, 0, True, {"t": [3]})],
            [("tx", 7, 0, False, {"t": [2]})],
        ]


async def test_smaller_epoch_is_not_asked_about(tmp_path: Path) -> None:
    async with asking(tmp_path) as asked:
        asked.ask("first", transactional_id="other")
        await asked.until_asked(1)
        asked.ask("old", epoch=1)
        asked.ask("new", epoch=2)
        asked.ask("late", epoch=1)

        fenced = {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH}
        assert asked.answered == [("old", fenced), ("late", fenced)]
        asked.coordinator.answer()
        asked.coordinator.answer()
        await asked.until_answered(4)
        assert asked.coordinator.requests[1:] == [[("tx", 7, 2, True, {"t": [0]})]]


async def test_lost_connection_answers_all_that_wait(tmp_path: Path) -> None:
    """§40.2.6, also those that ask what was asked; the next question gets another connection."""
    async with asking(tmp_path) as asked:
        asked.ask("first")
        await asked.until_asked(1)
        asked.ask("second", transactional_id="other")
        asked.ask("first again")
        asked.coordinator.hang_up()

        lost = {("t", 0): ErrorCode.NETWORK_EXCEPTION}
        assert await asked.until_answered(3) == [("first", lost), ("second", lost), ("first again", lost)]
        asked.coordinator.answer()
        asked.ask("third")
        assert (await asked.until_answered(4))[3:] == [("third", {("t", 0): NONE})]


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
async def test_error_of_the_whole_answer_is_that_of_all(tmp_path: Path, code: ErrorCode, seen: ErrorCode) -> None:
    async with asking(tmp_path) as asked:
        asked.coordinator.answer(as_a_whole=code)
        asked.ask("a", 0, 1)

        assert await asked.until_answered(1) == [("a", {("t", 0): seen, ("t", 1): seen})]


async def test_without_a_live_coordinator_the_answer_comes_at_once(tmp_path: Path) -> None:
    async with asking(tmp_path) as asked:
        unavailable = {("t", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}
        asked.image.brokers[COORDINATOR].is_live = False
        asked.ask("not alive")
        asked.image.topic = lambda name: None
        asked.ask("no topic")

        assert asked.answered == [("not alive", unavailable), ("no topic", unavailable)]


async def test_too_many_questions_are_answered_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(add_partitions_to_txn, "QUESTIONS_MAX", 2)
    async with asking(tmp_path) as asked:
        for number in range(3):
            asked.ask(f"{number}", transactional_id=f"{number}")

        assert asked.answered == [("2", {("t", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE})]
        asked.coordinator.answer()
        await asked.until_answered(3)


async def test_connection_that_is_idle_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(add_partitions_to_txn, "IDLE_MS", 1)
    async with asking(tmp_path) as asked:
        asked.coordinator.answer()
        asked.ask("a")
        await asked.until_answered(1)
        await until(asked.broker, lambda: not asked.manager._channels)

        asked.coordinator.answer()
        asked.ask("b")
        await asked.until_answered(2)
