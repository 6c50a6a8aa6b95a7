"""Scripts about the leaders of partitions: what they take into a transaction, and what readers get."""

from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.broker.requests import delete_records
from tests.broker.wire import batch
from tests.differential.script import Script, joined
from tests.differential.scripted_producer import ScriptedProducer
from tests.differential.shown import MADE_UP, code

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST, EARLIEST, LARGEST = -1, -2, -3


def outside_a_transaction(script: Script) -> None:
    """Transactional batches that no coordinator has registered."""
    script.create("t")
    producer = ScriptedProducer(script, "p")
    producer.producer_id, producer.epoch = MADE_UP, 0
    for version in (9, 10, 11, 12):
        producer.produce("t", "x", version=version)
    producer.produce("t", "x", producer_id=-1, epoch=-1)
    producer.initialize()
    for version in (9, 10, 11):
        producer.produce("t", "x", version=version)
        producer.produce("t", "x", version=version, epoch=producer.epoch + 1)
        producer.produce("t", "x", version=version, epoch=producer.epoch - 1)
        producer.produce("t", "x", version=version, producer_id=MADE_UP)
    producer.produce("t", "x", version=12, epoch=producer.epoch + 1)
    producer.produce("t", "x", version=12, producer_id=MADE_UP)
    producer.produce("t", "x", name="", version=9)
    producer.produce("t", "x", name="", version=11)
    producer.produce("t", "x", name="another", version=11)
    producer.describe()
    describe_producers(script, "t")
    script.log("t")


def without_an_id(script: Script) -> None:
    """A transactional batch in a request without a transactional id, and one of two producers."""
    script.create("t", partitions=2)
    producer, other = ScriptedProducer(script, "p"), ScriptedProducer(script, "q")
    producer.initialize()
    other.initialize()
    producer.add({"t": [0, 1]})
    one, two = (
        batch(b"x", producer_id=each.producer_id, producer_epoch=each.epoch, base_sequence=0, transactional=True)
        for each in (producer, other)
    )
    for version in (9, 11, 12):
        producer.send_batches({("t", 0): one}, version=version, what=f"no id v{version}", transactional_id=None)
        producer.send_batches(
            {("t", 0): one, ("t", 1): two},
            version=version,
            what=f"two producers v{version}",
            transactional_id=producer.transactional_id,
        )
    producer.send_batches(
        {("t", 0): one, ("t", 1): batch(b"plain")},
        version=11,
        what="transactional and plain",
        transactional_id=producer.transactional_id,
    )
    producer.end(commit=True)
    script.log("t")
    script.log("t", 1)


def sequences(script: Script) -> None:
    script.create("t")
    producer = ScriptedProducer(script, "p")
    producer.initialize()
    producer.add({"t": [0]})
    producer.produce("t", "first", sequence=3)
    producer.produce("t", "first")
    producer.produce("t", "first")
    producer.produce("t", "gap", sequence=2)
    producer.produce("t", "second", sequence=1)
    producer.produce("t", "first")
    producer.produce("t", "plain", sequence=2, transactional=False)
    producer.produce("t", "later", sequence=2, epoch=producer.epoch + 1)
    producer.produce("t", "earlier", sequence=2, epoch=producer.epoch - 1)
    producer.produce("t", "third", sequence=2, version=12)
    producer.end(commit=True)
    producer.produce("t", "first")
    producer.produce("t", "plain", sequence=3, transactional=False)
    producer.produce("t", "fourth", sequence=4)
    describe_producers(script, "t")
    script.log("t")


def sequences_of_version_12(script: Script) -> None:
    """The leader registers, and the sequences of each transaction begin at 0."""
    script.create("t", partitions=2)
    producer = ScriptedProducer(script, "p")
    producer.initialize()
    producer.produce("t", "gap", sequence=1, version=12)
    producer.produce("t", "first", version=12)
    producer.produce("t", "second", sequence=1, version=12)
    producer.produce("t", "other", sequence=5, index=1, version=12)
    producer.describe()
    producer.end(commit=True, version=5)
    producer.produce("t", "old sequence", sequence=2, version=12)
    producer.produce("t", "old epoch", sequence=2, version=12, epoch=producer.epoch - 1)
    producer.produce("t", "duplicate", sequence=1, version=12, epoch=producer.epoch - 1)
    producer.produce("t", "next", version=12)
    producer.produce("t", "plain", sequence=1, transactional=False)
    producer.end(commit=False, version=5)
    describe_producers(script, "t")
    script.log("t")
    script.log("t", 1)


