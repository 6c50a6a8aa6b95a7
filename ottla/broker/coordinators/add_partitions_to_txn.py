"""Questions of this broker to the coordinators of transactions: whether partitions belong to a transaction, or that
they do from now on (AddPartitionsToTxn v5, KIP-890).

For each broker that is a coordinator there is one task while it is asked, one request under way, and a bounded queue
of what is asked next. A request asks about a transactional id once. Questions that are alike become one; of two epochs
of a producer the smaller one is out of date and is not asked about (§40.2.4). An error of the connection answers all
that wait for that broker: their clients try again, by then perhaps at another broker. A coordinator on this broker is
asked at once, without a request.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import Final, NamedTuple

from ottla.broker.coordinators.coordinator_topic import MetadataCache, coordinator_in
from ottla.broker.runtime import Runtime, TimeLimit, complete
from ottla.broker.server.network import Network
from ottla.broker.server.peer_connection import KeptPeer, PeerError, address_of_peer
from ottla.cluster.image import TRANSACTION_STATE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.security.client import LoginCredentials

TopicPartition = tuple[str, int]
Answered = Callable[[Mapping[TopicPartition, ErrorCode]], None]
"""Called once, with a code for each partition that was asked about."""
AskHere = Callable[["Question", Collection[TopicPartition], Answered], None]

QUESTIONS_MAX: Final = 10_000
"""Of one coordinator's broker; beyond it the answer is COORDINATOR_NOT_AVAILABLE, which clients repeat."""
QUESTIONS_PER_REQUEST: Final = 100
"""Their answers are handled in one step: some 5 ms."""
IDLE_MS: Final = 60_000
"""A connection is kept for so long after the last answer."""


class Question(NamedTuple):
    """What questions that become one are alike in."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    registers: bool
    """Whether the partitions are added, else only looked for."""


class AddPartitionsToTxnManager:
    def __init__(
        self,
        runtime: Runtime,
        metadata: MetadataCache,
        network: Network,
        ask_here: AskHere,
        *,
        inter_broker_listener: str,
        login: LoginCredentials | None,
    ) -> None:
        """`ask_here` asks where this broker is the coordinator; the answer comes as that of `ask`."""
        self._runtime = runtime
        self._metadata = metadata
        self._network = network
        self._ask_here = ask_here
        self._inter_broker_listener = inter_broker_listener
        self._login = login
        self._channels: dict[int, _Channel] = {}

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        answered: Answered,
        *,
        registers: bool,
    ) -> None:
        """`answered` is called before this returns where the coordinator is this broker and does not wait for its log,
        where none is known, or where a newer epoch is being asked about."""
        coordinator = coordinator_in(self._metadata.image, TRANSACTION_STATE, transactional_id)
        if coordinator is None:
            answered(dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        question = Question(transactional_id, producer_id, producer_epoch, registers)
        if coordinator.node_id == self._runtime.node_id:
            self._ask_here(question, partitions, answered)
            return
        asker = _Asker(tuple(partitions), answered)
        channel = self._channels.get(coordinator.node_id)
        if channel is None:
            channel = self._channels[coordinator.node_id] = _Channel(coordinator.node_id)
            self._runtime.spawn(self._serve(channel), f"questions to coordinator {coordinator.node_id}")
        channel.queue.add(question, asker)
        if channel.wake is not None:
            complete(channel.wake, None)

    async def _serve(self, channel: "_Channel") -> None:
        """Until the broker has not been asked for a while."""
        kept = KeptPeer(self._runtime, self._network, self._login, "transactions")
        try:
            while channel.queue or await self._is_woken(channel):
                asked = channel.queue.take()
                try:
                    self._answer(asked, await self._ask(channel.node_id, kept, _request(asked)))
                except (PeerError, ValueError) as error:
                    kept.close()
                    self._runtime.log.warning(
                        "transaction coordinator could not be asked", broker=channel.node_id, why=str(error)
                    )
                    # Among those that wait may be a question that was asked: each has askers of its own.
                    for unanswered in (asked, channel.queue.take_all()):
                        self._answer_all(unanswered, ErrorCode.NETWORK_EXCEPTION)
        finally:
            del self._channels[channel.node_id]
            kept.close()

    async def _ask(
        self, node_id: int, kept: KeptPeer, request: AddPartitionsToTxnRequest
    ) -> AddPartitionsToTxnResponse:
        """Raises PeerError."""
        peer = await kept.connected(address_of_peer(self._metadata.image, node_id, self._inter_broker_listener))
        response: AddPartitionsToTxnResponse = await peer.ask(request)
        return response

    async def _is_woken(self, channel: "_Channel") -> bool:
        channel.wake = asyncio.get_running_loop().create_future()
        try:
            with TimeLimit(self._runtime, IDLE_MS):
                await channel.wake
        except TimeoutError:
            pass
        finally:
            channel.wake = None
        return bool(channel.queue)

    def _answer(self, asked: "Asked", answer: AddPartitionsToTxnResponse) -> None:
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                # The client is not to blame for what this broker may not do, and must not take it for its own lack.
                code = ErrorCode.INVALID_TXN_STATE
            self._answer_all(asked, code)
            return
        results = {
            (result.transactional_id, topic.name, partition.partition_index): ErrorCode(partition.partition_error_code)
            for result in answer.results_by_transaction
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        for question, askers in asked.items():
            for asker in askers:
                codes = {
                    (topic, index): results.get(
                        (question.transactional_id, topic, index), ErrorCode.UNKNOWN_SERVER_ERROR
                    )
                    for topic, index in asker.partitions
                }
                self._runtime.guard(asker.answered, codes)

    def _answer_all(self, asked: "Asked", code: ErrorCode) -> None:
        for askers in asked.values():
            for asker in askers:
                self._runtime.guard(asker.fail, code)


class _Asker(NamedTuple):
    partitions: tuple[TopicPartition, ...]
    answered: Answered

    def fail(self, code: ErrorCode) -> None:
        self.answered(dict.fromkeys(self.partitions, code))


Asked = dict[Question, list[_Asker]]


class _Channel:
    """To one broker."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.queue = _Questions()
        # While the task has nothing to ask.
        self.wake: asyncio.Future[None] | None = None


