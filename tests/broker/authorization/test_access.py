"""What is seen of authorization beside single refusals: sessions, shared answers, the log, what stays hidden."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.authorization import cluster_guards, topic_guards
from ottla.broker.authorization.decision_log import REFUSALS_PER_SECOND
from ottla.broker.logging import LEVELS, ROOT
from ottla.broker.runtime import StartError
from ottla.broker.server.apis import APIS, METADATA
from ottla.broker.server.dispatch import VERSION_BITS, Route
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.fetch import ReplicaState
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker.authorization.world import (
    CLUSTER,
    DENY,
    GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
    Secured,
    acl,
    secured,
)
from tests.broker.requests import commit, fetch, fetch_offsets, list_offsets, metadata, produce, topic
from tests.broker.wire import RecordingLog, batch, until

DENIED, NOT_ASKED = 29, -(2**31)


def everything() -> MetadataRequest:
    return MetadataRequest(topics=None, allow_auto_topic_creation=False)


def shown(response: Any) -> list[str]:
    return sorted(each.name for each in response.topics)


async def test_metadata_of_one_principal_is_not_sent_to_another(world: Secured) -> None:
    """ST-15: a prepared answer would show what was made for a super user."""
    await world.set_acls([acl("DESCRIBE", TOPIC, "orders"), acl("DESCRIBE", TOPIC, "secret", principal="User:bob")])
    admin, alice, bob = [await world.client(user) for user in ("admin", "alice", "bob")]
    for _ in range(2):
        assert shown(await admin.ask(everything(), 12)) == ["orders", "secret"]
        assert shown(await alice.ask(everything(), 12)) == ["orders"]
        assert shown(await bob.ask(everything(), 12)) == ["secret"]


async def test_a_name_beside_a_denied_id_shows_nothing(world: Secured) -> None:
    """Names beside ids are ignored; with the ids left out they would be what is asked for."""
    await world.set_acls([])
    alice = await world.client("alice")
    known = world.broker.image.topic("orders")
    assert known is not None
    asked = [MetadataRequestTopic(name=None, topic_id=known.topic_id), MetadataRequestTopic(name="secret")]
    response = await alice.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 12)
    assert [(each.name, each.topic_id, each.error_code) for each in response.topics] == [(None, known.topic_id, DENIED)]
    asked[0].name = ""
    response = await alice.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 11)
    assert {each.error_code for each in response.topics} == {42}
    assert not any(each.partitions for each in response.topics)


async def test_a_topic_that_is_hidden_looks_like_one_that_is_missing(world: Secured) -> None:
    """ST-16"""
    await world.set_acls([])
    alice = await world.client("alice")
    for request, version in ((metadata, 12), (lambda name: list_offsets(name, 0), 7), (produce, 9)):
        hidden, missing = [repr(await alice.ask(request(name), version)) for name in ("secret", "absent")]
        assert hidden.replace("secret", "absent") == missing


@pytest.mark.parametrize("partition", [0, 1, -1])
async def test_cursor_at_a_hidden_topic_shows_nothing(world: Secured, partition: int) -> None:
    """A page of all topics begins behind it, whether there is such a topic or not."""
    admin, alice = await world.client("admin"), await world.client("alice")
    await admin.ask(CreateTopicsRequest(topics=[topic("travels")], timeout_ms=5000), 7)
    await world.set_acls([acl("DESCRIBE", TOPIC, name) for name in ("orders", "travels")])
    pages = []
    for name in ("secret", "secrets"):
        cursor = Cursor(topic_name=name, partition_index=partition)
        answer = await alice.ask(DescribeTopicPartitionsRequest(cursor=cursor), 0)
        pages.append([(each.name, each.error_code, len(each.partitions)) for each in answer.topics])

    assert pages == [[] if partition < 0 else [("travels", 0, 1)]] * 2


async def test_cursor_at_an_allowed_topic_holds_beside_hidden_ones(world: Secured) -> None:
    admin, alice = await world.client("admin"), await world.client("alice")
    await admin.ask(CreateTopicsRequest(topics=[topic("reads", partitions=3)], timeout_ms=5000), 7)
    await world.set_acls([acl("DESCRIBE", TOPIC, name) for name in ("orders", "reads")])
    cursor = Cursor(topic_name="reads", partition_index=2)
    answer = await alice.ask(DescribeTopicPartitionsRequest(cursor=cursor), 0)

    assert [(each.name, [part.partition_index for part in each.partitions]) for each in answer.topics] == [
        ("reads", [2])
    ]


async def test_a_fetch_session_is_authorized_on_each_fetch(world: Secured) -> None:
    """ST-14: an incremental fetch names no partitions."""
    await world.set_acls([acl("READ", TOPIC, "orders"), acl("READ", TOPIC, "secret")])
    admin, alice = await world.client("admin"), await world.client("alice")
    await admin.ask(produce("orders"), 9)
    request = fetch("orders", session_epoch=0)
    opened = await alice.ask(request, 12)
    assert (opened.session_id > 0, opened.responses[0].partitions[0].error_code) == (True, 0)

    async def fetch_again(epoch: int) -> Any:
        again = fetch("orders")
        again.topics, again.session_id, again.session_epoch = [], opened.session_id, epoch
        return await alice.ask(again, 12)

    await world.set_acls([acl("READ", TOPIC, "orders", principal="User:bob")])
    refused = await fetch_again(1)
    assert [each.error_code for each in refused.responses[0].partitions] == [DENIED]
    assert not refused.responses[0].partitions[0].records
    await world.set_acls([acl("READ", TOPIC, "orders")])
    allowed = await fetch_again(2)
    assert [each.error_code for each in allowed.responses[0].partitions] == [0]
    assert allowed.responses[0].partitions[0].records
    bob = await world.client("bob")
    again = fetch("orders")
    again.topics, again.session_id, again.session_epoch = [], opened.session_id, 3
    foreign = await bob.ask(again, 12)
    assert (foreign.error_code, foreign.responses) == (70, [])


async def test_a_request_of_allowed_and_denied_topics_is_served(world: Secured) -> None:
    await world.set_acls([acl("READ", TOPIC, "orders"), acl("WRITE", TOPIC, "orders")])
    alice = await world.client("alice")
    both = fetch("secret", session_epoch=-1)
    both.topics += fetch("orders").topics
    codes = {each.topic: each.partitions[0].error_code for each in (await alice.ask(both, 12)).responses}
    assert codes == {"orders": 0, "secret": DENIED}
    mixed = produce("secret")
    mixed.topic_data += produce("orders").topic_data
    answered = {each.name: each.partition_responses[0] for each in (await alice.ask(mixed, 9)).responses}
    assert {name: each.error_code for name, each in answered.items()} == {"orders": 0, "secret": DENIED}
    assert (answered["secret"].base_offset, answered["secret"].log_start_offset) == (-1, -1)


async def test_a_fetch_that_waits_is_answered_with_its_refusals(world: Secured) -> None:
    """Its response is built when the wait is over."""
    await world.set_acls([acl("READ", TOPIC, "orders")])
    alice = await world.client("alice")
    both = fetch("secret", session_epoch=-1)
    both.topics += fetch("orders").topics
    both.max_wait_ms, both.min_bytes = 20, 1
    codes = {each.topic: each.partitions[0].error_code for each in (await alice.ask(both, 12)).responses}
    assert codes == {"orders": 0, "secret": DENIED}


async def test_a_denied_produce_with_acks_0_ends_the_connection(world: Secured) -> None:
    """After what was allowed has been appended."""
    await world.set_acls([acl("WRITE", TOPIC, "orders")])
    alice = await world.client("alice")
    mixed = produce("secret", acks=0)
    mixed.topic_data += produce("orders").topic_data
    alice.send(mixed, 9)
    with pytest.raises(asyncio.IncompleteReadError):
        await alice.answer()
    ends = {name: world.broker.replicas.partition(name, 0).log.log_end_offset for name in ("orders", "secret")}
    assert ends == {"orders": 1, "secret": 0}


async def test_authorized_operations_are_those_of_the_sender(world: Secured) -> None:
    """ST-20"""
    await world.set_acls(
        [
            acl("READ", TOPIC, "orders"),
            acl("DESCRIBE_CONFIGS", TOPIC, "orders"),
            acl("READ", TOPIC, "orders", permission=DENY, host="10.0.0.1"),
            acl("ALTER", CLUSTER, "kafka-cluster"),
            acl("DELETE", GROUP, "crew"),
        ]
    )
    admin, alice = await world.client("admin"), await world.client("alice")
    asked = metadata("orders")
    asked.include_topic_authorized_operations = asked.include_cluster_authorized_operations = True
    mine, all_of_them = await alice.ask(asked, 9), await admin.ask(asked, 9)
    assert (mine.topics[0].topic_authorized_operations, mine.cluster_authorized_operations) == (
        1 << 3 | 1 << 8 | 1 << 10,
        1 << 7 | 1 << 8,
    )
    assert (all_of_them.topics[0].topic_authorized_operations, all_of_them.cluster_authorized_operations) == (
        3576,
        8096,
    )
    not_asked = await alice.ask(metadata("orders"), 9)
    assert not_asked.cluster_authorized_operations == NOT_ASKED
    assert not_asked.topics[0].topic_authorized_operations == NOT_ASKED
    groups = DescribeGroupsRequest(groups=["crew", "foreign"], include_authorized_operations=True)
    response = await alice.ask(groups, 5)
    while response.groups[0].error_code:
        await admin.ask(FindCoordinatorRequest(key="crew"), 1)
        response = await alice.ask(groups, 5)
    described = {each.group_id: each for each in response.groups}
    assert described["crew"].authorized_operations == 1 << 6 | 1 << 8
    assert (described["foreign"].error_code, described["foreign"].authorized_operations) == (30, NOT_ASKED)
    groups.include_authorized_operations = False
    assert {each.authorized_operations for each in (await alice.ask(groups, 5)).groups} == {NOT_ASKED}
    assert (await alice.ask(DescribeClusterRequest(), 0)).cluster_authorized_operations == NOT_ASKED


async def test_what_no_acl_is_about_is_open_if_it_is_said_so(tmp_path: Path) -> None:
    """ST-11"""
    async with secured(tmp_path, {"allow.everyone.if.no.acl.found": "true"}) as made:
        alice = await made.client("alice")
        await alice.ask(CreateTopicsRequest(topics=[topic("orders"), topic("secret")], timeout_ms=5000), 7)
        assert shown(await alice.ask(everything(), 12)) == ["orders", "secret"]
        await made.set_acls([acl("READ", TOPIC, "secret", principal="User:bob")])
        assert shown(await alice.ask(everything(), 12)) == ["orders"]


async def test_an_authorizer_that_would_refuse_all_for_good_is_refused(tmp_path: Path) -> None:
    """§51.6: no client could create the first ACL. An ACL that was created before will do."""
    without = {"super.users": "", "listener.security.protocol.map": "INSIDE:PLAINTEXT"}
    with pytest.raises(StartError, match=r"name an administrator and the principal of the brokers in super\.users"):
        async with secured(tmp_path, without):
            pass
    async with secured(tmp_path) as made:
        await made.set_acls([acl("ALTER", CLUSTER, "kafka-cluster")])
    async with secured(tmp_path, without) as made:
        assert made.broker.runtime.is_serving


async def test_refusals_are_logged_with_their_rule_and_escaped(world: Secured, log: RecordingLog) -> None:
    """SEC29: what a client writes is in fields."""
    await world.set_acls([acl("ALL", TOPIC, "secret", permission=DENY)])
    alice = await world.client("alice")
    log.events.clear()
    await alice.ask(list_offsets("secret", 0), 7)
    await alice.ask(list_offsets("a\n\x1b[2J", 0), 7)

    lines = [fields for event, fields in log.events if event == "authorization" and fields["result"] == "denied"]
    assert lines[0] == {
        "result": "denied",
        "principal": "User:alice",
        "host": "127.0.0.1",
        "operation": "DESCRIBE",
        "resource": "TOPIC:LITERAL:secret",
        "api": "ListOffsets",
        "rule": "DENY ALL to User:alice from * on TOPIC:LITERAL:secret",
    }
    assert (lines[1]["resource"], lines[1]["rule"]) == ("TOPIC:LITERAL:a\n\x1b[2J", "default")


async def test_what_is_allowed_is_logged_while_the_level_is_debug(world: Secured, log: RecordingLog) -> None:
    """Of requests by a connection that was there before the level changed."""
    await world.set_acls([acl("DESCRIBE", TOPIC, "orders")])
    alice = await world.client("alice")
    seen = []
    for level in (None, LEVELS["debug"], None):
        log.levels.set(ROOT, level)
        log.events.clear()
        await alice.ask(list_offsets("orders", 0), 7)
        seen.append([fields["result"] for event, fields in log.events if event == "authorization"])
    assert seen == [[], ["allowed"], []]


async def test_the_log_has_so_many_refusals_in_a_second(world: Secured, log: RecordingLog) -> None:
    await world.set_acls([])
    alice = await world.client("alice")
    log.events.clear()
    request = list_offsets("t0", 0)
    request.topics = [list_offsets(f"t{number}", 0).topics[0] for number in range(5 * REFUSALS_PER_SECOND)]
    await alice.ask(request, 7)
    lines = [fields for event, fields in log.events if event == "authorization"]
    # The request may last into the next second.
    assert REFUSALS_PER_SECOND <= len(lines) <= 2 * REFUSALS_PER_SECOND


async def test_batches_say_whether_a_request_is_transactional(world: Secured) -> None:
    """ST-18, CVE-2018-17196: the field of the request may say what its sender may use, or nothing."""
    await world.set_acls([acl("WRITE", TOPIC, "orders"), acl("WRITE", TRANSACTIONAL_ID, "mine")])
    alice = await world.client("alice")
    records = batch(b"x", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    for name, code in ((None, 53), ("", 53), ("foreign", 53), ("mine", 0)):
        request = produce("orders", records=records)
        request.transactional_id = name
        (topic_response,) = (await alice.ask(request, 9)).responses
        refused = topic_response.partition_responses[0].error_code
        assert (refused == 53) == (code == 53), name
    request = produce("orders")
    request.transactional_id = "foreign"
    (topic_response,) = (await alice.ask(request, 9)).responses
    assert topic_response.partition_responses[0].error_code == 0


async def test_the_group_is_looked_at_before_its_topics(world: Secured) -> None:
    """ST-17: of a foreign group, topics that may be read show nothing."""
    await world.set_acls([acl("READ", TOPIC, "orders")])
    alice = await world.client("alice")
    both = commit("foreign", "orders")
    both.topics += commit("foreign", "secret").topics
    committed = await alice.ask(both, 8)
    assert [(each.name, each.partitions[0].error_code) for each in committed.topics] == [("orders", 30), ("secret", 30)]
    fetched = await alice.ask(fetch_offsets("foreign", "secret"), 5)
    assert (fetched.error_code, fetched.topics) == (30, [])


async def test_a_follower_that_is_denied_moves_nothing(world: Secured) -> None:
    """ST-19, CVE-2018-1288: the inter-broker listener alone does not make a broker."""
    await world.set_acls([acl("READ", TOPIC, "orders")])
    admin, alice = await world.client("admin"), await world.client("alice")
    await admin.ask(produce("orders"), 9)
    known = world.broker.image.topic("orders")
    assert known is not None
    old, new = fetch("orders", session_epoch=-1), fetch("orders", session_epoch=-1)
    old.replica_id, new.replica_state = 7, ReplicaState(replica_id=7, replica_epoch=-1)
    new.topics[0].topic_id = known.topic_id
    for claimed, version in ((old, 12), (new, 15)):
        refused = (await alice.ask(claimed, version)).responses[0].partitions[0]
        assert (refused.error_code, bytes(refused.records)) == (DENIED, b""), version


async def test_an_api_that_has_no_guard_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is forgotten nothing is shown, not even to a super user."""
    monkeypatch.delitem(cluster_guards.GUARDS, 60)
    monkeypatch.delitem(topic_guards.GUARDS, 2)
    async with secured(tmp_path) as made:
        admin = await made.client("admin")
        described = await admin.ask(DescribeClusterRequest(), 0)
        assert (described.error_code, described.brokers) == (31, [])
        # This response has no place for an error of the whole.
        with pytest.raises(asyncio.IncompleteReadError):
            await admin.ask(list_offsets("orders", 0), 7)


