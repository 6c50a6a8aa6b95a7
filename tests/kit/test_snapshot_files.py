"""The files of snapshots: no byte of them changes, and they share with the logs what does not."""

import hashlib
from collections.abc import Callable

import pytest

from ottla.protocol.records.record import Record, build_batch
from ottla.replication.partition import Partition
from ottla.storage.compaction import begin_swap, compact, plan_compaction
from ottla.storage.segment_swap import SwapStep
from ottla.testing.handle import Kafka
from ottla.testing.testbed import Testbed


def replica_of(bed: Testbed, topic: str) -> Partition:
    (parts,) = bed.hosted.parts().values()
    return bed.call(parts.replicas.partition, topic, 0)


def fill_segments(handle: Kafka, bed: Testbed, count: int) -> None:
    """Sealed segments of two records each, and an active one with one record."""
    for number in range(count):
        for each in range(2):
            handle.produce("orders", [(b"key", b"%d-%d" % (number, each) * 100)], partition=0)
        bed.call(replica_of(bed, "orders").log.roll)
    handle.produce("orders", [(b"key", b"last")], partition=0)


def bytes_kept(bed: Testbed) -> str:
    """A digest of all files of all snapshots."""
    assert bed._scratch is not None
    digest = hashlib.sha256()
    for path in sorted((bed._scratch.path / "snapshots").rglob("*")):
        if path.is_file():
            digest.update(str(path).encode() + path.read_bytes())
    return digest.hexdigest()


def append(handle: Kafka, bed: Testbed) -> None:
    handle.produce("orders", [(b"key", b"x" * 900)] * 5, partition=0)


def truncate_into_a_sealed_segment(handle: Kafka, bed: Testbed) -> None:
    replica = replica_of(bed, "orders")
    log = replica.log
    bed.call(log.truncate_to, log.segments[1].base_offset + 1)
    batch = memoryview(build_batch([Record(timestamp=1, value=b"after")]))
    bed.call(log.append_as_leader, batch, replica.leader_epoch, 1)
    bed.call(log.write_pending, 1)


def delete_records(handle: Kafka, bed: Testbed) -> None:
    handle.topic("orders").delete_records(0, before=7)


def delete_the_topic(handle: Kafka, bed: Testbed) -> None:
    handle.topic("orders").delete()


def compact_now(handle: Kafka, bed: Testbed) -> None:
    log = replica_of(bed, "orders").log
    size_bytes = log.size_bytes

    def work() -> None:
        log.configure(log.config._replace(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0))
        plan = plan_compaction(log, now_wall_ms=1, upper_bound=log.log_end_offset)
        assert plan is not None
        swap = begin_swap(log, compact(plan))
        assert swap is not None
        swap.prepare()
        while (step := log.swaps.apply(swap, 1)) is not SwapStep.END:
            if step is SwapStep.SYNC:
                swap.sync()

    bed.call(work)
    assert log.size_bytes < size_bytes / 2


def write_indexes_again(handle: Kafka, bed: Testbed) -> None:
    bed.call(replica_of(bed, "orders").log.segments[0].rebuild_indexes, 100)


@pytest.mark.parametrize(
    "change",
    [
        append,
        truncate_into_a_sealed_segment,
        delete_records,
        delete_the_topic,
        compact_now,
        write_indexes_again,
    ],
    ids=lambda each: each.__name__,
)
def test_bytes_of_a_snapshot_do_not_change(
    change: Callable[[Kafka, Testbed], None], handle: Kafka, bed: Testbed
) -> None:
    """Nor do they with the same change of the log that a restore has made."""
    handle.create_topic("orders", partitions=1)
    fill_segments(handle, bed, 4)
    before = handle.records("orders")
    handle.snapshot("seeded")
    kept = bytes_kept(bed)
    for _ in range(2):
        change(handle, bed)
        assert bytes_kept(bed) == kept

        handle.restore("seeded")

        assert bytes_kept(bed) == kept
        assert handle.records("orders") == before


def disk_bytes(bed: Testbed) -> int:
    """Of logs and their snapshots; a file with several names counts once."""
    assert bed._scratch is not None
    files = [path for path in bed._scratch.path.rglob("*-[0-9]*/*") if path.is_file()]
    return sum({path.stat().st_ino: path.stat().st_size for path in files}.values())


def await_removals(handle: Kafka, bed: Testbed) -> None:
    """Files of deleted logs are removed in a thread."""
    assert bed._scratch is not None
    data = bed._scratch.path / "data"
    handle.wait(lambda _: not list(data.glob("*-delete")), describe="the removal", within=20)


def test_disk_grows_by_what_changes_and_active_segments(handle: Kafka, bed: Testbed) -> None:
    handle.create_topic("orders", partitions=1)
    for _ in range(3):
        handle.produce("orders", [b"x" * 1000] * 1000, partition=0)
        bed.call(replica_of(bed, "orders").log.roll)
    handle.produce("orders", [b"x" * 1000] * 10, partition=0)
    await_removals(handle, bed)
    before = disk_bytes(bed)
    handle.snapshot("of this test")
    active = replica_of(bed, "orders").log.segments.active.size

    grown = [disk_bytes(bed) - before]
    for _ in range(3):
        handle.produce("orders", [b"later"], partition=0)
        handle.restore("of this test")
        await_removals(handle, bed)
        grown.append(disk_bytes(bed) - before)

    assert active <= grown[0] < 2 * active
    assert max(grown) < 3 * active


def test_restored_log_is_opened_without_a_scan(handle: Kafka, bed: Testbed) -> None:
    """Recovery says what it repairs."""
    handle.create_topic("orders", partitions=1)
    fill_segments(handle, bed, 4)
    handle.snapshot("seeded")
    handle.produce("orders", [b"y"])
    lines = bed.hosted.log_lines.count

    handle.restore("seeded")

    log = replica_of(bed, "orders").log
    assert (log.log_end_offset, log.restored_high_watermark, len(log.segments)) == (9, 9, 5)
    assert bed.hosted.log_lines.since(lines) == []
