"""One replica of a partition, of broker 1, without a cluster around it."""

from ottla.replication.leadership import FetchNoted
from ottla.replication.partition import Partition, StateChange
from ottla.replication.replica_reads import FollowerFetch
from ottla.storage.log_config import LogConfig
from tests.fakes.disk import FakeDisk
from tests.storage.support import NOW, TOPIC_ID, batch, new_log

EPOCH = 5
REPLICAS = (1, 2, 3)


def replica(*, min_isr: int = 2) -> Partition:
    """It does not know yet who leads."""
    return Partition("t", 0, TOPIC_ID, new_log(FakeDisk(), LogConfig(min_insync_replicas=min_isr)), local_id=1)


def leader(isr: tuple[int, ...] = REPLICAS, *, min_isr: int = 2, records: int = 0) -> Partition:
    made = replica(min_isr=min_isr)
    take(made, isr=isr)
    write(made, records)
    return made


def alone(*, epoch: int = EPOCH, records: int = 0) -> Partition:
    """The leader of a partition that has no other replica."""
    made = replica()
    take(made, epoch=epoch, isr=(1,), replicas=(1,))
    write(made, records)
    return made


def take(
    target: Partition,
    *,
    lead: int = 1,
    epoch: int = EPOCH,
    version: int = 1,
    isr: tuple[int, ...] = REPLICAS,
    replicas: tuple[int, ...] = REPLICAS,
) -> StateChange:
    return target.apply_state(
        leader=lead, leader_epoch=epoch, partition_epoch=version, replicas=replicas, isr=isr, now_ms=0
    )


def write(target: Partition, records: int) -> None:
    for _ in range(records):
        append(target, acks=1)
    target.log.write_pending(now_wall_ms=NOW)
    target.written(0)


def append(target: Partition, *, acks: int) -> None:
    """Queued, not written."""
    target.append(memoryview(bytearray(batch("x"))), acks=acks, wall_ms=NOW)


def fetch(replica_id: int, offset: int, *, epoch: int = EPOCH, last_epoch: int = -1) -> FollowerFetch:
    return FollowerFetch(replica_id, -1, offset, 0, epoch, last_epoch)


def note(target: Partition, replica_id: int, offset: int) -> FetchNoted:
    return target.note_follower_fetch(fetch(replica_id, offset), target.log.log_end_offset, 0)
