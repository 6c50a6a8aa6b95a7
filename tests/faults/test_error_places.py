"""Where an injected error goes, in every version of every API, as kio's decoder reads the answer."""

import dataclasses
import enum
import re
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.server.apis import APIS, Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema import fields_of, response_header_is_tagged
from ottla.testing.faults.error_codes import codes_of
from ottla.testing.faults.error_places import places_of
from ottla.testing.faults.request_units import levels_of, units_of
from ottla.testing.faults.responses import FaultyResponse
from tests.faults.plain_routes import APIS_BY_NAME, Served, request_of
from tests.protocol.kio_oracle import their_entity

# API, versions, what the rule names (- for nothing), and where the error stands in the answer then.
EXPECTED = """
Produce 3-13 partition responses[1].partition_responses[1]
Produce 3-13 - responses[*].partition_responses[*]
Fetch 4-18 partition responses[1].partitions[1]
Fetch 7-18 session top
ListOffsets 1-10 partition topics[1].partitions[1]
Metadata 0-13 topic topics[1]
Metadata 0-13 partition topics[1].partitions[1]
Metadata 13-13 bootstrap top
OffsetCommit 2-9 partition topics[1].partitions[1]
OffsetCommit 2-9 group topics[*].partitions[*]
OffsetFetch 1-7 partition topics[1].partitions[1]
OffsetFetch 2-7 group top
OffsetFetch 8-9 partition groups[1].topics[1].partitions[1]
OffsetFetch 8-9 group groups[1]
FindCoordinator 0-3 - top
FindCoordinator 4-6 key coordinators[1]
JoinGroup 0-9 - top
Heartbeat 0-4 - top
LeaveGroup 0-5 - top
LeaveGroup 3-5 member members[1]
SyncGroup 0-5 - top
DescribeGroups 0-6 group groups[1]
ListGroups 0-5 - top
SaslHandshake 0-1 - top
ApiVersions 0-4 - top
CreateTopics 2-7 topic topics[1]
DeleteTopics 1-6 topic responses[1]
DeleteRecords 0-2 partition topics[1].partitions[1]
InitProducerId 0-5 - top
OffsetForLeaderEpoch 2-4 partition topics[1].partitions[1]
AddPartitionsToTxn 0-3 partition results_by_topic_v3_and_below[1].results_by_partition[1]
AddPartitionsToTxn 4-5 partition results_by_transaction[1].topic_results[1].results_by_partition[1]
AddPartitionsToTxn 4-5 - top
AddOffsetsToTxn 0-4 - top
EndTxn 0-5 - top
WriteTxnMarkers 1-2 partition markers[*].topics[1].partitions[1]
TxnOffsetCommit 0-5 partition topics[1].partitions[1]
DescribeAcls 1-3 - top
CreateAcls 1-3 - results[*]
DeleteAcls 1-3 - filter_results[*]
DescribeConfigs 1-4 group results[1]
AlterConfigs 0-2 group responses[1]
AlterReplicaLogDirs 1-2 partition results[1].partitions[1]
DescribeLogDirs 1-2 - results[*]
DescribeLogDirs 3-4 - top
SaslAuthenticate 0-2 - top
CreatePartitions 0-3 topic results[1]
DeleteGroups 0-2 group results[1]
ElectLeaders 0-2 partition replica_election_results[1].partition_result[1]
ElectLeaders 1-2 - top
IncrementalAlterConfigs 0-1 group responses[1]
AlterPartitionReassignments 0-1 partition responses[1].partitions[1]
AlterPartitionReassignments 0-1 - top
ListPartitionReassignments 0-0 - top
OffsetDelete 0-0 partition topics[1].partitions[1]
OffsetDelete 0-0 - top
DescribeClientQuotas 0-1 - top
AlterClientQuotas 0-1 - entries[*]
DescribeUserScramCredentials 0-0 - top
AlterUserScramCredentials 0-0 - results[*]
DescribeQuorum 0-2 partition topics[1].partitions[1]
DescribeQuorum 0-2 - top
UpdateFeatures 0-2 - top
DescribeCluster 0-2 - top
DescribeProducers 0-0 partition topics[1].partitions[1]
UnregisterBroker 0-0 - top
DescribeTransactions 0-0 transactional_id transaction_states[1]
ListTransactions 0-2 - top
ListConfigResources 0-1 - top
DescribeTopicPartitions 0-0 topic topics[1]
DescribeTopicPartitions 0-0 partition topics[1].partitions[1]
"""
# The second of each, as `plain_routes` names them.
NAMES: dict[str, dict[str, Any]] = {
    "-": {},
    "session": {},
    "bootstrap": {},
    "topic": {"topic": "payments"},
    "partition": {"topic": "payments", "partition": 1},
    "group": {},
    "key": {"key": "key-1"},
    "member": {"member": "member-1"},
    "transactional_id": {"transactional_id": "transactional_id-1"},
}
OF_SESSIONS = [code for code in ErrorCode if code.name.startswith(("FETCH_SESSION", "INVALID_FETCH_SESSION"))]
OF_UNITS = {
    "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID", "INVALID_TOPIC_EXCEPTION", "TOPIC_AUTHORIZATION_FAILED",
    "NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", "UNSTABLE_OFFSET_COMMIT",
    "GROUP_SUBSCRIBED_TO_TOPIC",
}  # fmt: skip
# In what deletes what it finds, and of the configs of a topic that was created: not what the request has asked for.
NO_PLACES = {"filter_results.matching_acls.error_code", "topics.topic_config_error_code"}


