"""Requests that clients get wrong, or that are seldom sent."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.incremental_alter_configs import AlterableConfig as IncrementalConfig
from ottla.protocol.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from ottla.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest
from ottla.protocol.primitives import ZERO_UUID
from tests.broker.awkward_partitions import about_partitions
from tests.broker.requests import (
    assigned,
    commit,
    delete_offsets,
    delete_records,
    describe_configs,
    epoch_end,
    fetch,
    fetch_by_id,
    fetch_offsets,
    grown,
    heartbeat,
    join,
    leave,
    list_offsets,
    metadata,
    offsets_of_group,
    produce,
    sync,
    topic,
    with_magic,
)
from tests.broker.wire import batch

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


class Asked(NamedTuple):
    what: str
    request: Any
    version: int


class Busy(NamedTuple):
    """A group with one member, Stable, subscribed to the topic orders."""

    member_id: str
    generation: int


class World(NamedTuple):
    """What the awkward requests find: the topics orders (two partitions) and table (compacted), the group busy, and
    the group simple, which has an offset of orders 0 and never had a member."""

    bootstrap: str
    orders_id: bytes
    busy: Busy
    session_id: int


def awkward_requests(world: World) -> Iterator[Asked]:
    yield from _about_joining(world)
    yield from _about_members(world)
    yield from _about_offsets(world)
    yield from _about_groups(world)
    yield from _about_topics()
    yield from _about_configs()
    yield from _about_records(world)
    yield from _about_the_cluster(world)
    yield from (Asked(*each) for each in about_partitions())


def _about_joining(world: World) -> Iterator[Asked]:
    member = world.busy.member_id
    yield Asked("join without a group id", join(""), 9)
    yield Asked("join with a session below the least", join("no session", session_timeout_ms=5_999), 9)
    yield Asked("join with a session above the most", join("no session", session_timeout_ms=1_800_001), 9)
    yield Asked("join an unknown group with a member id", join("g", "m"), 9)
    yield Asked("join without a protocol type", join("no type", protocol_type=""), 9)
    yield Asked("join without protocols", join("no protocols", protocols=[]), 9)
    yield Asked("join without a member id", join("pending"), 4)
    yield Asked("join another kind of group", join("busy", protocol_type="connect"), 9)
    yield Asked("join with unknown protocols", join("busy", protocols=["sticky"]), 9)
    yield Asked("join as an unknown member", join("busy", "m"), 9)
    yield Asked("join as an unknown static member", join("busy", member, group_instance_id="static"), 9)
    yield Asked("join with a bad session in a group that exists", join("busy", member, session_timeout_ms=1), 9)


def _about_members(world: World) -> Iterator[Asked]:
    member, generation = world.busy
    yield Asked("sync without a group id", sync("", "m", 1), 3)
    yield Asked("sync in an unknown group", sync("g", "m", 1), 3)
    yield Asked("sync as an unknown member", sync("busy", "m", generation), 3)
    yield Asked("sync as an unknown member with an old generation", sync("busy", "m", generation - 1), 3)
    yield Asked("sync with an old generation", sync("busy", member, generation - 1), 3)
    yield Asked("sync without a protocol", sync("busy", member, generation), 5)
    other = sync("busy", member, generation, protocol_type="consumer", protocol_name="sticky")
    yield Asked("sync with another protocol", other, 5)
    yield Asked("sync as an unknown static member", sync("busy", member, generation, group_instance_id="static"), 3)
    yield Asked("heartbeat without a group id", heartbeat("", "m", 1), 4)
    yield Asked("heartbeat in an unknown group", heartbeat("g", "m", 1), 4)
    yield Asked("heartbeat as an unknown member", heartbeat("busy", "m", generation), 4)
    yield Asked("heartbeat with an old generation", heartbeat("busy", member, generation - 1), 4)
    yield Asked("heartbeat with a future generation", heartbeat("busy", member, generation + 1), 4)
    yield Asked("heartbeat in an empty group", heartbeat("simple", "m", 0), 4)
    yield Asked("leave without a group id", leave("", ("m", None)), 3)
    yield Asked("leave an unknown group", leave("g", ("m", None), ("n", "static")), 3)
    yield Asked("leave an unknown group alone", LeaveGroupRequest(group_id="g", member_id="m"), 2)
    yield Asked("leave as unknown members", leave("busy", ("m", None), ("", "static"), ("", None)), 3)
    yield Asked("leave as another's static member", leave("busy", (member, "static")), 3)


def _about_offsets(world: World) -> Iterator[Asked]:
    member, generation = world.busy
    yield Asked("commit to an unknown group with a generation", commit("g", "orders", 1, "m"), 8)
    yield Asked("commit to an unknown group with an epoch", commit("g", "orders", 1, "m"), 9)
    yield Asked("commit to an unknown group with a member id", commit("h", "orders", -1, "m"), 8)
    yield Asked("commit to an unknown group as a static member", commit("i", "orders", -1, "m", "static"), 8)
    yield Asked("commit without a group id", commit("", "orders"), 8)
    yield Asked("commit for an unknown topic", commit("simple", "nowhere"), 8)
    yield Asked("commit for an unknown partition", commit("simple", "orders", partition=9), 8)
    yield Asked("commit to a group with members", commit("busy", "orders"), 8)
    yield Asked("commit as an unknown member", commit("busy", "orders", generation, "m"), 8)
    yield Asked("commit with an old generation", commit("busy", "orders", generation - 1, member), 8)
    yield Asked("commit as a member without a generation", commit("busy", "orders", -1, member), 8)
    yield Asked("commit as an unknown static member", commit("busy", "orders", generation, member, "static"), 8)
    yield Asked("commit with a generation to an empty group", commit("simple", "orders", 1, "m"), 8)
    yield Asked("commit as a member to an empty group", commit("simple", "orders", -1, "m"), 8)
    yield Asked("commit with metadata of 4,096", commit("simple", "orders", metadata="x" * 4096), 8)
    yield Asked("commit with metadata of 4,097", commit("simple", "orders", metadata="x" * 4097), 8)
    # Two UTF-16 units and four bytes each.
    yield Asked("commit with 2,048 characters beyond the BMP", commit("simple", "orders", metadata="😀" * 2048), 8)
    yield Asked("commit with 2,049 characters beyond the BMP", commit("simple", "orders", metadata="😀" * 2049), 8)
    yield Asked("commit with 4,096 characters of two bytes", commit("simple", "orders", metadata="ü" * 4096), 8)
    yield Asked("commit without metadata", commit("simple", "orders", metadata=None), 8)
    yield Asked("commit a negative offset", commit("simple", "orders", offset=-1), 8)
    yield Asked("commit nothing", OffsetCommitRequest(group_id="simple"), 8)
    yield Asked("fetch offsets of an unknown group", fetch_offsets("g", "orders"), 7)
    yield Asked("fetch all offsets of an unknown group", OffsetFetchRequest(group_id="g", topics=None), 7)
    yield Asked("fetch offsets of an unknown topic", fetch_offsets("simple", "nowhere"), 7)
    yield Asked("fetch offsets without a group id", fetch_offsets("", "orders"), 7)
    groups = [offsets_of_group("simple"), offsets_of_group("g"), offsets_of_group("")]
    yield Asked("fetch offsets of several groups", OffsetFetchRequest(groups=groups), 8)
    stranger = [offsets_of_group("busy", "m", 5)]
    yield Asked("fetch offsets with a member epoch", OffsetFetchRequest(groups=stranger), 9)
    yield Asked("delete offsets of an unknown group", delete_offsets("g", "orders"), 0)
    yield Asked("delete offsets of a subscribed topic", delete_offsets("busy", "orders"), 0)
    yield Asked("delete offsets of another topic", delete_offsets("busy", "table"), 0)
    yield Asked("delete offsets of an unknown topic", delete_offsets("simple", "nowhere"), 0)
    yield Asked("delete offsets of an unknown partition", delete_offsets("simple", "orders", 9), 0)
    yield Asked("delete offsets without a group id", delete_offsets("", "orders"), 0)
    yield Asked("delete offsets that do not exist", delete_offsets("simple", "table"), 0)


def _about_groups(world: World) -> Iterator[Asked]:
    yield Asked("describe unknown groups", DescribeGroupsRequest(groups=["g", "never used", ""]), 5)
    yield Asked("describe unknown groups, with an error", DescribeGroupsRequest(groups=["g", ""]), 6)
    yield Asked("describe known groups", DescribeGroupsRequest(groups=["busy", "simple", "pending"]), 6)
    yield Asked("delete groups", DeleteGroupsRequest(groups_names=["g", "busy", "", "pending"]), 2)
    yield Asked("list groups in unknown states", ListGroupsRequest(states_filter=["Sleeping"]), 5)
    yield Asked("list groups of unknown types", ListGroupsRequest(types_filter=["heap"]), 5)
    keys = ["g", ""]
    yield Asked("find coordinators of groups", FindCoordinatorRequest(coordinator_keys=keys), 4)
    yield Asked("find a coordinator of nothing known", FindCoordinatorRequest(key="g", key_type=7), 3)
    yield Asked("find coordinators of nothing known", FindCoordinatorRequest(coordinator_keys=keys, key_type=7), 4)
    yield Asked("find coordinators of shares too early", FindCoordinatorRequest(coordinator_keys=keys, key_type=2), 5)
    yield Asked("find no coordinators", FindCoordinatorRequest(coordinator_keys=[]), 4)


def _about_topics() -> Iterator[Asked]:
    yield from _about_creating_topics()
    yield from _about_creating_partitions()
    names = [DeleteTopicState(name="nowhere"), DeleteTopicState(topic_id=b"\1" * 16)]
    yield Asked("delete unknown topics", DeleteTopicsRequest(topics=names, timeout_ms=5000), 6)
    twice = [DeleteTopicState(name="orders"), DeleteTopicState(name="orders")]
    yield Asked("delete a topic twice", DeleteTopicsRequest(topics=twice, timeout_ms=5000), 6)
    neither = [DeleteTopicState(name=None, topic_id=ZERO_UUID)]
    yield Asked("delete a topic without name or id", DeleteTopicsRequest(topics=neither, timeout_ms=5000), 6)
    both = [DeleteTopicState(name="orders", topic_id=b"\1" * 16)]
    yield Asked("delete a topic by name and another's id", DeleteTopicsRequest(topics=both, timeout_ms=5000), 6)


def _about_creating_topics() -> Iterator[Asked]:
    def create(what: str, *topics: CreatableTopic) -> Asked:
        return Asked(f"create {what}", CreateTopicsRequest(topics=list(topics), validate_only=True), 7)

    bad_names = ["", ".", "..", "a b", "a/b", "ü", "a" * 250]
    yield create("topics with bad names", *(topic(name) for name in bad_names))
    yield create("a topic with the longest name", topic("a" * 249))
    yield create("a topic that exists", topic("orders"))
    yield create("a topic whose name collides", topic("or.ders"), topic("or_ders"))
    yield create("a topic twice in one request", topic("new"), topic("new"))
    yield create("a topic without partitions", topic("new", 0))
    yield create("a topic with fewer than no partitions", topic("new", -2))
    yield create("a topic with the default of partitions", topic("new", -1))
    yield create("a topic with too many replicas", topic("new", replicas=2))
    yield create("a topic without replicas", topic("new", replicas=0))
    yield create("a topic with the default of replicas", topic("new", replicas=-1))
    yield create("a topic with an unknown config", topic("new", configs={"no.such": "1"}))
    yield create("a topic with a bad number", topic("new", configs={"retention.ms": "soon"}))
    yield create("a topic with a number out of range", topic("new", configs={"retention.ms": "-2"}))
    yield create("a topic with a bad policy", topic("new", configs={"cleanup.policy": "shred"}))
    yield create("a topic with an empty policy", topic("new", configs={"cleanup.policy": ""}))
    yield create("a topic with a null config", topic("new", configs={"retention.ms": None}))
    yield create("a topic with tiny segments", topic("new", configs={"segment.bytes": "13"}))
    yield create("a topic assigned to the broker", assigned("new", {0: [1], 1: [1]}))
    yield create("a topic assigned to no broker", assigned("new", {0: []}))
    yield create("a topic assigned to a stranger", assigned("new", {0: [7]}))
    yield create("a topic assigned to one broker twice", assigned("new", {0: [1, 1]}))
    yield create("a topic assigned with a gap", assigned("new", {0: [1], 2: [1]}))
    yield create("a topic assigned from 1 on", assigned("new", {1: [1]}))
    yield create("a topic assigned unevenly", assigned("new", {0: [1], 1: [1, 7]}))
    counted = assigned("new", {0: [1]})
    counted.num_partitions, counted.replication_factor = 1, 1
    yield create("a topic both counted and assigned", counted)
    yield create("an internal topic", topic("__consumer_offsets"))
    yield create("the log of controllers", topic("__cluster_metadata"))
    yield create("nothing")


def _about_creating_partitions() -> Iterator[Asked]:
    def more(what: str, *topics: CreatePartitionsTopic) -> Asked:
        return Asked(
            f"partitions: {what}", CreatePartitionsRequest(topics=list(topics), timeout_ms=5000, validate_only=True), 3
        )

    yield more("of an unknown topic", CreatePartitionsTopic(name="nowhere", count=3))
    yield more("as many as there are", CreatePartitionsTopic(name="orders", count=2))
    yield more("fewer", CreatePartitionsTopic(name="orders", count=1))
    yield more("fewer than none", CreatePartitionsTopic(name="orders", count=-1))
    yield more("one topic twice", *[CreatePartitionsTopic(name="orders", count=3)] * 2)
    yield more("assigned too few", grown(4, [[1]]))
    yield more("assigned to a stranger", grown(3, [[7]]))
    yield more("assigned to no broker", grown(3, [[]]))
    yield more("assigned too many replicas", grown(3, [[1, 2]]))
    yield more("assigned to one broker twice", grown(3, [[1, 1]]))
    yield more("assigned well", grown(3, [[1]]))


def _about_configs() -> Iterator[Asked]:
    yield Asked("describe an unknown topic's configs", describe_configs(TOPIC, "nowhere"), 4)
    yield Asked("describe a bad topic name's configs", describe_configs(TOPIC, "a b"), 4)
    yield Asked("describe another broker's configs", describe_configs(BROKER, "7"), 4)
    yield Asked("describe a broker's configs by name", describe_configs(BROKER, "one"), 4)
    yield Asked("describe the defaults of brokers", describe_configs(BROKER, ""), 4)
    yield Asked("describe an unknown kind's configs", describe_configs(99, "x"), 4)
    yield Asked("describe one topic twice", describe_configs(TOPIC, "orders", "orders"), 4)
    yield from _about_altering_all()
    yield from _about_altering_some()


def _about_altering_all() -> Iterator[Asked]:
    def alter(what: str, name: str, value: str | None, kind: int = TOPIC, resource: str = "orders") -> Asked:
        change = AlterConfigsResource(
            resource_type=kind, resource_name=resource, configs=[AlterableConfig(name=name, value=value)]
        )
        return Asked(f"alter {what}", AlterConfigsRequest(resources=[change], validate_only=True), 2)

    yield alter("an unknown config", "no.such", "1")
    yield alter("a config to a bad value", "retention.ms", "soon")
    yield alter("a config to null", "retention.ms", None)
    yield alter("an unknown topic", "retention.ms", "1", resource="nowhere")
    yield alter("a bad topic name", "retention.ms", "1", resource="a b")
    yield alter("the configs of another broker", "message.max.bytes", "1000", BROKER, "7")
    yield alter("a broker's read-only config", "num.partitions", "2", BROKER, "1")
    yield alter("a broker's unknown config", "no.such", "2", BROKER, "1")
    yield alter("an unknown kind", "x", "1", 99, "x")


def _about_altering_some() -> Iterator[Asked]:
    def change(what: str, *changes: tuple[str, int, str | None], kind: int = TOPIC, name: str = "orders") -> Asked:
        configs = [IncrementalConfig(name=key, config_operation=how, value=value) for key, how, value in changes]
        resource = IncrementalResource(resource_type=kind, resource_name=name, configs=configs)
        return Asked(f"change {what}", IncrementalAlterConfigsRequest(resources=[resource], validate_only=True), 1)

    yield change("an unknown config", ("no.such", SET, "1"))
    yield change("an unknown config away", ("no.such", DELETE, None))
    yield change("a config to a bad value", ("retention.ms", SET, "soon"))
    yield change("a config to null", ("retention.ms", SET, None))
    yield change("a config twice", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    yield change("a number by appending", ("retention.ms", APPEND, "1"))
    yield change("a list by appending", ("cleanup.policy", APPEND, "compact"))
    yield change("a list by subtracting everything", ("cleanup.policy", SUBTRACT, "delete"))
    yield change("a config in an unknown way", ("retention.ms", 9, "1"))
    yield change("an unknown topic", ("retention.ms", SET, "1"), name="nowhere")
    yield change("another broker", ("message.max.bytes", SET, "1000"), kind=BROKER, name="7")
    yield change("a broker's read-only config", ("num.partitions", SET, "2"), kind=BROKER, name="1")
    yield change("a broker's config", ("message.max.bytes", SET, "1000"), kind=BROKER, name="1")
    yield change("all brokers' config", ("message.max.bytes", SET, "1000"), kind=BROKER, name="")
    yield change("a broker's config to a bad value", ("message.max.bytes", SET, "-1"), kind=BROKER, name="1")
    yield change("an unknown kind", ("x", SET, "1"), kind=99, name="x")
    yield change("nothing")


def _about_records(world: World) -> Iterator[Asked]:
    yield from _about_producing()
    yield from _about_fetching(world)
    yield from _about_finding_offsets()
    yield from _about_deleting_records()


def _about_producing() -> Iterator[Asked]:
    yield Asked("produce to an unknown topic", produce("nowhere"), 9)
    yield Asked("produce to an unknown partition", produce("orders", index=9), 9)
    yield Asked("produce with strange acks", produce("orders", acks=2), 9)
    yield Asked("produce to an internal topic", produce("__consumer_offsets"), 9)
    yield Asked("produce without a key to a compacted topic", produce("table"), 9)
    damaged = bytearray(batch(b"x"))
    damaged[-1] ^= 1
    yield Asked("produce a damaged batch", produce("orders", records=bytes(damaged)), 9)
    yield Asked("produce no batch", produce("orders", records=b""), 9)
    yield Asked("produce null", produce("orders", records=None), 9)
    two = batch(b"x") + batch(b"y")
    yield Asked("produce two batches", produce("orders", records=two), 9)
    yield Asked("produce too large a batch", produce("orders", records=batch(b"x" * 1_048_600)), 9)
    yield Asked("produce zstd too early", produce("orders", records=batch(b"x", codec=4)), 6)
    gap = batch(b"x", producer_id=4711, producer_epoch=0, base_sequence=5)
    yield Asked("produce a sequence from the middle", produce("orders", records=gap), 9)
    control = batch(b"x", control=True, producer_id=1, producer_epoch=0, base_sequence=0)
    yield Asked("produce a control batch", produce("orders", records=control), 9)
    yield Asked("produce a batch of unknown magic", produce("orders", records=with_magic(3)), 9)
    yield Asked("produce a batch of magic 1", produce("orders", records=with_magic(1)), 9)


def _about_fetching(world: World) -> Iterator[Asked]:
    session = world.session_id
    yield Asked("fetch an unknown topic", fetch("nowhere"), 11)
    yield Asked("fetch an unknown partition", fetch("orders", index=9), 11)
    yield Asked("fetch beyond the end", fetch("orders", offset=99), 11)
    yield Asked("fetch before the start", fetch("orders", offset=-5), 11)
    yield Asked("fetch at the end", fetch("orders", offset=1), 11)
    yield Asked("fetch with a future epoch", fetch("orders", epoch=9), 11)
    yield Asked("fetch by an unknown topic id", fetch_by_id(b"\1" * 16), 13)
    yield Asked("fetch by the zero topic id", fetch_by_id(ZERO_UUID), 13)
    yield Asked("fetch by topic id", fetch_by_id(world.orders_id), 13)
    yield Asked("fetch in an unknown session", fetch("orders", session_id=session + 1, session_epoch=1), 12)
    yield Asked("fetch at a wrong session epoch", fetch("orders", session_id=session, session_epoch=7), 12)
    yield Asked("fetch in no session at an epoch", fetch("orders", session_id=0, session_epoch=1), 12)
    by_id = fetch_by_id(world.orders_id)
    by_id.session_id, by_id.session_epoch = session, 1
    yield Asked("fetch by topic id in a session by names", by_id, 13)
    yield Asked("fetch in the session", fetch("orders", session_id=session, session_epoch=1), 12)
    yield Asked("fetch nothing", FetchRequest(max_wait_ms=0), 12)


def _about_finding_offsets() -> Iterator[Asked]:
    yield Asked("find offsets of an unknown topic", list_offsets("nowhere"), 7)
    yield Asked("find offsets of an unknown partition", list_offsets("orders", 9), 7)
    yield Asked("find offsets of a partition twice", list_offsets("orders", 0, 0), 7)
    yield Asked("find offsets with a future epoch", list_offsets("orders", 0, epoch=9), 7)
    yield Asked("find the offset of the future", list_offsets("orders", 0, timestamp=1 << 60), 7)
    for timestamp, version in ((-3, 7), (-4, 8), (-5, 9), (-3, 6), (-4, 7), (-6, 10), (-9, 10)):
        asked = list_offsets("orders", 0, timestamp=timestamp)
        yield Asked(f"find the offset of {timestamp} in version {version}", asked, version)
    yield Asked("find the end of an epoch", epoch_end("orders", 0, leader_epoch=0), 4)
    yield Asked("find the end of an epoch of an unknown topic", epoch_end("nowhere", 0), 4)
    yield Asked("find the end of an epoch of an unknown partition", epoch_end("orders", 9), 4)
    yield Asked("find the end of an epoch with a future epoch", epoch_end("orders", 0, current=9), 4)


def _about_deleting_records() -> Iterator[Asked]:
    yield Asked("delete records of an unknown topic", delete_records("nowhere", 0, 0), 2)
    yield Asked("delete records of an unknown partition", delete_records("orders", 9, 0), 2)
    yield Asked("delete records beyond the end", delete_records("orders", 0, 99), 2)
    yield Asked("delete records before the start", delete_records("orders", 0, -2), 2)
    yield Asked("delete records of a compacted topic", delete_records("table", 0, 0), 2)
    yield Asked("delete records of an internal topic", delete_records("__consumer_offsets", 0, 0), 2)
    yield Asked("delete records up to the end", delete_records("orders", 0, -1), 2)


def _about_the_cluster(world: World) -> Iterator[Asked]:
    yield Asked("metadata of bad names", metadata("a b", "", "..", create=True), 12)
    yield Asked("metadata of an unknown name", metadata("nowhere"), 12)
    yield Asked("metadata of the log of controllers", metadata("__cluster_metadata", create=True), 12)
    ids = [MetadataRequestTopic(topic_id=b"\1" * 16), MetadataRequestTopic(topic_id=world.orders_id)]
    yield Asked("metadata of topic ids", MetadataRequest(topics=ids), 12)
    unnamed = [MetadataRequestTopic(name=None, topic_id=ZERO_UUID)]
    yield Asked("metadata of neither name nor id", MetadataRequest(topics=unnamed), 12)
    yield Asked("metadata of topic ids too early", MetadataRequest(topics=ids), 10)
    yield Asked("metadata of no topics", MetadataRequest(topics=[]), 12)
    yield Asked("a producer id", InitProducerIdRequest(transactional_id=None), 4)
    yield Asked("a producer id with an epoch only", InitProducerIdRequest(transactional_id=None, producer_epoch=3), 4)
    known = InitProducerIdRequest(transactional_id=None, producer_id=5, producer_epoch=3)
    yield Asked("a producer id with a known one", known, 4)
    yield Asked("a producer id for an empty transactional id", InitProducerIdRequest(transactional_id=""), 4)
    yield Asked("the cluster of controllers", DescribeClusterRequest(endpoint_type=2), 1)
    yield Asked("the cluster of nothing known", DescribeClusterRequest(endpoint_type=9), 1)
