"""An operator at a console: sets levels of loggers and of features, and looks at those and at quotas."""

import random
from typing import TYPE_CHECKING, Any

from ottla.broker.config.alter import ConfigResourceType, Operation
from ottla.broker.logging import LOGGERS, ROOT
from ottla.cluster.client_quotas import ANY_NAME, DEFAULT_NAME, EXACT
from ottla.cluster.features import UpgradeType
from ottla.cluster.image import SUPPORTED_FEATURES, TRANSACTION_VERSION
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.security.quotas import CLIENT_ID, USER
from tests.simulation.cluster.client import REQUEST_TIMEOUT_MS
from tests.simulation.cluster.plan import NODE_IDS

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

KIND = ConfigResourceType.BROKER_LOGGER
LEVELS = ("DEBUG", "INFO", "WARN", "ERROR")
# An answer may have been lost: then the level is another one than the operator thinks.
CHANGED = {ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.REQUEST_TIMED_OUT}


class Console:
    def __init__(self, world: "ClusterWorld") -> None:
        self._rng: random.Random = world.make_rng("console")
        self._world = world

    async def work(self) -> None:
        tasks = [self._set_level, self._see_levels, self._see_quotas, self._set_feature]
        for _ in range(self._rng.randint(2, 8)):
            await self._rng.choice(tasks)()
            await self._world.sleep_ms(self._rng.randint(1, 300))

    async def _set_level(self) -> None:
        """Of a logger of one broker, or takes it back."""
        node_id, name = self._rng.choice(NODE_IDS), self._rng.choice(LOGGERS)
        config = AlterableConfig(name=name, config_operation=Operation.SET, value=self._rng.choice(LEVELS))
        if name != ROOT and self._rng.random() < 0.3:
            config = AlterableConfig(name=name, config_operation=Operation.DELETE, value=None)
        resource = AlterConfigsResource(resource_type=KIND, resource_name=str(node_id), configs=[config])
        validate_only = self._rng.random() < 0.2
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        response = await self._ask(node_id, request, 1)
        if response is not None:
            self._judge(f"the level of {name}", response.responses[0].error_code)

    async def _see_levels(self) -> None:
        node_id = self._rng.choice(NODE_IDS)
        resource = DescribeConfigsResource(resource_type=KIND, resource_name=str(node_id), configuration_keys=None)
        response = await self._ask(node_id, DescribeConfigsRequest(resources=[resource]), 4)
        if response is not None:
            (result,) = response.results
            self._judge("levels of loggers", result.error_code)
            if {each.name for each in result.configs} != set(LOGGERS):
                self._world.judge.violated("answers", f"levels are {result.configs}")

    async def _see_quotas(self) -> None:
        match_type = self._rng.choice([EXACT, DEFAULT_NAME, ANY_NAME])
        component = ComponentData(
            entity_type=self._rng.choice([USER, CLIENT_ID]),
            match_type=match_type,
            match="user 0" if match_type == EXACT else None,
        )
        request = DescribeClientQuotasRequest(components=[component], strict=self._rng.random() < 0.5)
        response = await self._ask(self._rng.choice(NODE_IDS), request, self._rng.randint(0, 1))
        if response is not None:
            self._judge("quotas", response.error_code)

    async def _set_feature(self) -> None:
        """Where clients have transactions, to what it is already: by the level goes what they have to ask."""
        highest = SUPPORTED_FEATURES[TRANSACTION_VERSION].highest
        level = highest if self._world.plan.transacts else self._rng.randint(0, highest + 1)
        upgrade_type = UpgradeType.UPGRADE if self._world.plan.transacts else self._rng.choice(list(UpgradeType))
        update = FeatureUpdateKey(feature=TRANSACTION_VERSION, max_version_level=level, upgrade_type=int(upgrade_type))
        request = UpdateFeaturesRequest(
            timeout_ms=REQUEST_TIMEOUT_MS, feature_updates=[update], validate_only=self._rng.random() < 0.2
        )
        response = await self._ask(self._rng.choice(NODE_IDS), request, self._rng.randint(1, 2))
        if response is not None:
            code = ErrorCode.NONE if response.error_code in CHANGED else response.error_code
            self._judge(f"{TRANSACTION_VERSION} {level}", code)

    async def _ask(self, node_id: int, request: Any, version: int) -> Any | None:
        """None where there was no answer."""
        try:
            wire = await self._world.connect_to(self._world.bootstrap[node_id], "console")
        except OSError:
            return None
        try:
            return await wire.call(request, version, within_ms=REQUEST_TIMEOUT_MS)
        except OSError:
            return None
        finally:
            wire.close()

    def _judge(self, what: str, code: int) -> None:
        self._world.judge.counts["answers at a console"] += 1
        if code != ErrorCode.NONE:
            self._world.judge.violated("answers", f"{what}: {ErrorCode(code).name}")
