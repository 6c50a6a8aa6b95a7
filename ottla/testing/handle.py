"""The handle of a test: what is in the broker and what happens to it, without a client.

    with ottla.testing.broker() as kafka:
        kafka.create_topic("orders", partitions=3)
        kafka.produce("orders", [(b"alice", b"book")])
        assert [record.value for record in kafka.records("orders")] == [b"book"]
        shop = kafka.group("shop")
        shop.wait_until_stable(members=2)
        assert shop.lag("orders") == {0: 0, 1: 0, 2: 0}

All methods may be called from any thread. No socket is opened: each call is a step on the broker's loop. Waits look at
facts as they happen; one that is over raises DeadlineExceeded, which says what is missing.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ottla.testing import conditions
from ottla.testing.audit.findings import AuditFinding
from ottla.testing.clock.handles import BrokerClock
from ottla.testing.conditions import Upto
from ottla.testing.group_handle import KafkaGroup
from ottla.testing.profile import client_config
from ottla.testing.surroundings.disks import BrokerDisk
from ottla.testing.surroundings.handles import KafkaBroker, KafkaBrokers, KafkaPartition
from ottla.testing.surroundings.links import Links
from ottla.testing.testbed import Testbed
from ottla.testing.topic_handle import KafkaTopic
from ottla.testing.usage import checks_usage
from ottla.testing.views import ConnectionView, ProducerView, StoredRecord, TransactionView
from ottla.testing.waits import deadline_factor
from ottla.testing.worlds import ResetReport
from ottla.testing.writing import GivenRecord, ProduceOptions

if TYPE_CHECKING:
    from ottla.coordinator.facts import Fact
    from ottla.testing.fact_stream import FactStream
    from ottla.testing.faults.actions import Action
    from ottla.testing.faults.faults import Fault, Faults
    from ottla.testing.seeds.seed_loader import SeedReport
    from ottla.testing.snapshots.snapshots import RestoreReport, SnapshotReport
    from ottla.testing.step_lists.handles import KafkaScript
    from ottla.testing.step_lists.steps import GivenScript
    from ottla.testing.wire_capture.recording import KafkaWire

RECORDS_MAX = 100_000


@checks_usage
class Kafka:
    """For tests that block. `ottla.testing.async_handle.KafkaAsync` is the same for coroutines."""

    def __init__(self, bed: Testbed) -> None:
        self._bed = bed

    # The brokers.

    @property
    def bootstrap(self) -> str:
        """What to give clients as `bootstrap.servers`: HOST:PORT, of a cluster all brokers."""
        return self._bed.hosted.bootstrap

    @property
    def cluster_id(self) -> str:
        return self._bed.hosted.cluster_id

    @property
    def prefix(self) -> str:
        """What names of topics, groups and clients begin with where workers share the brokers (`--ottla-shared`,
        docs/testing.md); empty elsewhere."""
        return ""

    @property
    def node_ids(self) -> list[int]:
        """The brokers that run."""
        return self._bed.call(lambda: list(self._bed.hosted.parts()))

    @property
    def brokers(self) -> KafkaBrokers[KafkaBroker]:
        """All, by node id: killed, stopped, paused and started again by them (docs/cluster-faults.md)."""
        return KafkaBrokers(self._bed, KafkaBroker)

    @property
    def links(self) -> Links:
        """Between brokers, and to their store: cut, slow or held up. A reset heals them."""
        return self._bed.links

    def disk(self, node_id: int) -> BrokerDisk:
        """That of a broker: full, failing, slow or damaged. A reset heals it. Raises NotRunningError."""
        return self._bed.disk(node_id)

    def partition(self, topic: str, index: int) -> KafkaPartition:
        """It need not be there."""
        return KafkaPartition(self._bed, topic, index)

    @property
    def connections(self) -> list[ConnectionView]:
        """Those that clients have open."""
        return self._bed.run(self._bed.open_connections())

    def client_config(self, kind: str, library: str = "confluent-kafka") -> dict[str, Any]:
        """What a `producer` or a `consumer` of confluent-kafka, kafka-python, aiokafka or java takes, in the library's
        names: the address, and short back-offs and heartbeats. Raises ConfigError."""
        return client_config(kind, library, self.bootstrap)

    # Faults.

    @property
    def faults(self) -> "Faults":
        """The rules by which requests fail, wait or get lost (docs/faults.md). A reset removes them."""
        return self._bed.hosted.fault_host.faults

    def fault(self, *, do: "Action | Mapping[str, Any] | str", **fields: Any) -> "Fault":
        """One rule, as of `Faults.fault`; as a context it is removed at the end. Raises RuleError."""
        return self.faults.fault(do=do, **fields)

    def script(self, given: "GivenScript") -> "KafkaScript":
        """Faults and actions, each at its moment of broker time, or after what it waits for (docs/scripts.md): a list
        of steps, or a file with them. Returns when those for now have run. A reset ends it. Raises ScriptError with
        the step that is wrong, and OSError."""
        from ottla.testing.step_lists.handles import begun

        return self._bed.run(begun(self._bed, given))

    def audit(self) -> list[AuditFinding]:
        """What went wrong since the begin of the test, or the last reset, by what was asked and answered and by how the
        logs are now (docs/audit.md). Empty where the audit is off."""
        return self._bed.call(self._bed.auditor.findings)

    # Time.

    @property
    def clock(self) -> BrokerClock:
        """The time that groups, transactions, retention and timestamps go by (docs/broker-time.md). A reset makes it
        the machine's."""
        return BrokerClock(self._bed)

    # The wire.

    @property
    def wire(self) -> "KafkaWire":
        """Captures of what goes over the wire (docs/wire.md)."""
        # Imported here: most tests capture nothing.
        from ottla.testing.wire_capture.recording import KafkaWire

        return KafkaWire(self._bed)

    # Topics and records.

    @property
    def topics(self) -> list[str]:
        """Their names, without internal ones."""
        return self._bed.call(self._bed.reader.topic_names)

    def topic(self, name: str) -> "KafkaTopic":
        """It need not be there."""
        return KafkaTopic(self._bed, name)

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication_factor: int | None = None,
        configs: Mapping[str, object] | None = None,
    ) -> "KafkaTopic":
        """None leaves a number to the broker's defaults. Returns when all partitions have leaders. Raises the
        KafkaError that CreateTopics would be answered with."""
        self._bed.run(self._bed.writer.create_topic(name, partitions, replication_factor, configs or {}))
        return KafkaTopic(self._bed, name)

    def produce(
        self, topic: str, records: Sequence[GivenRecord], **options: Unpack[ProduceOptions]
    ) -> list[tuple[int, int]]:
        """Partition and offset of each record. A record is its value, a pair of key and value, or a `Record`; the
        options are those of `ottla.testing.writing.ProduceOptions`. Raises the KafkaError that a Produce request would
        be answered with."""
        return self._bed.run(self._bed.writer.produce(topic, records, **options))

    def records(
        self,
        topic: str,
        partition: int | None = None,
        *,
        start: int = 0,
        stop: int | None = None,
        isolation: str = "read_committed",
        limit: int = RECORDS_MAX,
    ) -> list[StoredRecord]:
        """What a consumer would read now: each partition in the order of its log, several by timestamp. Of each from
        offset `start` on, before `stop`. `isolation` is read_committed, read_uncommitted, or log, which has control
        records and what is above the high watermark too. Raises UnknownTopicOrPartition, and TooManyRecordsError where
        there are more than `limit`."""
        return self._bed.call(self._bed.reader.records, topic, partition, start, stop, isolation, limit)

    # Groups.

    @property
    def groups(self) -> list[str]:
        """Those with members or committed offsets, by their ids."""
        return self._bed.call(self._bed.reader.group_ids)

    def group(self, group_id: str) -> "KafkaGroup":
        """It need not be there."""
        return KafkaGroup(self._bed, group_id)

    # Producers.

    @property
    def producers(self) -> list[ProducerView]:
        """What the leaders of partitions remember of producers with an id."""
        return self._bed.call(self._bed.reader.producers)

    @property
    def transactions(self) -> list[TransactionView]:
        """All transactional ids, each with the transaction that it has, or had last."""
        return self._bed.call(self._bed.reader.transactions)

    # Waits. `within` is in seconds; by default it is the deadline of the fixture.

    def wait(self, predicate: Callable[["Kafka"], object], *, describe: str, within: float | None = None) -> None:
        """Until `predicate` gives something true; it is called on the broker's loop with this handle after each event,
        may look at everything, and must not block. Raises DeadlineExceeded."""
        condition = conditions.GivenCondition(lambda: predicate(self), describe)
        self._bed.run(self._bed.wait(condition, within))

    def wait_for_records(self, topic: str, count: int, *, within: float | None = None) -> None:
        """Until the topic has this number of records, or more, as `records` gives them. Raises DeadlineExceeded."""
        self._bed.run(self._bed.wait(conditions.topic_records(self._bed.sources, topic, count), within))

    def wait_until_consumed(
        self, topic: str, *, count: int | None = None, upto: Upto | None = None, within: float | None = None
    ) -> None:
        """Until consumers were given all records of the topic, or `count` of them, whether they committed that or not.
        `upto`: all those before an offset of each of these partitions; "end", as without it, is where the records end
        at each look. Raises DeadlineExceeded, and ValueError for both."""
        offsets = conditions.offsets_upto(count, upto)
        condition = conditions.topic_consumed(self._bed.sources, topic, count, offsets)
        self._bed.run(self._bed.wait(condition, within))

    def wait_until_in_sync(self, topic: str, *, within: float | None = None) -> None:
        """Until all replicas of the topic are in sync, and each partition has a leader. Raises DeadlineExceeded."""
        self._bed.run(self._bed.wait(conditions.topic_in_sync(self._bed.sources, topic), within))

    def wait_until_leader(
        self, topic: str, partition: int, *, node: int | None = None, within: float | None = None
    ) -> None:
        """Until the partition is led by a broker, or by this one. Raises DeadlineExceeded."""
        condition = conditions.partition_led_by(self._bed.sources, topic, partition, node)
        self._bed.run(self._bed.wait(condition, within))

    def wait_until_idle(self, *, ms: float = 50, within: float | None = None) -> None:
        """Until no client has sent a request for so many milliseconds. Consumers send heartbeats and fetches all the
        while: each half a second by `client_config`. Raises DeadlineExceeded."""
        condition = conditions.ClientsIdle(self._bed.sources, ms, self._bed.waits.look)
        self._bed.run(self._bed.wait(condition, within))

    def events(self, *kinds: "type[Fact]", within: float | None = None) -> "FactStream":
        """The facts of groups as they happen, from now on until the deadline; of these classes of
        `ottla.coordinator.facts`, or of all."""
        from ottla.testing.fact_stream import FactStream

        within_s = (self._bed.deadline_s if within is None else within) * deadline_factor()
        return FactStream(self._bed.histories, self._bed.call, kinds, within_s)

    # Isolation.

    def load(self, seed: str | Path | Mapping[str, Any]) -> "SeedReport":
        """Adds what a seed says, a file or a mapping of the same form (docs/isolation.md): topics with records, groups
        with offsets, users, ACLs, quotas, fault rules. Raises SeedError with the path to what is wrong, and OSError."""
        return self._bed.run(self._bed.load(seed))

    def reset(self) -> ResetReport:
        """Empties the broker: connections, groups, offsets, transactions, topics, ACLs, quotas, users, configs. Topics
        given at the start are made again. What has been used once as an identity is not used again."""
        return self._bed.run(self._bed.reset())

    def snapshot(self, name: str) -> "SnapshotReport":
        """Keeps the state of the brokers under this name, for `restore`: topics and records, configs, groups with their
        offsets, transactions, users, ACLs, quotas and fault rules. Raises SnapshotError while a partition has no
        leader, or is being reassigned."""
        return self._bed.run(self._bed.snapshot(name))

    def restore(self, name: str, *, members: str = "leave") -> "RestoreReport":
        """Gives the brokers that state again, at the same ports. Connections of clients are closed. Groups come back
        empty, with their offsets; with `members="keep"` they have their members, whose sessions begin again. Open
        transactions come back open, and broker time runs as it did then. Links, disks and brokers are healed. Raises
        SnapshotError where there is no such snapshot."""
        report = self._bed.run(self._bed.restore(name, members=members))
        self._bed.clock.travellers.move_to(self.clock.now())
        return report
