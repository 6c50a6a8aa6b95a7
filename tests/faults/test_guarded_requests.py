"""Fault rules beside quotas, an authorizer and logins: each does its own, in whatever order they come."""

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka.admin import AdminClient

from ottla import BrokerThread
from ottla.broker.server.connection_interfaces import ClientIdentity
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.produce import ProduceResponse
from ottla.testing.faults.actions import Call, Delay, Error
from tests.broker.wire import Client
from tests.faults.worlds import PRODUCE_VERSION, World, faulty_broker, produce, produced

WAIT_S = 20
LOGIN = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' username="broker" password="secret" user_broker="secret" user_alice="pw";'
    ),
}


async def limited(client: Client, rate: float | None) -> None:
    """The producer byte rate of all clients by default; None: no limit."""
    op = OpData(key="producer_byte_rate", value=rate or 0.0, remove=rate is None)
    entry = EntryData(entity=[EntityData(entity_type="client-id", entity_name=None)], ops=[op])
    response = await client.call(AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse, 1)
    assert [each.error_code for each in response.entries] == [0]


async def throttled(client: Client) -> int:
    """The throttle time of a produce request."""
    response = await client.call(produce(b"x" * 2000), ProduceResponse, PRODUCE_VERSION)
    assert response.responses[0].partition_responses[0].error_code == 0
    return int(response.throttle_time_ms)


@pytest.mark.parametrize("rule_first", [False, True])
async def test_quotas_hold_for_delayed_requests(rule_first: bool) -> None:
    async with faulty_broker() as world:
        client = await world.client()
        await produced(client, b"a")
        if rule_first:
            world.faults.fault(api="Produce", do=Delay(1))
        await limited(client, 100.0)
        if not rule_first:
            world.faults.fault(api="Produce", do=Delay(1))

        assert await throttled(client) > 0


async def test_routes_are_plain_again_though_quotas_stay() -> None:
    async with faulty_broker() as world:
        client, admin = await world.client(), await world.client()
        await produced(client, b"a")
        handles = plain_handles(world)

        fault = world.faults.fault(api="Produce", do=Delay(1))
        await limited(admin, 1e9)
        fault.remove()
        await limited(admin, None)

        after = plain_handles(world)
        assert {key: after[key] for key in handles} == handles
        assert await throttled(client) == 0


def plain_handles(world: World) -> dict[int, Any]:
    dispatcher = world.core.server.dispatcher
    assert all(dispatcher.routes[key] is route for key, route in dispatcher.made.items())
    return {key: route.handle for key, route in dispatcher.made.items()}


async def test_rules_match_users_and_fail_logins() -> None:
    with BrokerThread(settings=LOGIN) as broker:
        failing = broker.faults.fault(api="SaslAuthenticate", do=Error("SASL_AUTHENTICATION_FAILED"))
        refused = broker.faults.fault(
            api="Produce", principal="User:alice", listener="SASL_*", do=Error("NOT_LEADER_OR_FOLLOWER")
        )
        others = broker.faults.fault(api="Produce", principal="User:bob", do=Error("NOT_LEADER_OR_FOLLOWER"))
        settings: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "alice",
            "sasl_plain_password": "pw",
        }
        producer = AIOKafkaProducer(**settings)
        with pytest.raises(Exception, match=r".+"):
            await producer.start()
        await producer.stop()

        async with AIOKafkaProducer(**settings, retry_backoff_ms=10) as producer:
            await asyncio.wait_for(producer.send_and_wait("orders", b"book"), WAIT_S)

        assert (failing.hits, refused.hits, others.hits) == (1, 1, 0)
        assert others.near_misses == {"principal": 2}


async def test_broker_stops_though_requests_are_held() -> None:
    async with asyncio.timeout(WAIT_S):
        async with faulty_broker() as world:
            held, waiting = await world.client(), await world.client()

            async def never(request: Any, proceed: Any) -> None:
                await asyncio.Event().wait()

            hold = world.faults.fault(api="Produce", do="hold")
            call = world.faults.fault(api="Heartbeat", do=Call(never))
            held.send(produce(b"a"), PRODUCE_VERSION)
            waiting.send(HeartbeatRequest(group_id="g"), 4)
            await hold.wait_async()
            await call.wait_async()

        assert await held.is_closed_by_broker()
        assert await waiting.is_closed_by_broker()


async def test_software_is_what_the_client_says_of_itself() -> None:
    async with faulty_broker() as world:
        client = await world.client()
        for connection in world.core.server.connections:
            connection.client = ClientIdentity("test", "apache-kafka-java", "4.1.0")
        by_name = world.faults.fault(api="Produce", software="apache-kafka-*", do=Error("NOT_ENOUGH_REPLICAS"))
        by_version = world.faults.fault(api="Produce", software="*/3.*", do=Error("NOT_ENOUGH_REPLICAS"))

        assert await produced(client, b"a") == {0: int(ErrorCode.NOT_ENOUGH_REPLICAS)}
        assert await produced(client, b"a") == {0: 0}
        assert (by_name.hits, by_version.hits) == (1, 0)


def test_admin_requests_fail_for_one_topic_and_not_for_another() -> None:
    from confluent_kafka.admin import NewTopic

    with BrokerThread() as broker:
        fault = broker.faults.fault(api="CreateTopics", topic="b", do=Error("POLICY_VIOLATION"))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        made = admin.create_topics([NewTopic("a", 1, 1), NewTopic("b", 1, 1)])

        made["a"].result(WAIT_S)
        assert made["b"].exception(WAIT_S).args[0].name() == "POLICY_VIOLATION"
        assert fault.hits == 1
        assert set(admin.list_topics(timeout=WAIT_S).topics) == {"a"}