def rows() -> Iterator[Any]:
    for line in EXPECTED.strip().splitlines():
        name, span, named, path = line.split()
        first, last = map(int, span.split("-"))
        for version in range(first, last + 1):
            yield pytest.param(APIS_BY_NAME[name], version, named, path, id=f"{name}-{version}-{named}")


def codes(api: Api, version: int, named: str, path: str) -> list[ErrorCode]:
    """Those that belong there."""
    if named == "session":
        return OF_SESSIONS
    if named == "bootstrap":
        return [ErrorCode.REBOOTSTRAP_REQUIRED]
    left = codes_of(api) - {*OF_SESSIONS, ErrorCode.REBOOTSTRAP_REQUIRED, ErrorCode.STALE_BROKER_EPOCH}
    if path == "top" and len(places_of(api, version)) > 1:
        left = {code for code in left if code.name not in OF_UNITS}
    return sorted(left)


def errors_by_path(value: Any, path: str = "") -> Iterator[tuple[str, int]]:
    """Of an entity of kio."""
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        if field.name in ("error_code", "partition_error_code"):
            yield path.strip(".") or "top", inner.value if isinstance(inner, enum.Enum) else inner
        for index, each in enumerate(inner if isinstance(inner, tuple) else ()):
            if dataclasses.is_dataclass(each):
                yield from errors_by_path(each, f"{path}.{field.name}[{index}]")


@pytest.mark.parametrize(("api", "version", "named", "path"), list(rows()))
def test_error_stands_in_its_place_and_nowhere_else(api: Api, version: int, named: str, path: str) -> None:
    for code in codes(api, version, named, path):
        rule = {"match": {"api": api.name, "peer": peer(api, version), **names(api, version, named)}}
        served = Served(api, version, {**rule, "do": {"error": code.name}})

        errors = dict(errors_by_path(decoded(api, version, served.frame())))

        expected = {where: int(code) if matches(where, path) else 0 for where in errors}
        assert errors == expected, f"{code.name}: {errors}"
        assert int(code) in errors.values(), f"{code.name} is nowhere in {errors}"
        left = left_to_serve(api, version, named, path)
        assert (served.asked and [unit.values for unit in served.asked]) == left, code


@pytest.mark.parametrize("version", range(2, 8))
def test_error_at_the_top_fails_the_whole_request(version: int) -> None:
    api = APIS_BY_NAME["OffsetFetch"]
    match = {"api": api.name, **NAMES["partition"]}
    served = Served(api, version, {"match": match, "do": {"error": "UNKNOWN_TOPIC_OR_PARTITION", "at": "top"}})

    errors = dict(errors_by_path(decoded(api, version, served.frame())))

    assert (errors, served.asked) == ({"top": int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}, None)


def left_to_serve(api: Api, version: int, named: str, path: str) -> list[dict[str, Any]] | None:
    """Which units the handler is asked for; None: it is not called."""
    levels = levels_of(api, version)
    units = units_of(request_of(api, version), levels)
    if path == "top":
        return None
    is_only_read = api.name in ("Fetch", "DescribeLogDirs")
    if is_only_read or (named == "partition" and not any(key.field == "partition" for key in levels[-1].keys)):
        return [unit.values for unit in units]
    left: list[dict[str, Any]] = []
    for unit in units:
        steps = [f"{level.answered}[{index}]" for level, index in zip(levels, unit.path, strict=True) if level.answered]
        if not any(matches(".".join(steps[:depth]), path) for depth in range(1, len(steps) + 1)):
            left.append(unit.values)
    return left or None


