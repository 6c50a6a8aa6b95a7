"""SEC17: a thousand ACLs are created and many of them deleted, by filters of all kinds; after each step, and after a
restart, every broker describes what a model has, and decides as the model does."""

import random
from collections.abc import Callable
from pathlib import Path

from ottla.broker.broker import Broker
from ottla.broker.config.server_security import STANDARD_AUTHORIZER
from ottla.cli.operations.acls import described
from ottla.protocol.messages.create_acls import CreateAclsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.security.acl import AclBinding, AclOperation, is_pattern_for
from ottla.security.acl_index import NO_ACLS
from ottla.security.authorizer import Authorizer
from tests.broker.authorization.test_acl_requests import MATCH, PREFIXED_NUMBER, creation, deleting, describing
from tests.broker.authorization.world import ALLOW, DENY, GROUP, LITERAL, PREFIXED, TOPIC, acl
from tests.broker.clusters import ask, running_cluster, until
from tests.security.test_authorizer import ALICE, HERE, model

COUNT = 1_000
QUESTIONS = 200
NAMES = ("*", "f", "fo", "foo", "fooa", "foobar", "team-", "team-a", "team-b")
OPERATIONS = [AclOperation[name] for name in ("ALL", "READ", "WRITE", "DESCRIBE", "ALTER", "ALTER_CONFIGS")]
SETTINGS = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:ANONYMOUS"}

Deletion = tuple[DeleteAclsFilter, Callable[[AclBinding], bool]]
"""As a request, and which ACLs it is to match."""


def drawn(chance: random.Random) -> AclBinding:
    name = chance.choice(NAMES)
    return acl(
        chance.choice(OPERATIONS),
        chance.choice((TOPIC, GROUP)),
        name if chance.random() < 0.3 else f"{name}{chance.randrange(200)}",
        principal=chance.choice(("User:alice", "User:bob", "User:*")),
        permission=chance.choice((ALLOW, ALLOW, DENY)),
        pattern_type=chance.choice((LITERAL, PREFIXED)),
    )


def deletions() -> list[Deletion]:
    """Together some half of what is drawn."""
    return [
        (
            deleting(resource_type_filter=int(TOPIC), resource_name_filter="foobar7", pattern_type_filter=MATCH),
            lambda each: each.resource_type is TOPIC and is_pattern_for(each.pattern_type, each.name, "foobar7"),
        ),
        (
            deleting(pattern_type_filter=PREFIXED_NUMBER, principal_filter="User:bob"),
            lambda each: each.pattern_type is PREFIXED and each.principal == "User:bob",
        ),
        (
            deleting(operation=int(AclOperation.READ), permission_type=int(DENY)),
            lambda each: each.operation is AclOperation.READ and each.permission is DENY,
        ),
        (
            deleting(resource_type_filter=int(GROUP), principal_filter="User:*"),
            lambda each: each.resource_type is GROUP and each.principal == "User:*",
        ),
    ]


async def check(broker: Broker, wanted: set[AclBinding], chance: random.Random) -> None:
    await until(lambda: len(broker.image.acls) == len(wanted))
    assert described(await ask(broker, describing(), 3)) == wanted
    authorizer = Authorizer(broker.image.acl_index or NO_ACLS, frozenset(), allows_without_acl=False)
    for _ in range(QUESTIONS):
        kind, operation = chance.choice((TOPIC, GROUP)), chance.choice(OPERATIONS)
        name = f"{chance.choice(NAMES[1:])}{chance.choice(('', str(chance.randrange(200))))}"
        expected = model([each for each in wanted if each.resource_type is kind], operation, name, by_default=False)
        assert authorizer.decide(ALICE, HERE, operation, kind, name).is_allowed == expected, (operation, kind, name)


async def test_a_thousand_acls_are_those_of_a_model_at_each_broker(tmp_path: Path) -> None:
    chance = random.Random(17)
    wanted: set[AclBinding] = set()
    while len(wanted) < COUNT:
        wanted.add(drawn(chance))
    async with running_cluster(tmp_path, brokers=3, **SETTINGS) as cluster:
        brokers = [*cluster.brokers.values()]
        creations = [creation(each) for each in sorted(wanted, key=str)]
        created = await ask(brokers[0], CreateAclsRequest(creations=creations), 3)
        assert {each.error_code for each in created.results} == {0}
        for number, (filter_, matches) in enumerate(deletions()):
            for broker in brokers:
                await check(broker, wanted, chance)
            gone = {each for each in wanted if matches(each)}
            answer = await ask(brokers[number % 3], DeleteAclsRequest(filters=[filter_]), 3)
            assert len(answer.filter_results[0].matching_acls) == len(gone) > 0
            wanted -= gone
    async with running_cluster(tmp_path, brokers=3, **SETTINGS) as cluster:
        assert 300 < len(wanted) < 700
        for broker in cluster.brokers.values():
            await check(broker, wanted, chance)