class _Questions:
    """What is asked next; transactional ids in the order in which they were first asked about."""

    def __init__(self) -> None:
        self._by_id: dict[str, Asked] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, question: Question, asker: _Asker) -> None:
        of_id = self._by_id.get(question.transactional_id, {})
        askers = of_id.get(question)
        if askers is not None:
            askers.append(asker)
        elif self._count >= QUESTIONS_MAX:
            asker.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif any(_is_newer(other, question) for other in of_id):
            asker.fail(ErrorCode.INVALID_PRODUCER_EPOCH)
        else:
            outdated = [other for other in of_id if _is_newer(question, other)]
            self._by_id.setdefault(question.transactional_id, of_id)[question] = [asker]
            self._count += 1 - len(outdated)
            for older in [of_id.pop(other) for other in outdated]:
                for each in older:
                    each.fail(ErrorCode.INVALID_PRODUCER_EPOCH)

    def take(self) -> Asked:
        """What one request asks: of each transactional id the first question."""
        taken: Asked = {}
        for transactional_id in list(islice(self._by_id, QUESTIONS_PER_REQUEST)):
            of_id = self._by_id[transactional_id]
            question = next(iter(of_id))
            taken[question] = of_id.pop(question)
            if not of_id:
                del self._by_id[transactional_id]
        self._count -= len(taken)
        return taken

    def take_all(self) -> Asked:
        taken = {question: askers for of_id in self._by_id.values() for question, askers in of_id.items()}
        self._by_id.clear()
        self._count = 0
        return taken


def _is_newer(one: Question, other: Question) -> bool:
    return one.producer_id == other.producer_id and one.producer_epoch > other.producer_epoch


def _request(asked: Asked) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=question.transactional_id,
                producer_id=question.producer_id,
                producer_epoch=question.producer_epoch,
                verify_only=not question.registers,
                topics=_topics(askers),
            )
            for question, askers in asked.items()
        ]
    )


def _topics(askers: list[_Asker]) -> list[AddPartitionsToTxnTopic]:
    partitions: dict[str, dict[int, None]] = {}
    for asker in askers:
        for topic, index in asker.partitions:
            partitions.setdefault(topic, {})[index] = None
    return [AddPartitionsToTxnTopic(name=topic, partitions=list(indexes)) for topic, indexes in partitions.items()]
