"""Topics, their records and the jobs of their logs over HTTP."""

from collections.abc import Mapping
from typing import Any, Final

from ottla.protocol.records.record import Record
from ottla.testing.control.documents import (
    LogChanges,
    RecordDocument,
    Records,
    RecordsWritten,
    TopicDocument,
    TopicNames,
    WrittenAt,
)
from ottla.testing.control.problems import missing, wrong_state, wrong_value
from ottla.testing.control.questions import EmptyBody, NewRecord, NewRecords, NewTopicBody, TopicChange
from ottla.testing.control.router import ControlCall, QueryField, Row
from ottla.testing.control.service import ControlService, check_range, checked_wait
from ottla.testing.log_records import ISOLATION
from ottla.testing.reading import TooManyRecordsError, near_names
from ottla.testing.views import TopicView
from ottla.testing.waits import DeadlineExceeded, Explanation

PARTITIONS_MAX: Final = 10_000
"""Of one topic: a test that wants more has mistyped."""
RECORDS_SHOWN: Final = 1000
ACKS: Final = {"all": -1, "1": 1, "0": 0}
INT32_MAX: Final = (1 << 31) - 1
SCALARS: Final = str | int | float | bool


def _topics(service: ControlService, _call: ControlCall) -> TopicNames:
    return TopicNames(_own_topics(service))


def _own_topics(service: ControlService) -> list[str]:
    return list(filter(service.scope.covers, service.bed.reader.topic_names()))


async def _create_topic(service: ControlService, call: ControlCall) -> TopicDocument:
    body: NewTopicBody = call.body
    if body.partitions is not None:
        check_range("partitions", body.partitions, 1, PARTITIONS_MAX)
    if body.replication_factor is not None:
        check_range("replication_factor", body.replication_factor, 1, INT32_MAX >> 16)
    _check_configs(body.configs or {})
    await service.bed.writer.create_topic(body.name, body.partitions, body.replication_factor, body.configs or {})
    return TopicDocument.of(_view(service, body.name))


def _check_configs(configs: Mapping[str, Any], *, may_be_null: bool = False) -> None:
    """Raises Problem."""
    for name, value in configs.items():
        if not (isinstance(value, SCALARS) or (may_be_null and value is None)):
            raise wrong_value(f"configs.{name}", "expected a text, a number, true or false")


def _topic(service: ControlService, call: ControlCall) -> TopicDocument:
    return TopicDocument.of(_view(service, call.path["topic"]))


async def _change_topic(service: ControlService, call: ControlCall) -> TopicDocument:
    body: TopicChange = call.body
    view = _view(service, call.path["topic"])
    _check_configs(body.configs or {}, may_be_null=True)
    befores = by_partition(view, "delete_records_before", body.delete_records_before or {})
    if body.partitions is not None:
        check_range("partitions", body.partitions, 1, PARTITIONS_MAX)
        await service.bed.writer.add_partitions(view.name, body.partitions)
    for partition, before in befores.items():
        await service.bed.writer.delete_records(view.name, partition, before)
    if body.configs:
        await service.bed.writer.alter_topic(view.name, body.configs)
    return TopicDocument.of(_view(service, view.name))


async def _delete_topic(service: ControlService, call: ControlCall) -> TopicNames:
    name = _view(service, call.path["topic"]).name
    await service.bed.writer.delete_topic(name)
    return TopicNames([each for each in _own_topics(service) if each != name])


async def _records(service: ControlService, call: ControlCall) -> Records:
    name, query = call.path["topic"], call.query
    partition, start, limit = query["partition"], query["start"], query["limit"]
    isolation = query["isolation"]
    if isolation not in ISOLATION:
        raise wrong_value("isolation", f"expected one of {', '.join(ISOLATION)}")
    wait_ms = checked_wait(query["wait_ms"], "wait_ms")
    if wait_ms:
        await _arrived(_Arrival(service, name, partition, start, isolation), wait_ms)
    view = _view(service, name)
    if partition is not None and partition >= len(view.partitions):
        raise missing("partition", f"{name} has {len(view.partitions)} partitions, from 0 on")
    try:
        found = service.bed.reader.records(name, partition, start, query["stop"], isolation, limit)
    except TooManyRecordsError as error:
        raise wrong_state(str(error)) from None
    return Records([RecordDocument.of(each) for each in found])


async def _arrived(arrival: "_Arrival", wait_ms: int) -> None:
    """Until there is a record, at most so long."""
    try:
        await arrival.service.wait(arrival, wait_ms)
    except DeadlineExceeded:
        return


