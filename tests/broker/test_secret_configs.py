"""A secret among the broker's properties, as clients meet it (§68.1, §68.3)."""

from pathlib import Path

from ottla.broker.config.options import Kind
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.broker.wire import client_of
from tests.clients.test_sasl import broker_with_sasl

NAME = "listener.name.sasl.scram-sha-256.sasl.jaas.config"
JAAS = 'ScramLoginModule required username="a" password="hidden";'


async def test_a_secret_is_neither_shown_nor_altered(tmp_path: Path) -> None:
    describe = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=4, resource_name="0", configuration_keys=[NAME])],
        include_synonyms=True,
    )
    change = AlterableConfig(name=NAME, config_operation=0, value=JAAS)
    alter = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=4, resource_name="0", configs=[change])]
    )
    async with broker_with_sasl(tmp_path, **{NAME: JAAS}) as broker, client_of(broker) as client:
        described = await client.call(describe, DescribeConfigsResponse, 4)
        altered = await client.call(alter, IncrementalAlterConfigsResponse, 1)

    (config,) = described.results[0].configs
    assert (config.value, config.is_sensitive, config.config_type) == (None, True, int(Kind.PASSWORD))
    assert [(each.name, each.value) for each in config.synonyms] == [(NAME, None)]
    assert altered.responses[0].error_code == ErrorCode.INVALID_REQUEST
    assert NAME in altered.responses[0].error_message
    assert "hidden" not in f"{described} {altered}"
