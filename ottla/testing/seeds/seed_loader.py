"""Gives a broker what a seed says, in the order in which the parts need each other. Coroutines of the brokers' loop."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ottla.broker.assembly import Parts
from ottla.cluster.client_quotas import QuotaAlteration, QuotaOp
from ottla.cluster.scram_users import ScramUpsertion
from ottla.coordinator.events import OffsetToCommit
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.record import Record
from ottla.security.acl import CLUSTER_NAME, AclBinding, AclOperation, PatternType, Permission, ResourceType
from ottla.security.quotas import ENTITY_TYPES, QUOTA_KEYS
from ottla.security.scram_credential import ITERATIONS_MIN, SALT_BYTES, ScramHash, salted_password
from ottla.testing.faults.rule_values import RuleError, nearest
from ottla.testing.group_commands import GroupCommands
from ottla.testing.hosting import HostedBrokers
from ottla.testing.reading import BrokerReader
from ottla.testing.seeds.seed_files import checked, read_seed
from ottla.testing.seeds.seed_records import records_of
from ottla.testing.seeds.seed_schema import SeedError
from ottla.testing.writing import BrokerWriter

BATCH_BYTES: Final = 256 << 10
"""Of keys and values: well below `max.message.bytes`."""
START, END = "start", "end"


@dataclass(frozen=True, slots=True)
class SeedReport:
    """What a seed has brought."""

    topics: int
    records: int
    groups: int


class SeedLoader:
    """Everything here runs on the loop of the brokers."""

    def __init__(
        self, hosted: HostedBrokers, reader: BrokerReader, writer: BrokerWriter, commands: GroupCommands
    ) -> None:
        self._hosted = hosted
        self._reader = reader
        self._writer = writer
        self._commands = commands

    async def load(self, seed: str | Path | Mapping[str, Any], *, with_files: bool = True) -> SeedReport:
        """A file or what it would say; files that a mapping names are those of the working directory, or refused. What
        is wrong with its form is said before anything is done. Raises SeedError and OSError."""
        if isinstance(seed, Mapping):
            return await self._load(checked(seed), Path.cwd() if with_files else None)
        path = Path(seed)
        found = read_seed(path)
        try:
            return await self._load(found, path.parent)
        except SeedError as error:
            raise SeedError(f"{path.name}: {error}") from None

    async def _load(self, seed: Mapping[str, Any], directory: Path | None) -> SeedReport:
        records = 0
        for name, topic in seed.get("topics", {}).items():
            given: Mapping[str, Any] = {"partitions": topic} if isinstance(topic, int) else topic
            with _at(f"topics.{name}"):
                await self._create(name, given)
                records += await self._produce(name, given.get("records", ()), directory)
        for group_id, group in seed.get("groups", {}).items():
            with _at(f"groups.{group_id}"):
                await self._commit(group_id, group.get("offsets", {}))
        await self._create_users(seed.get("users", {}))
        await self._create_acls(seed.get("acls", ()))
        await self._set_quotas(seed.get("quotas", ()))
        if seed.get("rules"):
            with _at("rules"):
                self._hosted.fault_host.faults.add_all(seed["rules"])
        return SeedReport(len(seed.get("topics", {})), records, len(seed.get("groups", {})))

    # Topics and groups.

    async def _create(self, name: str, given: Mapping[str, Any]) -> None:
        """A topic that is there gets the records, if nothing else is asked of it."""
        if self._reader.topic(name) is None or given.keys() - {"records"}:
            partitions, factor = given.get("partitions"), given.get("replication_factor")
            await self._writer.create_topic(name, partitions, factor, given.get("configs", {}))

    async def _produce(self, name: str, given: Sequence[Mapping[str, Any]], directory: Path | None) -> int:
        count = 0
        for index, each in enumerate(given):
            records = list(records_of(each, directory, f"records[{index}]"))
            with _at(f"records[{index}]"):
                for batch in _batches(records):
                    await self._writer.produce(name, batch, partition=each.get("partition"))
            count += len(records)
        return count

    async def _commit(self, group_id: str, given: Mapping[str, Mapping[Any, Any]]) -> None:
        offsets = [
            OffsetToCommit(topic, int(index), self._offset(topic, int(index), offset))
            for topic, partitions in given.items()
            for index, offset in partitions.items()
        ]
        await self._commands.commit(group_id, offsets)

    def _offset(self, topic: str, index: int, given: int | str) -> int:
        view = self._reader.topic(topic)
        if view is None or index >= len(view.partitions):
            raise SeedError(f"offsets.{topic}.{index}: there is no such partition")
        match given:
            case int():
                return given
            case "start":
                return view.partitions[index].log_start_offset
            case "end":
                return view.partitions[index].high_watermark
            case _:
                raise SeedError(f"offsets.{topic}.{index}: {given!r}: expected an offset, {START} or {END}")

    # Administration.

    async def _create_users(self, given: Mapping[str, Any]) -> None:
        parts = self._hosted.first()
        wanted = [_upsertion(parts, name, each) for name, each in given.items()]
        if wanted:
            with _at("users"):
                for name, error in (await parts.scram_users.alter(wanted)).items():
                    raise SeedError(f"{name}: {error}")

    async def _create_acls(self, given: Sequence[Mapping[str, Any]]) -> None:
        wanted: list[AclBinding] = []
        for index, each in enumerate(given):
            with _at(f"acls[{index}]"):
                wanted.append(_acl(each))
        if wanted:
            if not self._hosted.first().runtime.config.authorizer_class_name:
                raise SeedError("acls: no authorizer is configured: set authorizer.class.name")
            for index, error in enumerate(await self._hosted.first().acls.create(wanted)):
                if error is not None:
                    raise SeedError(f"acls[{index}]: {error}")

    async def _set_quotas(self, given: Sequence[Mapping[str, Any]]) -> None:
        wanted = [_quota(each) for each in given]
        if wanted:
            with _at("quotas"):
                for error in await self._hosted.first().client_quotas.alter(wanted, validate_only=False):
                    if error is not None:
                        raise error


def _batches(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """A larger record is by itself."""
    start = size_bytes = 0
    for index, record in enumerate(records):
        more_bytes = len(record.key or b"") + len(record.value or b"")
        if index > start and size_bytes + more_bytes > BATCH_BYTES:
            yield records[start:index]
            start, size_bytes = index, 0
        size_bytes += more_bytes
    yield records[start:]


@contextmanager
def _at(path: str) -> Generator[None]:
    """Puts the path in front of what is wrong there, or further inside."""
    try:
        yield
    except SeedError as error:
        raise SeedError(f"{path}.{error}") from None
    except (KafkaError, RuleError) as error:
        raise SeedError(f"{path}: {error}") from None


def _upsertion(parts: Parts, name: str, given: str | Mapping[str, Any]) -> ScramUpsertion:
    user: Mapping[str, Any] = {"password": given} if isinstance(given, str) else given
    scram = ScramHash.SHA_512 if user.get("mechanism") == ScramHash.SHA_512.mechanism else ScramHash.SHA_256
    iterations, salt = user.get("iterations", ITERATIONS_MIN), parts.runtime.random_bytes(SALT_BYTES)
    salted = salted_password(scram, user["password"].encode(), salt, iterations)
    return ScramUpsertion(name, int(scram), iterations, salt, salted)


def _acl(given: Mapping[str, Any]) -> AclBinding:
    resource = ResourceType[given["resource"].upper()]
    operations = {each.name.lower(): each for each in AclOperation if each > AclOperation.ANY}
    operation = given["operation"].lower().replace("-", "_")
    if operation not in operations:
        raise SeedError(f"operation: {given['operation']!r}{nearest(operation, operations)}")
    return AclBinding(
        resource,
        given.get("name", CLUSTER_NAME if resource is ResourceType.CLUSTER else "*"),
        PatternType[given.get("pattern", "literal").upper()],
        given["principal"],
        given.get("host", "*"),
        operations[operation],
        Permission[given.get("permission", "allow").upper()],
    )


def _quota(given: Mapping[str, Any]) -> QuotaAlteration:
    named = tuple((kind, given[kind.replace("-", "_")]) for kind in ENTITY_TYPES if kind.replace("-", "_") in given)
    return QuotaAlteration(named, tuple(QuotaOp(key, float(given[key]), False) for key in QUOTA_KEYS if key in given))