def plain_after_a_refused_batch(script: Script) -> None:
    """A leader remembers the sequence of a transactional batch that was refused: plain ones do not overtake it."""
    script.create("t", partitions=2)
    producer = ScriptedProducer(script, "p")
    producer.initialize()
    producer.produce("t", "plain", transactional=False)
    producer.produce("t", "refused", sequence=5)
    producer.produce("t", "before", sequence=1, transactional=False)
    producer.produce("t", "next epoch", transactional=False, epoch=producer.epoch + 1)
    producer.produce("t", "behind", sequence=1, transactional=False, epoch=producer.epoch + 1)
    for number, version in enumerate((9, 11, 12)):
        unknown = {"producer_id": MADE_UP + number, "epoch": 0, "index": 1, "version": version}
        producer.produce("t", "refused", sequence=3, **unknown)
        producer.produce("t", "behind", sequence=4, transactional=False, **unknown)
        producer.produce("t", "in its place", sequence=3, transactional=False, **unknown)
        producer.produce("t", "before", transactional=False, **unknown)
    describe_producers(script, "t", 0, 1)
    script.log("t")
    script.log("t", 1)


def late_duplicates(script: Script) -> None:
    """Of a transaction that has ended: refused, and the next one begins behind it."""
    script.create("t", partitions=5)
    for index, version in enumerate((9, 11)):
        producer = ScriptedProducer(script, f"p{version}")
        producer.initialize()
        producer.add({"t": [index]})
        producer.produce("t", "first", index=index, version=version)
        producer.produce("t", "second", sequence=1, index=index, version=version)
        producer.end(commit=False)
        producer.produce("t", "second", sequence=1, index=index, version=version)
        producer.produce("t", "first", index=index, version=version)
        producer.add({"t": [index]})
        producer.produce("t", "third", sequence=2, index=index, version=version)
        producer.end(commit=True)
    producer.add({"t": [2]})
    producer.produce("t", "first", index=2)
    producer.end(commit=True)
    producer.add({"t": [2]})
    producer.produce("t", "known", index=2)
    producer.produce("t", "second", sequence=1, index=2)
    producer.end(commit=True)
    producer.produce("t", "plain", index=3, transactional=False)
    producer.produce("t", "refused", index=3)
    producer.produce("t", "next", sequence=1, index=3, transactional=False)
    producer.produce("t", "first", index=4, version=12)
    producer.end(commit=True, version=5)
    producer.produce("t", "first", index=4, version=12, epoch=producer.epoch - 1)
    producer.produce("t", "next", index=4, version=12)
    producer.end(commit=True, version=5)


def readers(script: Script) -> None:
    """Fetch, its aborted transactions, and ListOffsets, in between and at the end."""
    script.create("t")
    one, two, three = (ScriptedProducer(script, name) for name in ("one", "two", "three"))
    for producer in (one, two, three):
        producer.initialize()
        producer.add({"t": [0]})
    one.produce("t", "a")
    two.produce("t", "b", "b2")
    one.produce("t", "a2", sequence=1)
    read(script, "t")
    two.end(commit=False)
    read(script, "t")
    three.produce("t", "c")
    one.produce("t", "plain", transactional=False, producer_id=MADE_UP, epoch=0)
    one.end(commit=True)
    read(script, "t")
    three.end(commit=False)
    read(script, "t")
    for offset in range(10):
        fetch(script, "t", offset)
    describe_producers(script, "t")
    script.log("t")


def deleted_beginning(script: Script) -> None:
    """DeleteRecords takes the beginning of an open transaction."""
    script.create("t")
    producer = ScriptedProducer(script, "p")
    producer.initialize()
    producer.add({"t": [0]})
    producer.produce("t", "a")
    producer.produce("t", "b", sequence=1)
    script.ask("DeleteRecords", delete_records(script.own("t"), 0, 1), 2, _deleted)
    read(script, "t")
    describe_producers(script, "t")
    producer.end(commit=False)
    read(script, "t")
    fetch(script, "t", 1)


def markers_by_hand(script: Script) -> None:
    """WriteTxnMarkers, as administrators send it."""
    script.create("t", partitions=2)
    producer = ScriptedProducer(script, "p")
    producer.initialize()
    mark(script)
    mark(script, marker(script, producer, commit=False, indexes=(0, 7)))
    producer.add({"t": [0]})
    producer.produce("t", "a")
    mark(script, marker(script, producer, commit=False, epoch=-1))
    # Its timestamp is to be later than that of the first one.
    script.until_next_millisecond()
    mark(script, marker(script, producer, commit=False, coordinator_epoch=5))
    read(script, "t")
    mark(script, marker(script, producer, commit=False, coordinator_epoch=4))
    mark(script, marker(script, producer, commit=False, coordinator_epoch=5))
    mark(script, marker(script, producer, commit=True, coordinator_epoch=5))
    producer.produce("t", "b", sequence=1)
    mark(script, marker(script, producer, commit=True, coordinator_epoch=6, epoch=producer.epoch + 1))
    producer.produce("t", "c", sequence=2)
    mark(script, marker(script, producer, commit=False, coordinator_epoch=6))
    mark(script, marker(script, producer, commit=False, topic="nowhere"))
    mark(
        script,
        marker(script, producer, commit=True, coordinator_epoch=6, epoch=producer.epoch + 1),
        marker(script, producer, commit=True, coordinator_epoch=7, epoch=producer.epoch + 1, indexes=(1,)),
    )
    describe_producers(script, "t", 0, 1)
    script.log("t")
    script.log("t", 1)


