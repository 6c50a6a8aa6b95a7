"""Levels of the log, altered at run time by resources of type BROKER_LOGGER (docs/operators.md §17.1)."""

import io
import json
from pathlib import Path

import pytest

from ottla.broker.logging import GROUP_LOGGER, LEVELS, LOGGERS, ROOT, LazyLog
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import incremental_alter_configs as alter
from ottla.protocol.messages.alter_configs import AlterConfigsRequest
from ottla.protocol.messages.alter_configs import AlterConfigsResource as ReplacedResource
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.broker.clusters import ask
from tests.broker.wire import running_broker

BROKER_LOGGER = 8
SET, DELETE, APPEND = 0, 1, 2


def altering(*levels: tuple[str, int, str | None], name: str = "0", only: bool = False) -> object:
    configs = [alter.AlterableConfig(name=each, config_operation=how, value=value) for each, how, value in levels]
    resource = alter.AlterConfigsResource(resource_type=BROKER_LOGGER, resource_name=name, configs=configs)
    return alter.IncrementalAlterConfigsRequest(resources=[resource], validate_only=only)


DESCRIBING = DescribeConfigsRequest(
    resources=[DescribeConfigsResource(resource_type=BROKER_LOGGER, resource_name="0", configuration_keys=None)]
)


async def test_level_is_altered_described_and_reverts(tmp_path: Path) -> None:
    async with running_broker(tmp_path, ottla_log_level_revert_ms=2000) as broker:

        async def described() -> dict[str, str]:
            (result,) = (await ask(broker, DESCRIBING)).results
            assert {config.config_source for config in result.configs} == {6}
            return {config.name: config.value for config in result.configs}

        assert await described() == dict.fromkeys(LOGGERS, "INFO")
        await ask(broker, altering(("ottla.group", SET, "DEBUG"), only=True))
        assert (await described())["ottla.group"] == "INFO"
        await ask(broker, altering(("ottla.group", SET, "DEBUG"), ("ottla", SET, "warn")))
        assert await described() == {**dict.fromkeys(LOGGERS, "WARN"), "ottla.group": "DEBUG"}
        await ask(broker, altering(("ottla.group", DELETE, None)))
        assert (await described())["ottla.group"] == "WARN"
        broker.runtime.wheel.advance(broker.runtime.clock.now_ms() + 2000)
        assert set((await described()).values()) == {"INFO"}
        assert broker.log.events[-1][0] == "the levels of the log are those of the start again"


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (altering(("ottla.nothing", SET, "INFO")), ErrorCode.INVALID_CONFIG),
        (altering(("ottla", SET, "LOUD")), ErrorCode.INVALID_CONFIG),
        (altering(("ottla", DELETE, None)), ErrorCode.INVALID_REQUEST),
        (altering(("ottla", APPEND, "INFO")), ErrorCode.INVALID_REQUEST),
        (altering(("ottla.nothing", APPEND, "INFO")), ErrorCode.INVALID_REQUEST),
        (altering(("ottla.nothing", SET, None)), ErrorCode.INVALID_REQUEST),
        (altering(("ottla", SET, "INFO"), name="7"), ErrorCode.INVALID_REQUEST),
        (altering(("ottla", SET, "INFO"), name=""), ErrorCode.INVALID_REQUEST),
        (
            AlterConfigsRequest(resources=[ReplacedResource(resource_type=BROKER_LOGGER, resource_name="0")]),
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
async def test_what_is_wrong_is_refused(tmp_path: Path, request_: object, code: ErrorCode) -> None:
    async with running_broker(tmp_path) as broker:
        (response,) = (await ask(broker, request_)).responses
        assert response.error_code == code, response.error_message


def test_lines_follow_the_level_of_their_logger() -> None:
    stream = io.StringIO()
    log = LazyLog("json", "info", stream).with_fields(broker=1)
    groups = log.logger(GROUP_LOGGER)
    log.levels.set(GROUP_LOGGER, LEVELS["debug"])
    log.debug("a")
    groups.debug("b")
    log.levels.set(ROOT, LEVELS["error"])
    log.warning("c")
    groups.warning("d")
    log.levels.reset()
    log.info("e")
    groups.debug("f")

    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["b", "d", "e"]
