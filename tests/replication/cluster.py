"""Three brokers with one partition, a toy controller and a lossy channel, all driven by hand or by chance.

Nothing moves by itself: a test, or a random walk, lets a fetcher ask, delivers or loses a message, lets a broker learn
the next metadata, crashes it. Logs are real ones on disks in memory. `Oracle` knows what must never get lost.
"""

import itertools
import random
from dataclasses import dataclass, field

from ottla.protocol.errors import KafkaError
from ottla.protocol.records.record import Record, build_batch
from ottla.replication.follower_effects import Fact
from ottla.replication.partition import ACKS_ALL
from ottla.storage.log_config import LogConfig
from tests.fakes.disk import FakeDisk, Loss
from tests.replication.broker import Broker, Kinds
from tests.replication.channel import Message
from tests.replication.controller import BROKERS, Controller
from tests.storage.support import NOW


@dataclass
class Write:
    leader: Broker
    leader_epoch: int
    last_offset: int
    value: bytes


@dataclass
class Cluster:
    min_isr: int = 2
    fetch_bytes: int = 1 << 20
    kinds: Kinds = field(default_factory=Kinds)

    def __post_init__(self) -> None:
        self.now_ms = 0
        self.config = LogConfig(min_insync_replicas=self.min_isr)
        self.controller = Controller(self.min_isr)
        self.network: list[Message] = []
        self.facts: list[tuple[int, Fact]] = []
        self.disks = {broker: FakeDisk() for broker in BROKERS}
        self.brokers: dict[int, Broker] = {}
        self.unwell: set[int] = set()
        self.writes: list[Write] = []
        self.numbers = itertools.count()
        for broker in BROKERS:
            self.brokers[broker] = Broker(self, broker, self.disks[broker], 0)
        for broker in self.brokers.values():
            broker.learn(0)

    # What tests do.

    def append(self, broker_id: int) -> bool:
        """A client writes to the broker it takes for the leader; whether that took it."""
        broker = self.brokers[broker_id]
        values = [b"%d" % next(self.numbers) for _ in range(1 + next(self.numbers) % 2)]
        batch = memoryview(bytearray(build_batch([Record(timestamp=NOW, value=value) for value in values])))
        try:
            info = broker.partition.append(batch, acks=ACKS_ALL, wall_ms=NOW)
        except KafkaError:
            return False
        broker.log.write_pending(now_wall_ms=NOW)
        broker.partition.written(self.now_ms)
        self.writes.append(Write(broker, broker.partition.leader_epoch, info.last_offset, values[-1]))
        return True

    def deliver(self, message: Message) -> None:
        self.network.remove(message)
        message.deliver(self)

    def lose(self, message: Message) -> None:
        self.network.remove(message)
        message.lose(self)

    def learn(self, broker_id: int) -> bool:
        """The broker learns the next committed state; whether there was one."""
        broker = self.brokers[broker_id]
        if broker.learnt + 1 >= len(self.controller.history):
            return False
        broker.learn(broker.learnt + 1)
        return True

    def kill(self, broker_id: int) -> None:
        """The process ends at once; what it has written is in the page cache."""
        del self.brokers[broker_id]
        self.disks[broker_id].locked.clear()

    def cut_power(self, broker_id: int, seed: int) -> None:
        """Seed 0 loses all that was not synced, others a part of it."""
        del self.brokers[broker_id]
        lose_power(self.disks[broker_id], seed)
        self.unwell.add(broker_id)

    def restart(self, broker_id: int) -> None:
        epoch = self.controller.register(broker_id, was_clean=broker_id not in self.unwell)
        self.unwell.discard(broker_id)
        self.brokers[broker_id] = broker = Broker(self, broker_id, self.disks[broker_id], epoch)
        # It takes part when its metadata has reached its own registration.
        broker.learn(len(self.controller.history) - 1)

    def run(self, *brokers: int, rounds: int = 12) -> None:
        """Let these brokers, or all, fetch and receive everything, without loss; ISR changes travel too."""
        for _ in range(rounds):
            for broker_id in brokers or tuple(self.brokers):
                while self.learn(broker_id):
                    pass
                self.brokers[broker_id].ask()
            while self.network:
                self.deliver(self.network[0])
            self.now_ms += 30


def lose_power(disk: FakeDisk, seed: int) -> None:
    """What is on the disk then is all there is, and is durable."""
    disk._lose(Loss.SOME if seed else Loss.UNSYNCED, random.Random(seed))
    for inode in disk._inodes.values():
        inode.synced = bytes(inode.content)
    disk._durable_names = {directory: dict(names) for directory, names in disk._names.items()}
    disk.journal.clear()
    disk.locked.clear()
