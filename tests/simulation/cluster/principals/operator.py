"""An operator who creates ACLs and deletes them at whatever broker, makes topics again that are gone, and reads what
groups have committed."""

import random
from typing import TYPE_CHECKING, Any

from ottla.cli.operations.acls import creation_of, deletion_of
from ottla.cluster.image import CONSUMER_OFFSETS
from ottla.coordinator.runtime.hashing import partition_for
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.security.acl import OPERATIONS_OF, AclBinding, AclFilter, AclOperation, PatternType, Permission, ResourceType
from tests.simulation.cluster.client import REQUEST_TIMEOUT_MS
from tests.simulation.cluster.principals.asks import GROUPS, TOPICS, Deed
from tests.simulation.cluster.principals.court import Court, Who

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

OPERATOR = Who("User:operator", "operator")
STAFF = "User:staff"
FIRST_ACLS, ACLS_MIN, ACLS_MAX = 16, 8, 40
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
PATTERNS: dict[ResourceType, list[tuple[PatternType, str]]] = {
    TOPIC: [
        (LITERAL, "vault"),
        (LITERAL, "vault-1"),
        (LITERAL, "valley"),
        (LITERAL, "void"),
        (LITERAL, "alpha"),
        (LITERAL, "*"),
        (PREFIXED, "v"),
        (PREFIXED, "va"),
        (PREFIXED, "vault"),
        (PREFIXED, "vault-"),
        (PREFIXED, "*"),
    ],
    GROUP: [(LITERAL, "vgroup"), (LITERAL, "wgroup"), (LITERAL, "*"), (PREFIXED, "v"), (PREFIXED, "vgroup-")],
    TRANSACTIONAL_ID: [(LITERAL, "vpay"), (LITERAL, "*"), (PREFIXED, "v")],
    CLUSTER: [(LITERAL, "kafka-cluster")],
}
WIDE = {
    TOPIC: [(PREFIXED, "v"), (LITERAL, "*")],
    GROUP: [(PREFIXED, "v"), (LITERAL, "*")],
    TRANSACTIONAL_ID: [(PREFIXED, "v"), (LITERAL, "*")],
    CLUSTER: [(LITERAL, "kafka-cluster")],
}
KINDS = [TOPIC, TOPIC, TOPIC, TOPIC, GROUP, GROUP, GROUP, TRANSACTIONAL_ID, TRANSACTIONAL_ID, CLUSTER]
HOSTS = ["*", "*", "*", "*", "10.0.0.1", "::ffff:10.0.0.2", "10.0.0.9"]
# What the broker may answer when its store does not.
UNTIMELY = {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.COORDINATOR_NOT_AVAILABLE}


def rights_of_staff() -> list[AclBinding]:
    """Clients of the world may do everything."""
    names = {TOPIC: "*", GROUP: "*", TRANSACTIONAL_ID: "*", CLUSTER: "kafka-cluster"}
    return [
        AclBinding(kind, name, LITERAL, STAFF, "*", AclOperation.ALL, Permission.ALLOW) for kind, name in names.items()
    ]


