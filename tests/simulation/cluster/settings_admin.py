"""An operator who alters what records are obeyed by, of topics and cluster-wide, at whatever broker, all the time.

What keeps producers from writing (small batches only, none without a key) lasts a moment, and in the calm it goes.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.config.alter import ConfigResourceType, Operation
from ottla.cluster.image import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.simulation.cluster.admin import BROKER_CONFIGS, TOPIC_CONFIGS
from tests.simulation.cluster.client import PASSING, REQUEST_TIMEOUT_MS, Client
from tests.simulation.cluster.keyed import KEYED
from tests.simulation.cluster.risked import RISKED
from tests.simulation.cluster.setting_choices import (
    ALL,
    ALL_RESTORED,
    COMPACTED_AGAIN,
    NOT_COMPACTED,
    RESTORED,
    RISKED_RESTORED,
    Values,
    choices_of,
)
from tests.simulation.cluster.transacting import TOPIC as PAYMENTS

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

Kept = str | None

RETRY_MS = 500
ATTEMPTS_MAX = 60
REFUSALS = {ErrorCode.MESSAGE_TOO_LARGE: "refused as too large", ErrorCode.INVALID_RECORD: "refused without a key"}


class Alteration(NamedTuple):
    """`owner`: a topic, or ALL."""

    owner: str
    values: Values


class SettingsBook:
    """What each setting may be by what was answered. An alteration whose answer was lost may be carried out any time
    later. `of_others`: what others alter too, which is not judged."""

    def __init__(self, of_others: Collection[str]) -> None:
        self._of_others = of_others
        self._possible: dict[tuple[str, str], set[Kept]] = {}
        self._unsure: set[tuple[str, str]] = set()
        self._known: set[tuple[str, str]] = set()

    def ask(self, alteration: Alteration) -> None:
        for name, value in alteration.values.items():
            self._possible.setdefault((alteration.owner, name), set()).add(value)

    def answered(self, alteration: Alteration) -> None:
        for name, value in alteration.values.items():
            key = alteration.owner, name
            self._known.add(key)
            if key not in self._unsure:
                self._possible[key] = {value}

    def lost(self, alteration: Alteration) -> None:
        self._unsure |= {(alteration.owner, name) for name in alteration.values}

    def wrong(self, owner: str, found: Mapping[str, str]) -> list[str]:
        return [
            f"{key[1]} of {owner or 'all brokers'} is {found.get(key[1])}, altered to {values}"
            for key, values in self._possible.items()
            if key[0] == owner and key in self._known and found.get(key[1]) not in values
            if key[1] not in self._of_others
        ]


class SettingsAdmin:
    def __init__(self, world: "ClusterWorld") -> None:
        self._rng = world.make_rng("altered settings")
        self._client = Client(world, self._rng, "settings-admin")
        self._world = world
        is_alone = "configure" not in world.plan.faults
        self._book = SettingsBook(() if is_alone else {*TOPIC_CONFIGS, *BROKER_CONFIGS})

    async def live(self) -> None:
        """Until the calm."""
        while not self._world.is_calm:
            await self._world.sleep_ms(self._rng.randint(50, 1_500))
            owner = self._rng.choice(self._owners())
            values = self._rng.choice(self._rng.choice(choices_of(owner, self._world.plan)))
            await self.alter(owner, values)
            if brief := taken_back(values):
                await self._world.sleep_ms(self._rng.randint(50, 2_000))
                await self.alter(owner, brief)

    async def restore(self) -> None:
        """What the calm needs. Twice: a request whose answer was lost is over by then. What cannot be restored is
        found by who compares it with what was asked for."""
        for _ in range(2):
            for _ in range(ATTEMPTS_MAX):
                for alteration in self._not_restored():
                    await self.alter(*alteration)
                if not self._not_restored():
                    break
                await asyncio.sleep(RETRY_MS / 1000)
            await asyncio.sleep(2 * REQUEST_TIMEOUT_MS / 1000)
        self._client.close()

    async def alter(self, owner: str, values: Values) -> bool:
        """Whether it was answered that it is so now."""
        alteration = Alteration(owner, values)
        self._book.ask(alteration)
        response = await self._client.ask(request_of(alteration), self._rng.randint(0, 1))
        error = ErrorCode.REQUEST_TIMED_OUT if response is None else ErrorCode(response.responses[0].error_code)
        if error is ErrorCode.NONE:
            self._world.judge.counts["settings altered"] += 1
            self._book.answered(alteration)
            return True
        self._book.lost(alteration)
        if error not in PASSING:
            self._world.judge.violated("answers", f"alter {owner} to {values} was answered {error.name}")
        return False

    def may_refuse(self, error: ErrorCode) -> bool:
        """Whether a producer's records may be refused so, by a setting that was altered and not yet restored."""
        if error not in REFUSALS or self._world.writing_is_over:
            return False
        self._world.judge.counts[REFUSALS[error]] += 1
        return True

    def wrong(self) -> list[str]:
        """What is committed and was not asked for last."""
        truth = self._world.truth
        return self._book.wrong(ALL, truth.defaults) + [
            wrong for topic in truth.image.topics.values() for wrong in self._book.wrong(topic.name, topic.configs)
        ]

    def _owners(self) -> list[str]:
        plan = self._world.plan
        owners = [ALL, ALL, *self._world.topics, *self._world.topics, CONSUMER_OFFSETS]
        owners += [KEYED, KEYED] if plan.writes_keys else []
        owners += [PAYMENTS, TRANSACTION_STATE] if plan.transacts else []
        owners += [RISKED] if "risk" in plan.faults else []
        return owners

    def _not_restored(self) -> list[Alteration]:
        truth, plan = self._world.truth, self._world.plan
        found = [(Alteration(ALL, ALL_RESTORED), truth.defaults)]
        for name, topic in truth.image.topics.items():
            if name in self._world.topics:
                found.append((Alteration(name, RESTORED), topic.configs))
            elif name == KEYED or (name == PAYMENTS and plan.compacts):
                found.append((Alteration(name, COMPACTED_AGAIN), topic.configs))
            elif name == RISKED:
                found.append((Alteration(name, RISKED_RESTORED), topic.configs))
        return [
            alteration
            for alteration, configs in found
            if any(configs.get(name) != value for name, value in alteration.values.items())
        ]


def taken_back(values: Values) -> Values:
    """Of what keeps producers from writing."""
    if values in (NOT_COMPACTED, COMPACTED_AGAIN):
        return {}
    return {name: None for name in values if name in RESTORED or name in ALL_RESTORED}


def request_of(alteration: Alteration) -> IncrementalAlterConfigsRequest:
    configs = [
        AlterableConfig(name=name, config_operation=Operation.DELETE if value is None else Operation.SET, value=value)
        for name, value in alteration.values.items()
    ]
    kind = ConfigResourceType.BROKER if alteration.owner == ALL else ConfigResourceType.TOPIC
    resource = AlterConfigsResource(resource_type=kind, resource_name=alteration.owner, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