@pytest.mark.parametrize("count", [10, 1_500])
async def test_refusals_of_many_names_are_those_of_few(world: Secured, log: RecordingLog, count: int) -> None:
    """A long response is built in steps of its own; what comes behind it waits."""
    await world.set_acls([acl("DESCRIBE", TOPIC, "orders")])
    alice = await world.client("alice")
    names = [f"hidden-{number}" for number in range(count)]
    topics = [MetadataRequestTopic(name=name) for name in ("orders", *names)]
    for version in (5, 9):
        alice.send(MetadataRequest(topics=topics, allow_auto_topic_creation=False), version)
        alice.send(everything(), version)
        first, second = await alice.answer(), await alice.answer()
        assert {each.name: each.error_code for each in first.topics} == {"orders": 0} | dict.fromkeys(names, DENIED)
        assert shown(second) == ["orders"]
    refused = [fields for event, fields in log.events if event == "authorization" and fields["result"] == "denied"]
    assert 2 * min(count, REFUSALS_PER_SECOND) >= len(refused) >= min(count, REFUSALS_PER_SECOND)


@pytest.mark.parametrize("count", [10, 1_500])
async def test_a_refusal_of_the_whole_has_nothing_added(world: Secured, count: int) -> None:
    """What the guard would add to the handler's response, here the sender's operations, be it built in steps or not."""
    await world.set_acls([])
    alice = await world.client("alice")
    names = [f"hidden-{number:04}" for number in range(count)]
    response = await alice.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in names]), 0)
    assert [each.name for each in response.topics] == names
    assert {(each.error_code, each.topic_authorized_operations) for each in response.topics} == {(DENIED, NOT_ASKED)}