class Operator:
    def __init__(self, world: "ClusterWorld", court: Court, principals: list[str]) -> None:
        """`principals` are those whose ACLs change."""
        self._world = world
        self._court = court
        self._principals = principals
        self._rng: random.Random = world.make_rng("changed ACLs")

    async def begin(self, staff: list[AclBinding]) -> None:
        """Returns when all brokers have the first ACLs; before that no client of the world comes."""
        acls = [*staff, *(self._draw_acl() for _ in range(FIRST_ACLS))]
        while not self._court.stored.latest.issuperset(acls):
            await self._create(acls)
        await self._make_topics()
        while not self.is_known_everywhere():
            await self._world.sleep_ms(20)

    def is_known_everywhere(self) -> bool:
        """Whether every broker has the ACLs that the store has."""
        latest = self._court.stored.latest
        return all(frozenset(node.broker.image.acls.values()) == latest for node in self._world.nodes.values())

    async def live(self) -> None:
        while not self._world.is_calm:
            await self._world.sleep_ms(self._rng.randint(50, 1_600))
            if self._world.is_calm:
                return
            draw = self._rng.random()
            # Those of the staff stay.
            count = len(self._court.stored.latest)
            if draw < 0.1:
                await self._make_topics()
            elif draw < 0.3:
                await self.read_offsets(self._rng.choice(GROUPS))
            elif count < ACLS_MIN or (draw < 0.65 and count < ACLS_MAX):
                await self._create([self._draw_acl() for _ in range(self._rng.randint(1, 3))])
            else:
                await self._delete()

    async def _create(self, acls: list[AclBinding]) -> None:
        deeds = [Deed(("create", acl), lambda _: True) for acl in acls]
        answer = await self._ask(creation_of(acls), deeds)
        if answer is not None and not any(self._judged(each.error_code) for each in answer[0].results):
            self._court.check_created(frozenset(acls), *answer[1:])

    async def _delete(self) -> None:
        changing = [acl for acl in self._court.stored.latest if acl.principal in self._principals]
        if not changing:
            return
        one = self._draw_filter(self._rng.choice(sorted(changing, key=str)))
        answer = await self._ask(deletion_of([one]), [Deed(("filter", one), lambda _: True)])
        if answer is not None and not self._judged(answer[0].filter_results[0].error_code):
            self._court.check_deleted(one, *answer[1:])

    def _judged(self, code: int) -> bool:
        """Whether it is an error."""
        if ErrorCode(code) not in UNTIMELY:
            self._world.judge.violated("answers", f"a change of ACLs was answered {ErrorCode(code).name}")
        return bool(code)

    async def _ask(self, request: Any, deeds: list[Deed]) -> tuple[Any, Any, int] | None:
        """The answer, the broker that gave it, and when it was asked; None: what was done is unknown."""
        world = self._world
        try:
            wire = await world.connect_to(self._rng.choice(list(world.nodes.values())).address, OPERATOR.host)
        except OSError:
            return None
        process, since_us = world.process_behind(wire), world.now_us
        self._court.sent(OPERATOR, process, deeds)
        try:
            response = await wire.call(request, self._rng.randint(1, 3), within_ms=2 * REQUEST_TIMEOUT_MS)
        except OSError:
            return None
        finally:
            wire.close()
        return response, process, since_us

    async def _make_topics(self) -> None:
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=3) for name in TOPICS]
        try:
            wire = await self._world.connect(OPERATOR.host)
            await wire.call(CreateTopicsRequest(topics=topics, timeout_ms=1_000), 4, within_ms=REQUEST_TIMEOUT_MS)
            wire.close()
        except OSError:
            return

    async def read_offsets(self, group: str) -> None:
        """What its coordinator answers must have been committed by who was allowed to."""
        world, topic = self._world, self._world.truth.image.topic(CONSUMER_OFFSETS)
        leader = -1 if topic is None else topic.partitions[partition_for(group, len(topic.partitions))].leader
        if leader not in world.nodes:
            return
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        try:
            wire = await world.connect_to(world.nodes[leader].address, OPERATOR.host)
            response = await wire.call(request, 9, within_ms=REQUEST_TIMEOUT_MS)
            wire.close()
        except OSError:
            return
        for answer in response.groups[0].topics:
            for part in answer.partitions:
                if part.committed_offset >= 0:
                    self._court.check_offset(group, answer.name, part.committed_offset)

    # What is drawn.

    def _draw_acl(self) -> AclBinding:
        """Many allow much, so that something is left to be denied."""
        rng = self._rng
        kind, principal = rng.choice(KINDS), rng.choice(self._principals)
        if rng.random() < 0.35:
            pattern_type, name = rng.choice(WIDE[kind])
            operation = rng.choice([AclOperation.ALL, AclOperation.ALL, *OPERATIONS_OF[kind]])
            return AclBinding(kind, name, pattern_type, principal, "*", operation, Permission.ALLOW)
        pattern_type, name = rng.choice(PATTERNS[kind])
        operation = rng.choice([AclOperation.ALL, AclOperation.ALL, *OPERATIONS_OF[kind]])
        permission = Permission.ALLOW if rng.random() < 0.6 else Permission.DENY
        return AclBinding(kind, name, pattern_type, principal, rng.choice(HOSTS), operation, permission)

    def _draw_filter(self, acl: AclBinding) -> AclFilter:
        """That finds this one, and perhaps others of its principal."""
        rng = self._rng
        if rng.random() < 0.6:
            return AclFilter(*acl)
        return AclFilter(
            resource_type=acl.resource_type,
            name=rng.choice([None, acl.name]),
            pattern_type=rng.choice([PatternType.ANY, acl.pattern_type]),
            principal=acl.principal,
            permission=rng.choice([Permission.ANY, acl.permission]),
        )
