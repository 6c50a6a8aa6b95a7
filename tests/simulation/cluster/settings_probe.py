"""Settings are altered when everybody has gone, and records of all kinds show whether the leader obeys (I-39).

Each of a topic of its own, and cluster-wide. Whatever was committed before, an alteration holds for the next record
that is written once all brokers have it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from ottla.protocol.records.batch import BatchHeader, iterate_batches
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.record import Record, build_batch
from tests.simulation.calm import wrong_after
from tests.simulation.cluster.client import REQUEST_TIMEOUT_MS, Client, Partition
from tests.simulation.cluster.plan import NODE_IDS
from tests.simulation.cluster.producing import produce_request
from tests.simulation.cluster.setting_choices import ALL, ALL_COMPACTED, COMPACTED, Values
from tests.simulation.cluster.settings_admin import SettingsAdmin

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

PROBED = "probed"
PARTITION: Partition = (PROBED, 0)
PROPAGATION_MS = 5_000
ATTEMPTS_MAX = 10
KEY, SMALL, LARGE = b"key", b"small" * 20, b"large" * 8_000
LOG_APPEND_TIME = 1


class Sample(NamedTuple):
    """A record, the answer to it, and what the batch is like where it is stored."""

    key: bytes | None
    value: bytes
    error: ErrorCode = ErrorCode.NONE
    is_right: Callable[[BatchHeader], bool] = lambda _: True


class Probe(NamedTuple):
    of_topic: Values
    of_all: Values
    samples: tuple[Sample, ...]


PROBES = (
    Probe(
        {"max.message.bytes": "30000"},
        {"message.max.bytes": "30000"},
        (Sample(KEY, LARGE, ErrorCode.MESSAGE_TOO_LARGE), Sample(KEY, SMALL)),
    ),
    Probe(COMPACTED, ALL_COMPACTED, (Sample(None, SMALL, ErrorCode.INVALID_RECORD), Sample(KEY, SMALL))),
    Probe(
        {"compression.type": "gzip"},
        {"compression.type": "gzip"},
        (Sample(None, SMALL, is_right=lambda header: header.codec == Codec.GZIP),),
    ),
    Probe(
        {"message.timestamp.type": "LogAppendTime"},
        {"log.message.timestamp.type": "LogAppendTime"},
        (Sample(None, SMALL, is_right=lambda header: header.timestamp_type == LOG_APPEND_TIME),),
    ),
)
# What holds again when an alteration was taken back.
USUAL = (
    Sample(KEY, LARGE),
    Sample(None, SMALL, is_right=lambda header: header.codec == Codec.NONE),
    Sample(None, SMALL, is_right=lambda header: header.timestamp_type != LOG_APPEND_TIME),
)


def probed_topic() -> CreatableTopic:
    """Large batches fit into its segments, whatever those of others are."""
    configs = [CreatableTopicConfig(name="segment.bytes", value="1000000")]
    return CreatableTopic(name=PROBED, num_partitions=1, replication_factor=len(NODE_IDS), configs=configs)


class SettingsProbe:
    def __init__(self, world: "ClusterWorld", admin: SettingsAdmin) -> None:
        self._world = world
        self._admin = admin
        self._client = Client(world, world.make_rng("probed settings"), "settings-probe", [PROBED])

    async def judge(self) -> None:
        """Cluster-wide goes what the storm has left, first."""
        taken_back: Values = {name: None for probe in PROBES for name in probe.of_all}
        await self._alter(ALL, taken_back)
        for owner in (PROBED, ALL):
            for probe in PROBES:
                values = probe.of_all if owner == ALL else probe.of_topic
                await self._alter(owner, values)
                for sample in probe.samples:
                    await self._send(sample, f"{owner or 'all brokers'} with {dict(values)}")
                await self._alter(owner, dict.fromkeys(values))
                for sample in USUAL:
                    await self._send(sample, f"{owner or 'all brokers'} without {sorted(values)}")
        self._client.close()

    async def _alter(self, owner: str, values: Values) -> None:
        """Returns when every broker's metadata shows it."""
        for _ in range(ATTEMPTS_MAX):
            if await self._admin.alter(owner, values):
                break
        else:
            self._world.judge.violated("I-20", f"{owner or 'all brokers'} cannot be altered to {values}")
        if behind := await wrong_after(PROPAGATION_MS, self._behind):
            self._world.judge.violated("I-20", "; ".join(behind))

    def _behind(self) -> list[str]:
        revision = self._world.truth.image.revision
        return [
            f"{node.host} is at {node.broker.metadata.image.revision}, not {revision}"
            for node in self._world.nodes.values()
            if node.broker.metadata.image.revision < revision
        ]

    async def _send(self, sample: Sample, what: str) -> None:
        records = build_batch([Record(timestamp=self._world.wall_ms(), key=sample.key, value=sample.value)])
        answer = await self._answer(bytes(records))
        error = ErrorCode(answer.error_code)
        self._world.judge.counts["settings probed"] += 1
        how = f"{what}: key {sample.key!r}, {len(sample.value)} bytes"
        if error is not sample.error:
            self._world.judge.violated("I-39", f"{how} were answered {error.name}")
        elif error is ErrorCode.NONE:
            header = self._stored(answer.base_offset)
            if not sample.is_right(header):
                self._world.judge.violated("I-39", f"{how} are stored as {header}")

    async def _answer(self, records: bytes) -> Any:
        for attempt in range(ATTEMPTS_MAX):
            try:
                wire, _ = await self._client.leader(PARTITION)
                response = await wire.call(produce_request(PARTITION, records, 1), 9, within_ms=REQUEST_TIMEOUT_MS)
            except OSError:
                self._client.metadata_is_stale()
                continue
            answer = response.responses[0].partition_responses[0]
            if answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER or attempt == ATTEMPTS_MAX - 1:
                return answer
            self._client.metadata_is_stale()
        raise AssertionError("a leader answers in the calm")

    def _stored(self, offset: int) -> BatchHeader:
        state = self._world.truth.partition(*PARTITION)
        assert state is not None, "it is never deleted"
        log = self._world.nodes[state.leader].broker.replicas.partition(*PARTITION).log
        chunk = log.read(offset, 1 << 20, upper_bound=log.log_end_offset, min_one_batch=True, wait=True)
        return next(header for _, header in iterate_batches(chunk.records))
