"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs over the wire, and what they do to live logs."""

from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from tests.broker.asking import Asking, messages, running
from tests.broker.test_topic_admin import creatable, created

describe = messages("describe_configs")
alter = messages("alter_configs")
incremental = messages("incremental_alter_configs")

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


async def described(broker: Asking, kind: int, name: str, version: int = 4, **fields: Any) -> Any:
    keys = fields.pop("keys", None)
    resource = describe.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = describe.DescribeConfigsRequest(resources=[resource], **fields)
    (result,) = (await broker.ask(request, version)).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


async def values(broker: Asking, kind: int, name: str) -> dict[str, tuple[str | None, int]]:
    result = await described(broker, kind, name)
    return {config.name: (config.value, config.config_source) for config in result.configs}


async def changed(broker: Asking, kind: int, name: str, *configs: tuple[str, int, str | None], **fields: Any) -> Any:
    resource = incremental.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in configs
        ],
    )
    version = fields.pop("version", 1)
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource], **fields)
    (response,) = (await broker.ask(request, version)).responses
    return response


async def replaced(broker: Asking, kind: int, name: str, version: int = 2, **configs: str) -> Any:
    pairs = [alter.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = alter.AlterConfigsResource(resource_type=kind, resource_name=name, configs=pairs)
    (response,) = (await broker.ask(alter.AlterConfigsRequest(resources=[resource]), version)).responses
    return response


@pytest.mark.parametrize("keys", [None, []])
async def test_without_names_all_configs_are_described(tmp_path: Path, keys: list[str] | None) -> None:
    async with running(tmp_path) as broker:
        await created(broker, creatable("a"))
        names = {config.name for config in (await described(broker, TOPIC, "a", keys=keys)).configs}
        assert {"retention.ms", "segment.bytes", "cleanup.policy"} <= names


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_topic_is_described_in_every_version(tmp_path: Path, version: int) -> None:
    async with running(tmp_path, {"log.retention.hours": "1"}) as broker:
        await created(broker, creatable("a", segment_bytes="100"))
        result = await described(
            broker,
            TOPIC,
            "a",
            version,
            include_synonyms=True,
            **({"include_documentation": True} if version > 2 else {}),
        )

        configs = {config.name: config for config in result.configs}
        assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == ("100", 1)
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("3600000", 4)
        synonyms = [(each.name, each.value, each.source) for each in configs["segment.bytes"].synonyms]
        assert synonyms == [("segment.bytes", "100", 1), ("log.segment.bytes", "1073741824", 5)]
        if version >= 3:
            assert configs["cleanup.policy"].config_type == 7
            assert configs["cleanup.policy"].documentation


async def test_only_what_was_asked_for_is_described(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await created(broker, creatable("a"))
        result = await described(broker, TOPIC, "a", keys=["retention.ms", "no.such"])

        (config,) = result.configs
        assert (config.name, config.synonyms, config.documentation) == ("retention.ms", [], None)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "not good", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "7", ErrorCode.INVALID_REQUEST),
        (3, "1", ErrorCode.INVALID_REQUEST),
        (99, "1", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_unknown_config_resources_fail_in_describe_and_alter(
    tmp_path: Path, kind: int, name: str, code: ErrorCode
) -> None:
    async with running(tmp_path) as broker:
        shown = await described(broker, kind, name)
        assert (shown.error_code, bool(shown.error_message), shown.configs) == (code, True, [])
        for response in (
            await changed(broker, kind, name, ("retention.ms", SET, "1")),
            await replaced(broker, kind, name, retention_ms="1"),
        ):
            assert (response.error_code, bool(response.error_message)) == (code, True)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", ErrorCode.INVALID_REQUEST),
        (".", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("%a", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nope", ErrorCode.INVALID_CONFIG),
    ],
)
async def test_name_is_looked_at_before_configs_and_topic(tmp_path: Path, name: str, error: ErrorCode) -> None:
    """In the order of Apache Kafka 4.1, where what is asked for comes first: nothing can be appended to a number."""
    async with running(tmp_path) as broker:
        wrong = await changed(broker, TOPIC, name, ("cleanup.policy", SET, "none"))
        replacing = await replaced(broker, TOPIC, name, cleanup_policy="none")
        appended = await changed(broker, TOPIC, name, ("retention.ms", APPEND, "1"))

        assert (wrong.error_code, replacing.error_code) == (error, error)
        assert appended.error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("version", range(2))
async def test_topic_configs_are_altered_one_by_one_in_the_live_log(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as broker:
        await created(broker, creatable("a", retention_ms="5", segment_bytes="100"))
        log = broker.broker.replicas.partition("a", 0).log
        response = await changed(
            broker,
            TOPIC,
            "a",
            ("retention.ms", DELETE, None),
            ("segment.bytes", SET, "200"),
            ("cleanup.policy", APPEND, "compact"),
            version=version,
        )

        assert (response.error_code, response.error_message) == (0, None)
        assert broker.broker.image.topics["a"].configs == {"segment.bytes": "200", "cleanup.policy": "delete,compact"}
        assert (log.config.retention_ms, log.config.segment_bytes) == (604800000, 200)
        assert log.config.cleanup_policy == {"compact", "delete"}
    async with running(tmp_path) as broker:
        assert (await values(broker, TOPIC, "a"))["segment.bytes"] == ("200", 1)


async def test_nothing_changes_when_one_config_of_a_resource_is_wrong(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await created(broker, creatable("a", retention_ms="5"))
        wrong = await changed(broker, TOPIC, "a", ("segment.bytes", SET, "100"), ("retention.ms", SET, "x"))
        twice = await changed(broker, TOPIC, "a", ("segment.bytes", SET, "1"), ("segment.bytes", SET, "2"))
        append = await changed(broker, TOPIC, "a", ("segment.bytes", APPEND, "1"))
        checked = await changed(broker, TOPIC, "a", ("segment.bytes", SET, "100"), validate_only=True)

        codes = [response.error_code for response in (wrong, twice, append, checked)]
        assert codes == [ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG, 0]
        assert broker.broker.image.topics["a"].configs == {"retention.ms": "5"}


@pytest.mark.parametrize("version", range(3))
async def test_the_old_request_replaces_all_configs(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as broker:
        await created(broker, creatable("a", retention_ms="5"))
        response = await replaced(broker, TOPIC, "a", version, segment_bytes="100")

        assert response.error_code == 0
        assert broker.broker.image.topics["a"].configs == {"segment.bytes": "100"}


async def test_a_resource_named_twice_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        resource = alter.AlterConfigsResource(resource_type=BROKER, resource_name="")
        responses = (await broker.ask(alter.AlterConfigsRequest(resources=[resource, resource]), 2)).responses

        assert [response.error_code for response in responses] == [ErrorCode.INVALID_REQUEST] * 2


async def test_altered_broker_properties_survive_for_one_and_all(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await created(broker, creatable("a"))
        log = broker.broker.replicas.partition("a", 0).log
        assert (await changed(broker, BROKER, "", ("log.retention.ms", SET, "7"))).error_code == 0
        assert log.config.retention_ms == 7
        assert (await changed(broker, BROKER, "1", ("log.retention.ms", SET, "9"))).error_code == 0
        assert log.config.retention_ms == 9

        assert (await values(broker, BROKER, "1"))["log.retention.ms"] == ("9", 2)
        of_all = {"log.retention.ms": ("7", 3), "min.insync.replicas": ("1", 3)}
        assert await values(broker, BROKER, "") == of_all
    async with running(tmp_path) as broker:
        assert broker.broker.config.log_retention_ms == 9
        assert broker.broker.replicas.partition("a", 0).log.config.retention_ms == 9
        await changed(broker, BROKER, "1", ("log.retention.ms", DELETE, None))
        assert broker.broker.config.log_retention_ms == 7


async def test_properties_that_need_a_restart_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        response = await changed(broker, BROKER, "1", ("num.partitions", SET, "7"))

        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert response.error_message == "num.partitions cannot be changed while the broker runs"
        described_value = (await values(broker, BROKER, "1"))["num.partitions"]
        assert described_value == ("1", 5)


async def test_a_broker_says_which_properties_are_read_only(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        result = await described(broker, BROKER, "1")

        read_only = {config.name: config.read_only for config in result.configs}
        assert read_only["num.partitions"]
        assert not read_only["log.retention.ms"]
        assert {config.name: config.value for config in result.configs if config.is_sensitive} == {
            f"{prefix}ssl.{name}": None
            for prefix in ("", "ottla.metadata.etcd.")
            for name in ("key.password", "keystore.certificate.chain", "keystore.key", "truststore.certificates")
        } | {"ottla.admin.ssl.key.password": None, "ottla.metadata.etcd.password": None}


async def test_described_broker_shows_its_command_line_settings(tmp_path: Path) -> None:
    """kafka-python's own tests look for the advertised address."""
    async with running(tmp_path) as broker:
        result = await described(broker, BROKER, "1", keys=["node.id", "advertised.listeners", "listeners", "log.dirs"])

        by_name = {config.name: config for config in result.configs}
        address = f"PLAINTEXT://{broker.broker.bootstrap}"
        assert {name: config.value for name, config in by_name.items()} == {
            "node.id": "1",
            "advertised.listeners": address,
            "listeners": address,
            "log.dirs": str(tmp_path),
        }
        assert all(config.read_only and config.config_source == 4 for config in by_name.values())
