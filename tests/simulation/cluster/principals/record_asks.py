"""Requests about records: produced, fetched, deleted, and where they end (§62.2)."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.describe_producers import DescribeProducersRequest
from ottla.protocol.messages.describe_producers import TopicRequest as ProducersTopic
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.record import Record, build_batch
from ottla.security.acl import AclOperation
from tests.simulation.cluster.client import REQUEST_TIMEOUT_MS
from tests.simulation.cluster.principals.asks import (
    ID_CODE,
    NAMES,
    READABLE,
    TOPIC_CODE,
    Ask,
    Deed,
    Draw,
    first_wrong,
    wrong_code,
    wrong_if_shown,
)
from tests.simulation.cluster.principals.rights import Seen

IDS_SINCE, FETCH_IDS_SINCE, REPLICA_STATE_SINCE = 13, 13, 15
WRITE, READ, DESCRIBE, DELETE = AclOperation.WRITE, AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE


# Produce.


def produce(draw: Draw) -> Ask:
    """One record to each of some topics; sometimes it says that it is of a transaction, whose id it does not give."""
    version, in_transaction = draw.version(3, 13), draw.rng.random() < 0.1
    names = draw.names(at_most=draw.rng.choice([1, 3]))
    topics, deeds = [], []
    for name in names:
        value = f"principal {draw.number()}"
        batch = build_batch(
            [Record(timestamp=draw.wall_ms(), key=None, value=value.encode())], transactional=in_transaction
        )
        data = [PartitionProduceData(index=0, records=bytes(batch))]
        topics.append(TopicProduceData(name=name, topic_id=draw.id_of(name), partition_data=data))
        deeds.append(Deed((name, value), partial(_may_write, name, in_transaction=in_transaction)))
    request = ProduceRequest(acks=draw.rng.choice([1, -1]), timeout_ms=REQUEST_TIMEOUT_MS // 2, topic_data=topics)
    wrong = partial(_wrong_production, names, version, in_transaction)
    return Ask(request, version, wrong, leader_of=(names[0], 0), deeds=deeds)


def _may_write(name: str, seen: Seen, *, in_transaction: bool) -> bool:
    return not in_transaction and seen.topic(WRITE, name)


def _wrong_production(names: list[str], version: int, in_transaction: bool, seen: Seen, response: Any) -> str | None:
    def each() -> Iterator[str | None]:
        for topic in response.responses:
            name = topic.name if version < IDS_SINCE else seen.name_of(topic.topic_id)
            is_allowed = not in_transaction and (name is None or seen.topic(WRITE, name))
            refusal = ID_CODE if in_transaction else TOPIC_CODE
            for answer in topic.partition_responses:
                yield wrong_code(f"produce to {name}", answer.error_code, refusal, is_allowed=is_allowed)
                if not is_allowed:
                    shown = {"offset": answer.base_offset, "start": answer.log_start_offset}
                    yield wrong_if_shown(f"produce to {name}", shown, {"offset": -1, "start": -1})
        answered = sum(len(topic.partition_responses) for topic in response.responses)
        # Several unknown ids are one.
        yield None if version >= IDS_SINCE or answered == len(names) else f"{answered} answers to {len(names)} topics"

    return first_wrong(each())


# Fetch.


class Session:
    """What one principal fetches from one broker: an incremental session, or one request after the other without."""

    def __init__(self, draw: Draw) -> None:
        self.version = draw.version(7, 17)
        self.id = self.epoch = 0
        self.names: dict[bytes, str] = {}
        """Of the topics that it fetches, by their ids then."""

    def ask(self, draw: Draw) -> Ask:
        """Most fetches of a session name nothing."""
        opens = self.epoch == 0
        named: list[str] = []
        if opens:
            self.names.clear()
            named = draw.names(READABLE, 4)
        elif draw.rng.random() < 0.2:
            named = draw.names(READABLE, 1)
        topics = [_fetched(name, draw.id_of(name)) for name in named]
        self.names |= {
            topic.topic_id if self.uses_ids else name.encode(): name for topic in topics for name in [topic.topic]
        }
        request = FetchRequest(
            max_wait_ms=draw.rng.choice([0, 200]),
            min_bytes=1,
            session_id=self.id,
            session_epoch=self.epoch,
            topics=topics,
        )
        wrong = partial(_wrong_fetch, dict(self.names), self.uses_ids, opens)
        return Ask(request, self.version, wrong, took=self._took)

    @property
    def uses_ids(self) -> bool:
        return self.version >= FETCH_IDS_SINCE

    def begin_again(self) -> None:
        self.id = self.epoch = 0

    def _took(self, response: Any) -> None:
        if response.error_code or not response.session_id:
            self.begin_again()
        else:
            self.id, self.epoch = response.session_id, self.epoch + 1


def _fetched(name: str, topic_id: bytes) -> FetchTopic:
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=300)
    return FetchTopic(topic=name, topic_id=topic_id, partitions=[part])


def fetch_once(draw: Draw) -> Ask:
    """Without a session."""
    version = draw.version(4, 17)
    topics = [_fetched(name, draw.id_of(name)) for name in draw.names(READABLE)]
    uses_ids = version >= FETCH_IDS_SINCE
    names = {topic.topic_id if uses_ids else topic.topic.encode(): topic.topic for topic in topics}
    request = FetchRequest(max_wait_ms=200, min_bytes=1, session_epoch=-1, topics=topics)
    wrong = partial(_wrong_fetch, names, uses_ids, True)
    return Ask(request, version, wrong, leader_of=(topics[0].topic, 0))


def _wrong_fetch(names: dict[bytes, str], uses_ids: bool, is_full: bool, seen: Seen, response: Any) -> str | None:
    """`names` are those that are fetched: those that are denied are in every answer."""
    if response.error_code:
        return None

    def each() -> Iterator[str | None]:
        answers = {topic.topic_id if uses_ids else topic.topic.encode(): topic for topic in response.responses}
        for key, name in names.items():
            what, answer = f"fetch of {name}", answers.get(key)
            is_known = not uses_ids or seen.name_of(key) is not None
            is_allowed = seen.topic(READ, name)
            if answer is None:
                yield f"{what} was not answered" if is_full or (is_known and not is_allowed) else None
            else:
                yield _wrong_partition(what, answer.partitions[0], is_known=is_known, is_allowed=is_allowed)
        yield f"there is more than {names} in the answer" if answers.keys() - names.keys() else None

    return first_wrong(each())


def _wrong_partition(what: str, data: Any, *, is_known: bool, is_allowed: bool) -> str | None:
    """A session knows the name of a topic that is gone."""
    if not is_known:
        is_allowed = is_allowed or data.error_code != TOPIC_CODE
        if data.records:
            return f"{what} is unknown and has records"
    wrong = wrong_code(what, data.error_code, TOPIC_CODE, is_allowed=is_allowed)
    if wrong is not None or is_allowed:
        return wrong
    shown = {"records": bytes(data.records or b""), "ends": (data.high_watermark, data.last_stable_offset)}
    return wrong_if_shown(
        what, shown | {"start": data.log_start_offset}, {"records": b"", "ends": (-1, -1), "start": -1}
    )


def fetch_as_follower(draw: Draw) -> Ask:
    """Who may act as a broker is refused too, for the broker epoch is none."""
    version = draw.version(4, 17)
    topics = [_fetched(name, draw.id_of(name)) for name in draw.names(READABLE)]
    request = FetchRequest(max_wait_ms=0, session_epoch=-1, topics=topics)
    replica_id = draw.rng.choice([1, 2, 3])
    if version >= REPLICA_STATE_SINCE:
        request.replica_state = ReplicaState(replica_id=replica_id, replica_epoch=1)
    else:
        request.replica_id = replica_id
    return Ask(request, version, _wrong_following)


def _wrong_following(seen: Seen, response: Any) -> str | None:
    is_allowed = seen.cluster(AclOperation.CLUSTER_ACTION)
    codes = [each.error_code for topic in response.responses for each in topic.partitions]
    if not is_allowed and not codes:
        return "fetch as a follower is denied and has no answer"
    return first_wrong(wrong_code("fetch as a follower", code, TOPIC_CODE, is_allowed=is_allowed) for code in codes)


# Others that name topics with partitions, and are answered in the same shape.


def list_offsets(draw: Draw) -> Ask:
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    names = draw.names(READABLE)
    topics = [ListOffsetsTopic(name=name, partitions=partitions) for name in names]
    wrong = partial(_wrong_parts, "list offsets of", "name", DESCRIBE, {"offset": -1, "timestamp": -1}, set(names))
    return Ask(ListOffsetsRequest(topics=topics), draw.version(1, 10), wrong, leader_of=(names[0], 0))


def offset_for_leader_epoch(draw: Draw) -> Ask:
    partitions = [OffsetForLeaderPartition(partition=0, leader_epoch=0)]
    names = draw.names(READABLE)
    topics = [OffsetForLeaderTopic(topic=name, partitions=partitions) for name in names]
    check = partial(_wrong_parts, "end of an epoch of", "topic", DESCRIBE, {"end_offset": -1}, set(names))

    def wrong(seen: Seen, response: Any) -> str | None:
        if not seen.cluster(AclOperation.CLUSTER_ACTION):
            return check(seen, response)
        return "a broker was refused" if _refused(response.topics) else None

    return Ask(OffsetForLeaderEpochRequest(topics=topics), draw.version(2, 4), wrong, leader_of=(names[0], 0))


def describe_producers(draw: Draw) -> Ask:
    names = draw.names(READABLE)
    request = DescribeProducersRequest(topics=[ProducersTopic(name=name, partition_indexes=[0]) for name in names])
    wrong = partial(_wrong_parts, "producers of", "name", READ, {"active_producers": []}, set(names))
    return Ask(request, 0, wrong, leader_of=(names[0], 0))


def delete_records(draw: Draw) -> Ask:
    """None: who may, deletes what lies before the first record."""
    partitions = [DeleteRecordsPartition(partition_index=0, offset=0)]
    names = draw.names(NAMES)
    topics = [DeleteRecordsTopic(name=name, partitions=partitions) for name in names]
    wrong = partial(_wrong_parts, "delete records of", "name", DELETE, {"low_watermark": -1}, set(names))
    request = DeleteRecordsRequest(topics=topics, timeout_ms=1_000)
    return Ask(request, draw.version(0, 2), wrong, leader_of=(names[0], 0))


def _wrong_parts(
    what: str, name: str, operation: AclOperation, hidden: dict[str, Any], asked: set[str], seen: Seen, response: Any
) -> str | None:
    def each() -> Iterator[str | None]:
        for topic in response.topics:
            about, is_allowed = f"{what} {getattr(topic, name)}", seen.topic(operation, getattr(topic, name))
            for part in topic.partitions:
                yield wrong_code(about, part.error_code, TOPIC_CODE, is_allowed=is_allowed)
                if not is_allowed:
                    yield wrong_if_shown(about, {field: getattr(part, field) for field in hidden}, hidden)
        answered = {getattr(topic, name) for topic in response.topics}
        yield None if answered == asked else f"{what} {asked} was answered for {answered}"

    return first_wrong(each())


def _refused(topics: Any) -> bool:
    return any(part.error_code == TOPIC_CODE for topic in topics for part in topic.partitions)


ASKS: list[Callable[[Draw], Ask]] = [
    produce,
    produce,
    produce,
    fetch_once,
    fetch_as_follower,
    list_offsets,
    offset_for_leader_epoch,
    describe_producers,
    delete_records,
]
