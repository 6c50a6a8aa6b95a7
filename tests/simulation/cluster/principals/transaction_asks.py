"""Requests of producers and their transactions (§62.4). Who may, opens transactions, which end or are ended for it."""

from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.security.acl import AclOperation
from tests.simulation.cluster.principals.asks import (
    CLUSTER_CODE,
    GROUP_CODE,
    ID_CODE,
    NAMES,
    TOPIC_CODE,
    TRANSACTIONAL_IDS,
    Ask,
    Deed,
    Draw,
    codes_in,
    first_wrong,
    wrong_code,
    wrong_if_shown,
)
from tests.simulation.cluster.principals.rights import Seen

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
TIMEOUT_MS = 3_000
SEVERAL_KEYS_SINCE = 4
NO_PAIR = (1 << 40, 0)
"""No producer has it."""


def init_producer_id(draw: Draw) -> Ask:
    """Without a transactional id."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TIMEOUT_MS)

    def wrong(seen: Seen, response: Any) -> str | None:
        is_allowed = seen.cluster(AclOperation.IDEMPOTENT_WRITE) or seen.some_topic(WRITE)
        wrong = wrong_code("a producer id", response.error_code, CLUSTER_CODE, is_allowed=is_allowed)
        shown = {"id": response.producer_id, "epoch": response.producer_epoch}
        return wrong or (None if is_allowed else wrong_if_shown("a producer id", shown, {"id": -1, "epoch": -1}))

    return Ask(request, draw.version(0, 5), wrong)


class Producer:
    """What one principal knows of one transactional id."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.pair = NO_PAIR

    def ask(self, draw: Draw) -> Ask:
        asks = [self.init, self.init, self.add_partitions, self.add_partitions, self.add_offsets, self.commit, self.end]
        ask: Ask = draw.rng.choice(asks)(draw)
        return ask

    def init(self, draw: Draw) -> Ask:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=TIMEOUT_MS)
        return self._of_all(request, draw.version(0, 5), lambda seen: self._may(seen, WRITE), self._took_pair)

    def add_partitions(self, draw: Draw) -> Ask:
        names = draw.names((*NAMES, "__consumer_offsets"))
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.pair[0],
            v3_and_below_producer_epoch=self.pair[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in names],
        )

        def wrong(seen: Seen, response: Any) -> str | None:
            codes = {
                topic.name: topic.results_by_partition[0].partition_error_code
                for topic in response.results_by_topic_v3_and_below
            }
            if not self._may(seen, WRITE):
                return None if set(codes.values()) == {ID_CODE} else f"{self.transactional_id} is denied: {codes}"
            denied = {name for name in names if not seen.topic(WRITE, name)}
            if not denied:
                refused = TOPIC_CODE in codes.values() and "__consumer_offsets" not in names
                return f"{names} are allowed and were answered {codes}" if refused else None
            fine = {ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            return first_wrong(
                None
                if (code == TOPIC_CODE if name in denied | {"__consumer_offsets"} else code in fine)
                else f"{name} was answered {code}, denied are {denied}"
                for name, code in codes.items()
            )

        return Ask(request, draw.version(0, 3), wrong, transactional_id=self.transactional_id)

    def add_offsets(self, draw: Draw) -> Ask:
        group = draw.group()
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.pair[0],
            producer_epoch=self.pair[1],
            group_id=group,
        )

        def wrong(seen: Seen, response: Any) -> str | None:
            may_write, may_read = self._may(seen, WRITE), seen.group(READ, group)
            refusal = GROUP_CODE if may_write else ID_CODE
            return wrong_code("add offsets", response.error_code, refusal, is_allowed=may_write and may_read)

        return Ask(request, draw.version(0, 3), wrong, transactional_id=self.transactional_id)

    def commit(self, draw: Draw) -> Ask:
        """Brokers that verify refuse what was not added before."""
        group, topics, deeds = draw.group(), [], []
        for name in draw.names():
            offset = draw.number()
            part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
            topics.append(TxnOffsetCommitRequestTopic(name=name, partitions=[part]))
            deeds.append(Deed(("offset", group, name, offset), partial(self._may_commit, group, name)))
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.pair[0],
            producer_epoch=self.pair[1],
            topics=topics,
        )

        def wrong(seen: Seen, response: Any) -> str | None:
            refusal = ID_CODE if not self._may(seen, WRITE) else TOPIC_CODE if seen.group(READ, group) else GROUP_CODE
            return first_wrong(
                wrong_code(
                    f"offsets of {topic.name} in {group}",
                    topic.partitions[0].error_code,
                    refusal,
                    is_allowed=self._may_commit(group, topic.name, seen),
                )
                for topic in response.topics
            )

        return Ask(request, draw.version(0, 4), wrong, coordinator_of=group, deeds=deeds)

    def end(self, draw: Draw) -> Ask:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.pair[0],
            producer_epoch=self.pair[1],
            committed=draw.rng.random() < 0.5,
        )
        return self._of_all(request, draw.version(0, 4), lambda seen: self._may(seen, WRITE), lambda _: None)

    def _may(self, seen: Seen, operation: AclOperation) -> bool:
        return seen.transactional_id(operation, self.transactional_id)

    def _may_commit(self, group: str, name: str, seen: Seen) -> bool:
        return self._may(seen, WRITE) and seen.group(READ, group) and seen.topic(READ, name)

    def _of_all(self, request: Any, version: int, may: Callable[[Seen], bool], took: Callable[[Any], None]) -> Ask:
        what = f"{type(request).__name__} of {self.transactional_id}"

        def wrong(seen: Seen, response: Any) -> str | None:
            return wrong_code(what, response.error_code, ID_CODE, is_allowed=may(seen))

        return Ask(request, version, wrong, transactional_id=self.transactional_id, took=took)

    def _took_pair(self, response: Any) -> None:
        if not response.error_code:
            self.pair = response.producer_id, response.producer_epoch