class _Arrival:
    def __init__(self, service: ControlService, name: str, partition: int | None, start: int, isolation: str) -> None:
        self.service = service
        self._name, self._partition, self._start, self._isolation = name, partition, start, isolation
        self.wanted = f"no record of {name} from {start} on came"

    def is_met(self) -> bool:
        return self.service.bed.reader.has_records(self._name, self._partition, self._start, self._isolation)

    def explain(self) -> Explanation:
        return Explanation(self.wanted)


async def _produce(service: ControlService, call: ControlCall) -> RecordsWritten:
    body: NewRecords = call.body
    if body.partition is not None:
        check_range("partition", body.partition, 0, INT32_MAX)
    for index, each in enumerate(body.records):
        if each.timestamp is not None and each.timestamp < 0:
            raise wrong_value(f"records[{index}].timestamp", "expected milliseconds since 1970")
    places = await service.bed.writer.produce(
        call.path["topic"],
        [_record(each) for each in body.records],
        partition=body.partition,
        acks=ACKS[body.acks],
        compression=body.compression,
    )
    return RecordsWritten([WrittenAt(partition, offset) for partition, offset in places])


def _record(given: NewRecord) -> Record:
    headers = [(each.name, each.value) for each in given.headers]
    timestamp = -1 if given.timestamp is None else given.timestamp
    return Record(timestamp=timestamp, key=given.key, value=given.value, headers=headers)


async def _roll(service: ControlService, call: ControlCall) -> LogChanges:
    return LogChanges(await service.bed.log_jobs.roll(_view(service, call.path["topic"]).name))


async def _apply_retention(service: ControlService, call: ControlCall) -> LogChanges:
    return LogChanges(await service.bed.log_jobs.apply_retention(_view(service, call.path["topic"]).name))


async def _compact(service: ControlService, call: ControlCall) -> LogChanges:
    return LogChanges(await service.bed.log_jobs.compact(_view(service, call.path["topic"]).name))


def _view(service: ControlService, name: str) -> TopicView:
    """Raises Problem."""
    reader = service.bed.reader
    view = reader.topic(name)
    if view is None:
        raise missing("topic", f"there is no topic {name!r}; {near_names('topic', name, reader.topic_names())}")
    return view


def by_partition(view: TopicView, field: str, given: Mapping[str, int]) -> dict[int, int]:
    """Raises Problem."""
    known = {str(each.partition): each.partition for each in view.partitions}
    for name in given:
        if name not in known:
            raise wrong_value(f"{field}.{name}", f"{view.name} has {len(known)} partitions, from 0 on")
    return {known[name]: offset for name, offset in given.items()}


_QUERY: Final = (
    QueryField("partition", "Of this partition alone."),
    QueryField("start", "From this offset on, in each partition.", 0),
    QueryField("stop", "Before this offset."),
    QueryField("limit", "More than these are refused.", RECORDS_SHOWN),
    QueryField("wait_ms", "Where there is none yet, wait so long.", 0),
    QueryField("isolation", f"One of {', '.join(ISOLATION)}.", ISOLATION[0], is_number=False),
)
# fmt: off
LOG_ROWS: Final = (
    Row("GET", "/v1/topics", "The names of topics.", _topics, answer=TopicNames),
    Row("POST", "/v1/topics", "Make a topic.", _create_topic, NewTopicBody, TopicDocument, status=201, changes=True),
    Row("GET", "/v1/topics/{topic}", "A topic.", _topic, answer=TopicDocument),
    Row("PATCH", "/v1/topics/{topic}", "Add partitions, delete records, set configs.", _change_topic, TopicChange,
        TopicDocument, changes=True),
    Row("DELETE", "/v1/topics/{topic}", "Delete a topic.", _delete_topic, answer=TopicNames, changes=True),
    Row("GET", "/v1/topics/{topic}/records", "What consumers would read.", _records, answer=Records, query=_QUERY),
    Row("POST", "/v1/topics/{topic}/records", "Produce.", _produce, NewRecords, RecordsWritten, changes=True),
    Row("POST", "/v1/topics/{topic}/roll", "Begin new segments.", _roll, EmptyBody, LogChanges, changes=True),
    Row("POST", "/v1/topics/{topic}/retention", "Apply retention now.", _apply_retention, EmptyBody, LogChanges,
        changes=True),
    Row("POST", "/v1/topics/{topic}/compact", "Compact now.", _compact, EmptyBody, LogChanges, changes=True),
)
# fmt: on
