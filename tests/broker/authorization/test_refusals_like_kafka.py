"""Refusals of every API, as Apache Kafka 4.1 with its StandardAuthorizer writes them: the oracle of §62 and §63."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.apache_kafka import ApacheKafka
from ottla.broker.server.apis import APIS
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.schema import Message, fields_of
from ottla.security.acl import AclBinding
from tests.broker.asking import Client
from tests.broker.authorization.samples import ORDERS, Sample, samples
from tests.broker.authorization.test_matrix import granted_for
from tests.broker.authorization.world import SECURED, secured
from tests.broker.requests import topic
from tests.differential.brokers import JVM_OPTIONS, SHARED
from tests.java_tools import classpath

READY_S = 90
LISTENER = "listener.name.sasl_plaintext"
KAFKA = {
    **SHARED,
    "offsets.topic.replication.factor": "1",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    f"{LISTENER}.plain.sasl.jaas.config": SECURED["listener.name.inside.plain.sasl.jaas.config"],
    "authorizer.class.name": SECURED["authorizer.class.name"],
    "super.users": "User:admin;User:ANONYMOUS",
}
EVERY: dict[str, Any] = {
    "resource_type_filter": 1,
    "pattern_type_filter": 1,
    "operation": 1,
    "permission_type": 1,
    **dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter")),
}
UNLIKE = {
    # Kafka names the request in some of its sentences.
    "error_message",
    "cluster_id",
    "port",
}
"""Fields that two clusters differ in."""


async def log_in(host: str, port: int, user: str) -> Client:
    client = Client(*await asyncio.open_connection(host, port))
    await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = await client.ask(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0pw".encode()), 1)
    assert answer.error_code == 0
    return client


class Asked:
    """A broker, by a super user and by alice."""

    def __init__(self, admin: Client, alice: Client, log_in_alice: Callable[[], Awaitable[Client]]) -> None:
        self.admin, self.alice = admin, alice
        self._log_in_alice = log_in_alice
        self.topic_id = bytes(16)

    async def begin(self) -> None:
        await self.admin.ask(CreateTopicsRequest(topics=[topic(ORDERS)], timeout_ms=10_000), 7)
        async with asyncio.timeout(READY_S):
            while not (named := [each for each in await self._topics() if each.name == ORDERS and each.partitions]):
                pass
        self.topic_id = named[0].topic_id

    async def _topics(self) -> list[Any]:
        response = await self.admin.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)
        return list(response.topics)

    async def set_acls(self, acls: list[AclBinding]) -> None:
        await self.admin.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**EVERY)]), 3)
        creations = [
            AclCreation(
                resource_type=int(each.resource_type),
                resource_name=each.name,
                principal=each.principal,
                host=each.host,
                operation=int(each.operation),
                permission_type=int(each.permission),
            )
            for each in acls
        ]
        await self.admin.ask(CreateAclsRequest(creations=creations), 3)
        count = -1
        async with asyncio.timeout(READY_S):
            while count != len(set(acls)):
                described = await self.admin.ask(DescribeAclsRequest(**EVERY), 3)
                count = sum(len(each.acls) for each in described.resources)

    async def versions(self) -> dict[int, tuple[int, int]]:
        response = await self.alice.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
        return {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}

    async def refusal(self, sample: Sample, version: int) -> Any:
        try:
            response = await self.alice.ask(sample.make(version, self.topic_id), version)
        except asyncio.IncompleteReadError:
            self.alice = await self._log_in_alice()
            return "the connection is closed"
        return plain(response, version, self.topic_id)


def plain(found: Any, version: int, topic_id: bytes) -> Any:
    if isinstance(found, list):
        return [plain(each, version, topic_id) for each in found]
    if isinstance(found, Message):
        return {
            field.name: plain(getattr(found, field.name), version, topic_id)
            for field in fields_of(type(found))
            if version in field.versions and field.name not in UNLIKE
        }
    if isinstance(found, memoryview):
        return bytes(found)
    if isinstance(found, bytes) and len(found) == len(topic_id) and any(found):
        return "its id" if found == topic_id else "an id"
    return found


@asynccontextmanager
async def ottla(directory: Path) -> AsyncIterator[Asked]:
    async with secured(directory) as made:
        asked = Asked(await made.client("admin"), await made.client("alice"), lambda: made.client("alice"))
        await asked.begin()
        yield asked


@asynccontextmanager
async def kafka(directory: Path) -> AsyncIterator[Asked]:
    node = ApacheKafka(str(directory), KAFKA, protocol="SASL_PLAINTEXT")
    with node.running(JVM_OPTIONS) as server:
        admin = await first_login(server.port)
        log_in_alice = partial(log_in, "127.0.0.1", server.port, "alice")
        asked = Asked(admin, await log_in_alice(), log_in_alice)
        await asked.begin()
        yield asked


async def first_login(port: int) -> Client:
    async with asyncio.timeout(READY_S):
        while True:
            try:
                return await log_in("127.0.0.1", port, "admin")
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.2)


def is_refused_by_a_code(sample: Sample) -> bool:
    return all(isinstance(each, int) for each in sample.refusals.values())


@pytest.mark.java
@pytest.mark.timeout(600)
async def test_refusals_are_written_as_kafka_writes_them(tmp_path: Path) -> None:
    classpath()
    for name in ("ottla", "kafka"):
        (tmp_path / name).mkdir()
    differences: list[str] = []
    async with ottla(tmp_path / "ottla") as ours, kafka(tmp_path / "kafka") as theirs:
        served = await theirs.versions()
        for sample in filter(is_refused_by_a_code, samples()):
            low, high = served.get(sample.key, (0, -1))
            for need in sample.refusals:
                acls = granted_for(sample, without=need)
                await ours.set_acls(acls)
                await theirs.set_acls(acls)
                for version in sample.served_versions():
                    if not low <= version <= high:
                        continue
                    mine, other = await ours.refusal(sample, version), await theirs.refusal(sample, version)
                    if mine != other:
                        where = f"{APIS[sample.key].name} {sample.what} v{version} without {need}"
                        differences.append(f"{where}\n  ours   {mine}\n  kafka  {other}")
    assert not differences, "\n".join(differences)