def find_coordinators(draw: Draw) -> Ask:
    version, ids = draw.version(1, 6), list(TRANSACTIONAL_IDS)
    request = FindCoordinatorRequest(key=ids[0], key_type=1, coordinator_keys=ids)

    def wrong(seen: Seen, response: Any) -> str | None:
        found = response.coordinators if version >= SEVERAL_KEYS_SINCE else [response]
        names = [each.key for each in found] if version >= SEVERAL_KEYS_SINCE else ids[:1]
        return first_wrong(
            wrong_code(
                f"coordinator of {name}", each.error_code, ID_CODE, is_allowed=seen.transactional_id(DESCRIBE, name)
            )
            for name, each in zip(names, found, strict=True)
        )

    return Ask(request, version, wrong)


def add_partitions_as_a_broker(draw: Draw) -> Ask:
    """Of no transaction."""
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=TRANSACTIONAL_IDS[0],
        producer_id=NO_PAIR[0],
        verify_only=True,
        topics=[AddPartitionsToTxnTopic(name=NAMES[0], partitions=[0])],
    )

    def wrong(seen: Seen, response: Any) -> str | None:
        is_allowed, codes = seen.cluster(AclOperation.CLUSTER_ACTION), set(codes_in(response))
        if is_allowed:
            return "a broker was refused" if CLUSTER_CODE in codes else None
        return None if response.error_code == CLUSTER_CODE else f"the verification is denied and has the codes {codes}"

    return Ask(AddPartitionsToTxnRequest(transactions=[transaction]), draw.version(4, 5), wrong)


def describe_transactions(draw: Draw) -> Ask:
    request = DescribeTransactionsRequest(transactional_ids=[*TRANSACTIONAL_IDS, "pay-0"])

    def wrong(seen: Seen, response: Any) -> str | None:
        for each in response.transaction_states:
            name = each.transactional_id
            what, is_allowed = f"transaction of {name}", seen.transactional_id(DESCRIBE, name)
            if found := wrong_code(what, each.error_code, ID_CODE, is_allowed=is_allowed):
                return found
            hidden = [topic.topic for topic in each.topics if not seen.topic(DESCRIBE, topic.topic)]
            if hidden or (not is_allowed and each.producer_id > 0):
                return f"{what} shows {hidden} and the producer {each.producer_id}"
        return None

    return Ask(request, 0, wrong)


def list_transactions(draw: Draw) -> Ask:
    def wrong(seen: Seen, response: Any) -> str | None:
        listed = [each.transactional_id for each in response.transaction_states]
        denied = [name for name in listed if not seen.transactional_id(DESCRIBE, name)]
        return f"transactional ids {denied} are denied and listed" if denied else None

    return Ask(ListTransactionsRequest(), draw.version(0, 1), wrong)


ASKS: list[Callable[[Draw], Ask]] = [
    find_coordinators,
    add_partitions_as_a_broker,
    describe_transactions,
    list_transactions,
]