def producers_of_a_partition(script: Script) -> None:
    script.create("t", partitions=2)
    producer = ScriptedProducer(script, "p")
    producer.initialize()
    describe_producers(script, "t", 0, 1, 2)
    describe_producers(script, "nowhere")
    producer.add({"t": [0, 1]})
    producer.produce("t", "a", "b")
    producer.produce("t", "plain", transactional=False, producer_id=MADE_UP, epoch=3)
    producer.produce("t", "plain", index=1, transactional=False, producer_id=MADE_UP, epoch=3, sequence=9)
    describe_producers(script, "t", 0, 1)
    producer.end(commit=True)
    describe_producers(script, "t", 0, 1)


# What is asked, and how the answers are written down.


def read(script: Script, topic: str) -> None:
    """By both isolation levels: records from the beginning, and the offsets of the end."""
    fetch(script, topic, 0, READ_UNCOMMITTED)
    fetch(script, topic, 0)
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        for timestamp in (LATEST, EARLIEST, LARGEST, 0):
            partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation,
                topics=[ListOffsetsTopic(name=script.own(topic), partitions=[partition])],
            )
            script.ask(f"ListOffsets {timestamp} isolation {isolation}", request, 7, _offset)


def fetch(script: Script, topic: str, offset: int, isolation: int = READ_COMMITTED) -> None:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        isolation_level=isolation,
        topics=[FetchTopic(topic=script.own(topic), partitions=[partition])],
    )

    def shown(answer: object) -> str:
        (found,) = answer.responses[0].partitions  # type: ignore[attr-defined]
        aborted = found.aborted_transactions
        named = (
            "null"
            if aborted is None
            else sorted(f"{script.names.name(e.producer_id)}@{e.first_offset}" for e in aborted)
        )
        length = len(bytes(found.records or b""))
        return (
            f"{code(found.error_code)} {length} bytes high watermark {found.high_watermark} "
            f"stable {found.last_stable_offset} start {found.log_start_offset} aborted {named}"
        )

    script.ask(f"Fetch {offset} isolation {isolation}", request, 12, shown)


def _offset(answer: object) -> str:
    (found,) = answer.topics[0].partitions  # type: ignore[attr-defined]
    return f"{code(found.error_code)} {found.offset} leader epoch {found.leader_epoch}"


def _deleted(answer: object) -> str:
    (found,) = answer.topics[0].partitions  # type: ignore[attr-defined]
    return f"{code(found.error_code)} {found.low_watermark}"


def describe_producers(script: Script, topic: str, *indexes: int) -> None:
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=script.own(topic), partition_indexes=list(indexes or (0,)))]
    )
    names = script.names

    def shown(answer: object) -> str:
        partitions = answer.topics[0].partitions  # type: ignore[attr-defined]
        return joined(
            [
                f"{partition.partition_index} {code(partition.error_code)} "
                + joined(
                    sorted(
                        f"({names.pair(each.producer_id, each.producer_epoch)} last {each.last_sequence} "
                        f"coordinator {each.coordinator_epoch} open {each.current_txn_start_offset})"
                        for each in partition.active_producers
                    )
                )
                for partition in sorted(partitions, key=lambda each: int(each.partition_index))
            ]
        )

    script.ask(f"DescribeProducers {topic}", request, 0, shown)


def marker(
    script: Script,
    producer: ScriptedProducer,
    *,
    commit: bool,
    topic: str = "t",
    epoch: int | None = None,
    coordinator_epoch: int = 0,
    indexes: tuple[int, ...] = (0,),
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch if epoch is None else epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=script.own(topic), partition_indexes=list(indexes))],
        coordinator_epoch=coordinator_epoch,
    )


def mark(script: Script, *markers: WritableTxnMarker) -> None:
    asked = [
        f"{'commit' if each.transaction_result else 'abort'} "
        f"{script.names.pair(each.producer_id, each.producer_epoch)} by {each.coordinator_epoch}"
        for each in markers
    ]

    def shown(answer: object) -> str:
        return joined(
            sorted(
                f"{script.names.name(marker.producer_id)} {topic.name}-{each.partition_index} {code(each.error_code)}"
                for marker in answer.markers  # type: ignore[attr-defined]
                for topic in marker.topics
                for each in topic.partitions
            )
        )

    script.ask(f"WriteTxnMarkers {asked}", WriteTxnMarkersRequest(markers=list(markers)), 1, shown)


SCRIPTS = (
    outside_a_transaction,
    without_an_id,
    sequences,
    sequences_of_version_12,
    plain_after_a_refused_batch,
    late_duplicates,
    readers,
    deleted_beginning,
    markers_by_hand,
    producers_of_a_partition,
)
