"""Every API, whatever it needs: allowed, denied, and refused in the right shape (§62).

The cases come from the table of APIs: a principal that has exactly what the row needs is served, one that lacks any
part of it gets the error of that part and no other, in every version that is served.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import pytest_asyncio

from ottla.broker.server.apis import API_VERSIONS, APIS, SASL_AUTHENTICATE, SASL_HANDSHAKE, Need
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.schema import Message
from ottla.security.acl import AclBinding, AclOperation, ResourceType
from tests.broker.authorization.samples import CREW, ORDERS, PAY, Sample, samples
from tests.broker.authorization.world import CLUSTER, DENY, GROUP, PREFIXED, TOPIC, Secured, acl, secured
from tests.broker.requests import commit, topic

T = TypeVar("T", str, bytes)
AUTHORIZATION_CODES = {29, 30, 31, 53, 65}
NAMES = {TOPIC: ORDERS, GROUP: CREW, CLUSTER: "kafka-cluster", ResourceType.TRANSACTIONAL_ID: PAY}
NEEDS_NOTHING = {SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE}
SAMPLES = list(samples())
NEW_TOPIC = "new-orders"

of_module = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator["Matrix"]:
    async with matrix(tmp_path_factory.mktemp("matrix")) as made:
        yield made


@asynccontextmanager
async def matrix(data_dir: Path, **parts: Any) -> AsyncIterator["Matrix"]:
    async with secured(data_dir, {"auto.create.topics.enable": "true"}, **parts) as made:
        matrix = Matrix(made)
        await matrix.begin()
        yield matrix


class Matrix:
    def __init__(self, made: Secured) -> None:
        self.made = made
        self.clients: dict[str, Any] = {}
        self._acls: set[AclBinding] | None = None

    async def begin(self) -> None:
        self.clients = {user: await self.made.client(user) for user in ("admin", "alice")}
        await self.ensure_topic()
        for kind, key in ((0, CREW), (1, PAY)):
            await self.until_served(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4)
        await self.until_served(commit(CREW, ORDERS), 8)

    async def until_served(self, request: Any, version: int) -> Any:
        for _ in range(100):
            response = await self.clients["admin"].ask(request, version)
            if not any(codes_of(response)):
                return response
        raise AssertionError(response)

    async def ensure_topic(self) -> None:
        if self.made.broker.image.topic(ORDERS) is None:
            await self.clients["admin"].ask(CreateTopicsRequest(topics=[topic(ORDERS)], timeout_ms=5000), 7)
        assert self.made.broker.image.topic(ORDERS) is not None

    async def prepare(self, sample: Sample) -> None:
        await self.ensure_topic()
        if sample.key in (65, 66):
            await self.begin_transaction()
        if sample.key in (9, 16, 47):
            await self.until_served(commit(CREW, ORDERS), 8)
        created = self.made.broker.image.topic(NEW_TOPIC)
        if created is not None:
            await self.made.broker.parts.topics.delete([created], says_disabled=True)

    async def begin_transaction(self) -> None:
        """One of the topic orders, by the id pay, is open."""
        init = InitProducerIdRequest(transactional_id=PAY, transaction_timeout_ms=60_000)
        producer = await self.until_served(init, 4)
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=PAY,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=ORDERS, partitions=[0])],
        )
        await self.until_served(added, 3)

    async def ask(self, sample: Sample, version: int, acls: list[AclBinding], user: str = "alice") -> Any:
        await self.prepare(sample)
        if self._acls != set(acls):
            self._acls = set(acls)
            await self.made.set_acls(acls)
        known = self.made.broker.image.topic(ORDERS)
        assert known is not None
        return await self.clients[user].ask(sample.make(version, known.topic_id), version)


def granted(sample: Sample, need: Need, *, instead: bool = False, **fields: Any) -> AclBinding:
    """What allows exactly this."""
    operation, resource = need.instead if instead and need.instead is not None else (need.operation, need.resource)
    kind = ResourceType[resource]
    return acl(operation, kind, sample.topic if kind is TOPIC else NAMES[kind], **fields)


def granted_for(sample: Sample, *, without: int | None = None, **fields: Any) -> list[AclBinding]:
    needs = APIS[sample.key].needs
    wanted = [granted(sample, needs[index], **fields) for index in sample.refusals if index != without]
    return wanted + [acl(*each) for each in sample.also]


def codes_of(found: Any) -> Iterator[int]:
    """Of the response and of all in it."""
    if isinstance(found, list):
        for each in found:
            yield from codes_of(each)
    elif isinstance(found, Message):
        for name in type(found).__slots__:
            value = getattr(found, name)
            if name.endswith("error_code"):
                yield int(value)
            else:
                yield from codes_of(value)


def refusals_in(response: Any) -> set[int]:
    return AUTHORIZATION_CODES.intersection(codes_of(response))


def assert_refused(sample: Sample, need: int, response: Any) -> None:
    expected = sample.refusals[need]
    if expected == "zero":
        assert response.cluster_authorized_operations == 0
    elif expected == "dropped":
        assert not refusals_in(response)
        assert shown_name(sample, need) not in parts_of(response, str)
    else:
        assert refusals_in(response) == {expected}


def shown_name(sample: Sample, need: int) -> str:
    """Of the resource that a response leaves out."""
    row = APIS[sample.key].needs[need]
    return NAMES[ResourceType[row.resource if row.instead is None else row.instead[1]]]


def parts_of(found: Any, kind: type[T]) -> set[T]:
    """All texts, or all bytes, of a request or a response."""
    if isinstance(found, kind):
        return {found}
    if isinstance(found, list):
        return {part for each in found for part in parts_of(each, kind)}
    if isinstance(found, Message):
        return {part for name in type(found).__slots__ for part in parts_of(getattr(found, name), kind)}
    return set()


def assert_served(sample: Sample, response: Any) -> None:
    assert not refusals_in(response), response
    for need, expected in sample.refusals.items():
        if expected == "dropped":
            assert shown_name(sample, need) in parts_of(response, str)
        elif expected == "zero":
            assert response.cluster_authorized_operations > 0


def test_every_need_of_the_table_has_a_sample() -> None:
    """A row that nothing asks about would be a row that nothing enforces."""
    asked: dict[int, set[int]] = {}
    for sample in SAMPLES:
        asked.setdefault(sample.key, set()).update(sample.refusals)
    for key, api in APIS.items():
        assert key in NEEDS_NOTHING or api.needs, f"{api.name} needs nothing"
        assert asked.get(key, set()) == set(range(len(api.needs))), api.name


@of_module
@pytest.mark.parametrize("sample", SAMPLES, ids=str)
async def test_who_has_what_a_row_needs_is_served(world: Matrix, sample: Sample) -> None:
    for version in sample.served_versions():
        assert_served(sample, await world.ask(sample, version, granted_for(sample)))


@of_module
@pytest.mark.parametrize("sample", SAMPLES, ids=str)
async def test_who_lacks_a_need_gets_its_error_alone(world: Matrix, sample: Sample) -> None:
    for need in sample.refusals:
        acls = granted_for(sample, without=need)
        for version in sample.served_versions():
            assert_refused(sample, need, await world.ask(sample, version, acls))


@of_module
@pytest.mark.parametrize("sample", SAMPLES, ids=str)
async def test_a_denial_takes_away_what_is_allowed(world: Matrix, sample: Sample) -> None:
    """And not from a super user."""
    for need in sample.refusals:
        acls = [*granted_for(sample), *denied(sample, need)]
        # Of a refusal as a whole, the first need that is missing decides.
        expected = {sample.refusals[each] for each in sample.refusals if _is_about(sample, each, need)}
        for version in sample.served_versions():
            response = await world.ask(sample, version, acls)
            assert refusals_in(response) <= {code for code in expected if isinstance(code, int)}
            if len(expected) == 1:
                assert_refused(sample, need, response)
            assert_served(sample, await world.ask(sample, version, acls, user="admin"))


def denied(sample: Sample, need: int) -> list[AclBinding]:
    """All operations on the resources of a need, for everybody."""
    row = APIS[sample.key].needs[need]
    both = [granted(sample, row, instead=instead) for instead in (False, row.instead is not None)]
    return [each._replace(operation=AclOperation.ALL, permission=DENY, principal="User:*") for each in set(both)]


def _is_about(sample: Sample, need: int, other: int) -> bool:
    return bool(_types(sample, need) & _types(sample, other))


def _types(sample: Sample, need: int) -> set[str]:
    row = APIS[sample.key].needs[need]
    return {row.resource} | ({row.instead[1]} if row.instead is not None else set())


@of_module
@pytest.mark.parametrize("sample", SAMPLES, ids=str)
async def test_what_suffices_instead_suffices(world: Matrix, sample: Sample) -> None:
    needs = APIS[sample.key].needs
    acls = [granted(sample, needs[each], instead=True) for each in sample.refusals]
    for version in sample.served_versions():
        assert_served(sample, await world.ask(sample, version, [*acls, *(acl(*each) for each in sample.also)]))


@of_module
@pytest.mark.parametrize("sample", SAMPLES, ids=str)
async def test_prefixes_wildcards_and_everybody_grant_too(world: Matrix, sample: Sample) -> None:
    version = sample.served_versions()[-1]
    exact = granted_for(sample)
    everybody = [each._replace(principal="User:*") for each in exact]
    wildcard = [each if each.resource_type is CLUSTER else each._replace(name="*") for each in exact]
    prefixed = [
        each if each.resource_type is CLUSTER else each._replace(name=each.name[:2], pattern_type=PREFIXED)
        for each in exact
    ]
    for acls in (everybody, wildcard, prefixed):
        assert_served(sample, await world.ask(sample, version, acls))


ABSENT = {ORDERS: "absent", CREW: "lack", PAY: "non"}
"""In place of what there is; as long, so that lengths show nothing either."""


def renamed(found: Any, names: dict[str, str]) -> Any:
    """The same with other names, and records as bytes, which can be compared."""
    if isinstance(found, str):
        return names.get(found, found)
    if isinstance(found, memoryview):
        return bytes(found)
    if isinstance(found, list):
        return [renamed(each, names) for each in found]
    if isinstance(found, Message):
        other: Any = type(found)()
        for name in type(found).__slots__:
            setattr(other, name, renamed(getattr(found, name), names))
        return other
    return found


def hidden(sample: Sample) -> Iterator[tuple[list[AclBinding], dict[str, str]]]:
    """Rights that do not show what is named, and the names, each with one that nothing has: of one who may do nothing,
    and of those who lack one need of the row."""
    yield [], ABSENT
    for need in sample.refusals:
        name = NAMES[ResourceType[APIS[sample.key].needs[need].resource]]
        if name in ABSENT:
            yield granted_for(sample, without=need), {name: ABSENT[name]}


@of_module
@pytest.mark.parametrize("sample", SAMPLES, ids=str)
async def test_what_is_hidden_looks_like_what_is_not_there(world: Matrix, sample: Sample) -> None:
    """Whatever is asked about it by its name. Ids are no secret (§60.8)."""
    for acls, names in hidden(sample):
        for version in sample.served_versions():
            there = await world.ask(sample, version, acls)
            known = world.made.broker.image.topic(ORDERS)
            assert known is not None
            request = sample.make(version, known.topic_id)
            other = renamed(request, names)
            if known.topic_id in parts_of(request, bytes) or repr(other) == repr(request):
                continue
            absent = await world.clients["alice"].ask(other, version)
            assert repr(renamed(there, names)) == repr(renamed(absent, {}))


@of_module
async def test_an_empty_set_of_acls_refuses_all_apis(world: Matrix) -> None:
    for sample in SAMPLES:
        response = await world.ask(sample, sample.served_versions()[-1], [])
        if all(isinstance(each, int) for each in sample.refusals.values()):
            assert refusals_in(response), sample