def decoded(api: Api, version: int, frame: bytes) -> Any:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 7
    header = 9 if response_header_is_tagged(api.response_class(), version) else 8
    return their_entity(api.response_class(), version, frame[header:])


def peer(api: Api, version: int) -> str:
    is_of_brokers = api.name == "WriteTxnMarkers" or (api.name == "AddPartitionsToTxn" and version >= 4)
    return "broker" if is_of_brokers else "client"


def names(api: Api, version: int, named: str) -> dict[str, Any]:
    """The second one of each; where the whole request is of a group, that one."""
    found = dict(NAMES[named])
    has_groups = any(key.field == "group" for level in levels_of(api, version) for key in level.keys)
    if named == "group":
        found["group"] = "bank" if has_groups else "shop"
    elif named == "partition" and len(levels_of(api, version)) == 3 and api.name == "OffsetFetch":
        found["group"] = "bank"
    elif named == "partition" and len(levels_of(api, version)) == 3 and api.name == "AddPartitionsToTxn":
        found["transactional_id"] = "tx-1"
    return found


def matches(where: str, path: str) -> bool:
    """`[*]` stands for each index."""
    return re.fullmatch(re.escape(path).replace(r"\[\*\]", r"\[\d\]"), where) is not None


def test_every_error_field_of_every_version_is_a_place() -> None:
    missing: list[str] = []
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            fields = {path for path in error_fields(api.response_class(), version) if path not in NO_PLACES}
            # One line for each depth; two arrays at one depth do not occur.
            if len(fields) != len(places_of(api, version)):
                missing.append(f"{api.name} v{version}: {fields}, {places_of(api, version)}")
    assert missing == []


def error_fields(owner: Any, version: int, path: str = "") -> Iterator[str]:
    for field in fields_of(owner):
        if version not in field.versions:
            continue
        if field.name.endswith("error_code"):
            yield f"{path}{field.name}"
        if field.struct is not None:
            yield from error_fields(field.struct, version, f"{path}{field.name}.")


COMPANIONS = {
    "Produce": {"base_offset": -1, "log_append_time_ms": -1, "log_start_offset": -1},
    "Fetch": {"high_watermark": -1, "records": b""},
    "ListOffsets": {"timestamp": -1, "offset": -1},
    "DeleteRecords": {"low_watermark": -1},
    "OffsetForLeaderEpoch": {"leader_epoch": -1, "end_offset": -1},
}


@pytest.mark.parametrize("name", COMPANIONS)
def test_other_fields_of_a_failed_partition_are_kafkas(name: str) -> None:
    api = APIS_BY_NAME[name]
    served = Served(
        api, api.max_version, {"match": {"api": name, "partition": 1}, "do": {"error": "NOT_LEADER_OR_FOLLOWER"}}
    )

    message = FaultyResponse.decoded(served.plain, served.frame())
    topics = message.responses if hasattr(message, "responses") else message.topics
    partitions = topics[0].partition_responses if name == "Produce" else topics[0].partitions
    found = {field: getattr(partitions[1], field) for field in COMPANIONS[name]}
    assert found == COMPANIONS[name]


@pytest.mark.parametrize("version", [0, 5, 9])
def test_failed_join_has_no_generation_and_no_members(version: int) -> None:
    api = APIS_BY_NAME["JoinGroup"]
    served = Served(api, version, {"match": {"api": "JoinGroup"}, "do": {"error": "UNKNOWN_MEMBER_ID"}})

    message = FaultyResponse.decoded(served.plain, served.frame())

    assert (message.generation_id, message.members, message.member_id) == (-1, [], "m-1")


def test_coordinator_that_is_not_found_is_no_node() -> None:
    api = APIS_BY_NAME["FindCoordinator"]
    for version in (2, 6):
        rule = {"match": {"api": "FindCoordinator"}, "do": {"error": "COORDINATOR_NOT_AVAILABLE"}}
        served = Served(api, version, rule)
        message = FaultyResponse.decoded(served.plain, served.frame())
        found = message if version < 4 else message.coordinators[0]
        assert (found.node_id, found.host, found.port) == (-1, "", -1)
