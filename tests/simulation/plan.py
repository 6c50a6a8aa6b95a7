"""What is drawn at the beginning of a run of the world of one broker."""

import random
from dataclasses import dataclass

# Longer than any run. After it, what is not used any more is looked for by some runs, every ten minutes.
RETENTION_MINUTES = 30
TRANSACTIONS = {
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


@dataclass
class Plan:
    initial_rebalance_delay_ms: int
    members_of_group: list[int]
    stormy_ms: int
    fault_every_ms: int
    restarts: bool
    may_lose_power: bool
    syncs_every_write: bool
    disk_fails: bool
    transacts: bool = False
    """Transactional producers have their coordinator here, and consumers read what they have committed."""
    puts_metadata_back: bool = False
    """Between two lives of the broker, the next producer id is that of an older copy of the metadata."""
    rests_long: bool = False
    """The broker goes on for a while when all groups are stable, and when everybody has gone."""

    @classmethod
    def draw(cls, rng: random.Random) -> "Plan":
        return cls(
            initial_rebalance_delay_ms=rng.choice([0, 0, 500, 3_000]),
            members_of_group=[rng.randint(1, 5) for _ in range(rng.randint(1, 3))],
            stormy_ms=rng.choice([20_000, 40_000, 80_000]),
            fault_every_ms=rng.choice([1_000, 4_000, 15_000]),
            restarts=rng.random() < 0.7,
            may_lose_power=rng.random() < 0.5,
            syncs_every_write=rng.random() < 0.5,
            disk_fails=rng.random() < 0.3,
        )

    def draw_transactions(self, rng: random.Random) -> None:
        """From a stream of its own: worlds without them are what they were before."""
        self.transacts = rng.random() < 0.35
        if self.transacts:
            # What was decided is not to be taken back.
            self.may_lose_power &= self.syncs_every_write

    def settings(self) -> dict[str, str]:
        """Server properties."""
        settings = {
            "group.initial.rebalance.delay.ms": str(self.initial_rebalance_delay_ms),
            "offsets.topic.num.partitions": "3",
            "offsets.topic.replication.factor": "1",
            "offsets.retention.minutes": str(RETENTION_MINUTES),
            "producer.id.expiration.ms": str(RETENTION_MINUTES * 60_000),
        }
        if self.syncs_every_write:
            settings["log.flush.interval.messages"] = "1"
        return settings | (TRANSACTIONS if self.transacts else {})
