"""What is seen of quotas: metrics, and that every broker of a cluster obeys them."""

from pathlib import Path

from ottla.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla.protocol.messages.produce import ProduceResponse
from tests.broker.admin.test_metrics import observed, scraped, value
from tests.broker.clusters import ask, running_cluster, until
from tests.broker.wire import batch, client_of, create_topic, produce_request


def altering(key: str, limit: float, *, remove: bool = False) -> AlterClientQuotasRequest:
    user = EntityData(entity_type="user", entity_name="ANONYMOUS")
    return AlterClientQuotasRequest(
        entries=[EntryData(entity=[user], ops=[OpData(key=key, value=limit, remove=remove)])]
    )


async def test_metrics_say_who_is_held_back_and_how_long(tmp_path: Path) -> None:
    async with observed(tmp_path) as broker, client_of(broker) as client:
        await create_topic(client, "t")
        before = await scraped(broker.admin_url)
        await ask(broker, altering("producer_byte_rate", 1000))
        request = produce_request("t", batch(bytes(20_000)), acks=1)
        answer = await client.call(request, ProduceResponse, 9)
        found = await scraped(broker.admin_url)

    key = {"quota": "producer_byte_rate"}
    assert value(before, "quota_throttled_total", **key) is None
    assert value(found, "quota_throttled_total", **key) == 1
    assert value(found, "quota_throttle_seconds_total", **key) == answer.throttle_time_ms / 1000
    assert value(found, "quota_budgets", **key) == 1
    rate = value(found, "quota_rate", **key, user="ANONYMOUS", client_id="")
    assert rate is not None
    assert 1_800 < rate < 2_200
    assert value(found, "connections_muted") == 1
    assert value(found, "connections_held", reason="throttle") == 1


async def test_every_broker_obeys_and_describes_a_quota(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=3) as cluster:
        await ask(cluster.brokers[0], altering("request_percentage", 200))
        quotas = [broker.parts.quotas for broker in cluster.brokers.values()]
        await until(lambda: all(each.enforcer is not None for each in quotas))
        for broker, each in zip(cluster.brokers.values(), quotas, strict=True):
            assert each.enforcer is not None
            assert each.enforcer.managers.request.find("ANONYMOUS", "any") is not None
            every = ComponentData(entity_type="user", match_type=2, match=None)
            described = await ask(broker, DescribeClientQuotasRequest(components=[every], strict=True))
            assert [[value.value for value in entry.values] for entry in described.entries] == [[200.0]]
        await ask(cluster.brokers[1], altering("request_percentage", 0, remove=True))
        await until(lambda: not any(each.enforcer.managers.request.is_active for each in quotas if each.enforcer))