async def test_a_parked_request_keeps_its_own_refusals(world: Secured) -> None:
    """Those behind it on its connection are handled while it waits, and each is refused other topics."""
    await world.set_acls([])
    alice, dispatcher = await world.client("alice"), world.broker.server.dispatcher
    parked: list[Any] = []

    def park(context: Any, _: Any) -> None:
        context.park(mutes=False)
        parked.append(context)

    assert dispatcher._guarded is not None
    route = Route(APIS[METADATA], 5, dispatcher._guarded(APIS[METADATA], park))
    dispatcher.routes[METADATA << VERSION_BITS | 5] = route
    names = ["first", "second", "third"]
    for name in names:
        asked = [MetadataRequestTopic(name=name)]
        alice.send(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 5)
    await until(world.broker, lambda: len(parked) == len(names))
    for context in reversed(parked):
        context.complete(MetadataResponse())
    assert [shown(await alice.answer()) for _ in names] == [[name] for name in names]


async def test_denied_topic_keeps_others_out_of_a_transaction(world: Secured) -> None:
    """TX32: one answer names what is denied, the others were not tried, and the transaction does not begin."""
    await world.set_acls([acl("WRITE", TRANSACTIONAL_ID, "mine"), acl("WRITE", TOPIC, "orders")])
    alice = await world.client("alice")
    begin = InitProducerIdRequest(transactional_id="mine", transaction_timeout_ms=1000)
    while (producer := await alice.ask(begin, 4)).error_code:
        # Its coordinator comes with the topic, which is made when someone looks for it.
        await alice.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["mine"]), 6)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="mine",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("orders", "secret")],
    )

    added = (await alice.ask(request, 3)).results_by_topic_v3_and_below
    codes = {topic.name: topic.results_by_partition[0].partition_error_code for topic in added}
    admin = await world.client("admin")
    (described,) = (await admin.ask(DescribeTransactionsRequest(transactional_ids=["mine"]), 0)).transaction_states

    assert codes == {"orders": 55, "secret": 29}
    assert (described.transaction_state, described.topics) == ("Empty", [])
