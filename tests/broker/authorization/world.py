"""A broker with an authorizer, and clients that log in to it."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ottla.broker.config.server_security import STANDARD_AUTHORIZER
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.security.acl import AclBinding, AclFilter, AclOperation, PatternType, Permission, ResourceType
from tests.broker.asking import Asking, Client, running
from tests.broker.requests import topic

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
CLUSTER, TRANSACTIONAL_ID = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = ("admin", "alice", "bob")
SECURED = {
    "listeners": "INSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.inside.plain.sasl.jaas.config": f'{LOGIN} username="admin" password="pw" '
    + " ".join(f'user_{name}="pw"' for name in USERS)
    + ";",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:admin",
}
"""The properties of such a broker; every user has the password pw."""


def acl(
    operation: AclOperation | str,
    kind: ResourceType,
    name: str,
    *,
    principal: str = "User:alice",
    permission: Permission = ALLOW,
    pattern_type: PatternType = LITERAL,
    host: str = "*",
) -> AclBinding:
    operation = operation if isinstance(operation, AclOperation) else AclOperation[operation]
    return AclBinding(kind, name, pattern_type, principal, host, operation, permission)


class Secured:
    def __init__(self, asking: Asking) -> None:
        self.asking = asking
        self.broker = asking.broker

    async def client(self, user: str) -> Client:
        host, _, port = self.broker.bootstrap.rpartition(":")
        client = Client(*await asyncio.open_connection(host, int(port)))
        self.asking._clients.append(client)
        await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        answer = await client.ask(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0pw".encode()), 1)
        assert answer.error_code == 0, answer
        return client

    async def set_acls(self, acls: Iterable[AclBinding]) -> None:
        """These, and no others."""
        manager = self.broker.parts.acls
        await manager.delete([AclFilter()])
        wanted = list(acls)
        assert await manager.create(wanted) == [None] * len(wanted)


@asynccontextmanager
async def secured(data_dir: Path, settings: dict[str, str] | None = None, **parts: Any) -> AsyncIterator[Secured]:
    async with running(data_dir, SECURED | (settings or {}), port=None, **parts) as asking:
        yield Secured(asking)


@asynccontextmanager
async def with_topics(data_dir: Path, **parts: Any) -> AsyncIterator[Secured]:
    """Has the topics orders and secret."""
    async with secured(data_dir, **parts) as made:
        admin = await made.client("admin")
        await admin.ask(CreateTopicsRequest(topics=[topic("orders"), topic("secret")], timeout_ms=5000), 7)
        yield made
