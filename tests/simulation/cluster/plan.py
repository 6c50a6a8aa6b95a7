"""What is drawn at the beginning of a run."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from ottla.broker.config.server_cluster import RACK_AWARE_SELECTOR
from tests.simulation.cluster.principals.rights import authorizer_settings
from tests.simulation.network import Conditions

NODE_IDS = (1, 2, 3)
LONGEST_PAUSE_MS = 10_000
# Much longer than any batch of a producer is under way: see DELIVERY_TIMEOUT_MS.
PRODUCER_EXPIRATION_MS = 60_000
STATE_PARTITIONS = 2
# Shorter than some transactions take to be begun again.
ID_EXPIRATION_MS = 2_500
# After so long a producer gives a batch up, as Kafka's clients do (`delivery.timeout.ms`).
DELIVERY_TIMEOUT_MS = 10_000


def rack_of(node_id: int) -> str:
    return f"rack-{node_id}"


def draw_conditions(rng: random.Random) -> Conditions:
    """Of a connection. Bytes in small pieces are the one-broker world's business."""
    low_us = rng.choice([50, 200, 2_000])
    return Conditions(
        latency_us=(low_us, low_us * rng.choice([2, 10])), largest_piece=rng.choice([1 << 20, 1 << 20, 700])
    )


@dataclass
class ClusterPlan:
    session_timeout_ms: int
    lag_ms_max: int
    min_isr: int
    syncs_every_write: bool
    stormy_ms: int
    fault_every_ms: int
    faults: frozenset[str]
    """The kinds that this run knows: a storm of everything hides what two of a kind can do."""
    initial_rebalance_delay_ms: int
    members_of_group: list[int]
    producers: int
    produce_every_ms: int
    fetchers: int
    fetch_bytes: int
    fetch_wait_ms: int
    blackouts: bool = False
    """All machines lose power at once. Only where every write is synced: there is no other promise about it."""
    segment_bytes: int = 1 << 30
    """Small segments are rolled, synced and recovered one by one."""
    index_interval_bytes: int = 4096
    compacts: bool = False
    """`__consumer_offsets` is compacted all the time."""
    retention_bytes: int = -1
    writes_keys: bool = False
    """A topic of clients is compacted."""
    has_standalone_group: bool = False
    expires_offsets: bool = False
    """So soon that it is seen."""
    auto_creates: bool = False
    """A client asks for topics that are not there."""
    session_slots: int | None = None
    """Few fetch sessions, for which followers and a consumer compete. None: as many as anybody wants."""
    expires_producers: bool = False
    """So soon that it is seen."""
    searches: bool = False
    """A client looks for offsets by time."""
    has_racks: bool = False
    """Each broker is in one of its own, and a consumer reads from the replica in its rack."""
    has_old_reader: bool = False
    """A consumer knows of no leader epochs."""
    transacts: bool = False
    """Transactional producers write to a topic of their own, and consumers read what they have committed."""
    deletes_transactions: bool = False
    """Old records of transactions are deleted, undecided ones too."""
    has_small_epochs: bool = False
    """Producer epochs are used up after a few transactions."""
    expires_transactional_ids: bool = False
    """So soon that it is seen."""
    throttles: bool = False
    """An operator throttles the followers that are not in sync."""
    orders_names: bool = True
    """A loss of power takes the last changes of names in a directory, as where the file system has a journal, and not
    any of them."""
    shares_store: bool = False
    """Others write to the metadata store as well."""
    scrapes: bool = False
    """The metrics of brokers are read at any moment."""
    rests_long: bool = False
    """Brokers go on for a while when everybody has gone."""
    has_principals: bool = False
    """Brokers have an authorizer, and some clients are denied things."""
    is_open: bool = False
    """What no ACL is about is allowed to all of them."""
    alters_settings: bool = False
    """An operator alters what records are obeyed by: their largest size, compaction, how many replicas need them."""
    uses_topic_ids: bool = False
    """Clients ask for topics by their ids wherever they can, and one topic is deleted and made again all the time."""
    slow_readers: int = 0
    """Consumers that ask for much and take it in slowly, or never."""
    holds_little: bool = False
    """So few unread answers fit into a broker's memory that some slow reader has to go."""
    idle_ms_max: int | None = None
    """After so long an idle connection is closed. None: never in a run."""
    has_hostile_client: bool = False

    @classmethod
    def draw(cls, rng: random.Random, kinds: tuple[str, ...], *later_kinds: tuple[str, ...]) -> "ClusterPlan":
        plan = cls(
            session_timeout_ms=rng.choice([2_000, 3_000, 6_000]),
            lag_ms_max=rng.choice([1_500, 4_000, 10_000]),
            min_isr=rng.choice([2, 2, 2, 1]),
            syncs_every_write=rng.random() < 0.2,
            stormy_ms=rng.choice([15_000, 25_000, 35_000]),
            fault_every_ms=rng.choice([400, 1_000, 2_500]),
            faults=frozenset(rng.sample(kinds, rng.randint(2, len(kinds)))),
            initial_rebalance_delay_ms=rng.choice([0, 500]),
            members_of_group=[rng.randint(1, 3)],
            producers=rng.randint(1, 3),
            produce_every_ms=rng.choice([100, 400, 1_000]),
            fetchers=rng.choice([1, 1, 2]),
            fetch_bytes=rng.choice([200, 1_000, 1 << 20, 1 << 20]),
            fetch_wait_ms=rng.choice([200, 500, 500]),
        )
        plan._draw_last(rng, later_kinds)
        return plan

    def _draw_last(self, rng: random.Random, later_kinds: tuple[tuple[str, ...], ...]) -> None:
        """So that what is drawn before does not depend on it."""
        self.blackouts = self.syncs_every_write and self.min_isr >= 2 and rng.random() < 0.7
        self.segment_bytes = rng.choice([500, 3_000, 1 << 30, 1 << 30])
        self.index_interval_bytes = rng.choice([0, 300, 4_096])
        self.compacts = rng.random() < 0.3
        self.retention_bytes = rng.choice([-1, -1, 2_000]) if self.segment_bytes < 1 << 30 else -1
        self.faults |= {kind for kind in later_kinds[0] if rng.random() < 0.3}
        self.faults |= {kind for kinds in later_kinds[1:] for kind in kinds if rng.random() < 0.15}
        self.writes_keys = self.compacts and rng.random() < 0.6
        self.has_standalone_group = rng.random() < 0.25
        # A clock that jumps expires what it likes.
        self.expires_offsets = self.has_standalone_group and "clock" not in self.faults and rng.random() < 0.4

    def draw_more(self, make_rng: Callable[[str], random.Random]) -> None:
        """Each from a stream of its own: worlds without it are what they were before there was any such thing."""
        self.auto_creates = make_rng("created topics").random() < 0.15
        rng = make_rng("session slots")
        self.session_slots = rng.choice([1, 2, 3]) if rng.random() < 0.15 else None
        self.expires_producers = "clock" not in self.faults and make_rng("producer ids").random() < 0.15
        self.searches = make_rng("time index").random() < 0.15
        self.transacts = make_rng("transactions").random() < 0.35
        rng = make_rng("transactional topic")
        self.deletes_transactions = self.transacts and not self.compacts and rng.random() < 0.4
        self.has_small_epochs = self.transacts and rng.random() < 0.4
        self.expires_transactional_ids = self.transacts and "clock" not in self.faults and rng.random() < 0.3
        if self.deletes_transactions:
            self.faults |= {"delete records"}
        self.has_racks = make_rng("racks").random() < 0.15
        self.has_old_reader = make_rng("old reader").random() < 0.3
        self.throttles = make_rng("throttles").random() < 0.3
        if self.throttles:
            self.faults |= {"configure"}
        self.orders_names = make_rng("order of names").random() < 0.5
        self.faults |= {"users"} if make_rng("users").random() < 0.2 else set()
        self.faults |= {kind for kind in ("quotas", "console") if make_rng(kind).random() < 0.1}
        self.scrapes = make_rng("scrapes").random() < 0.1
        self.shares_store = make_rng("shared store").random() < 0.3
        self.rests_long = make_rng("long rest").random() < 0.25
        rng = make_rng("principals")
        self.has_principals = rng.random() < 0.2
        self.is_open = self.has_principals and rng.random() < 0.25
        # What is refused to a principal is another matter.
        self.alters_settings = make_rng("settings").random() < 0.25 and not self.has_principals
        self.uses_topic_ids = make_rng("topic ids").random() < 0.17
        self.faults |= {"churn"} if self.uses_topic_ids else set()
        rng = make_rng("slow readers")
        if rng.random() < 0.17:
            self.slow_readers, self.holds_little = rng.randint(1, 2), rng.random() < 0.5
            self.idle_ms_max = rng.choice([None, 5_000])
        self.has_hostile_client = make_rng("hostile client").random() < 0.17

    def settings_of(self, node_id: int) -> dict[str, str]:
        """Server properties."""
        racks = {"broker.rack": rack_of(node_id), "replica.selector.class": RACK_AWARE_SELECTOR}
        return self.settings() | (racks if self.has_racks else {})

    def settings(self) -> dict[str, str]:
        """What all brokers have."""
        settings = {
            "broker.session.timeout.ms": self.session_timeout_ms,
            "broker.heartbeat.interval.ms": self.session_timeout_ms // 4,
            "replica.lag.time.max.ms": self.lag_ms_max,
            "replica.socket.timeout.ms": 5_000,
            "replica.fetch.wait.max.ms": self.fetch_wait_ms,
            "replica.fetch.max.bytes": self.fetch_bytes,
            "replica.fetch.backoff.ms": 300,
            "num.replica.fetchers": self.fetchers,
            "min.insync.replicas": self.min_isr,
            "default.replication.factor": len(NODE_IDS),
            "offsets.topic.num.partitions": 2,
            "offsets.topic.replication.factor": len(NODE_IDS),
            "group.initial.rebalance.delay.ms": self.initial_rebalance_delay_ms,
            "leader.imbalance.check.interval.seconds": 10,
            "controlled.shutdown.max.retries": 2,
            "controlled.shutdown.retry.backoff.ms": 2_000,
            "auto.create.topics.enable": str(self.auto_creates).lower(),
            "log.segment.bytes": self.segment_bytes,
            "log.index.interval.bytes": self.index_interval_bytes,
            "log.retention.bytes": self.retention_bytes,
            "log.retention.check.interval.ms": 3_000,
            "log.segment.delete.delay.ms": 2_000,
        }
        return {name: str(value) for name, value in (settings | self._settings_of_some()).items()}

    def _settings_of_some(self) -> dict[str, object]:
        """What brokers have where the plan says so."""
        settings: dict[str, object] = {}
        if self.compacts:
            settings |= {
                # Larger than the metadata of a group of three: a batch must fit into a segment.
                "offsets.topic.segment.bytes": 2_500,
                "log.cleaner.backoff.ms": 500,
                "log.cleaner.min.cleanable.ratio": 0.01,
                "log.cleaner.delete.retention.ms": 5_000,
            }
        if self.expires_offsets:
            settings |= {"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 2_000}
        if self.session_slots is not None:
            settings["max.incremental.fetch.session.cache.slots"] = self.session_slots
        if self.expires_producers:
            settings |= {
                "producer.id.expiration.ms": PRODUCER_EXPIRATION_MS,
                "producer.id.expiration.check.interval.ms": 1_000,
            }
        if self.transacts:
            settings |= {
                "transaction.state.log.num.partitions": STATE_PARTITIONS,
                "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
            }
        if self.transacts and self.compacts:
            settings["transaction.state.log.segment.bytes"] = 1_500
            # Longer than any replica lags: it would keep what a tombstone deletes that it has never got.
            settings["log.cleaner.delete.retention.ms"] = 60_000
        if self.expires_transactional_ids:
            settings |= {
                "transactional.id.expiration.ms": ID_EXPIRATION_MS,
                "transaction.remove.expired.transaction.cleanup.interval.ms": 500,
            }
        if "console" in self.faults:
            settings["ottla.log.level.revert.ms"] = 3_000
        if self.has_principals:
            settings |= authorizer_settings(is_open=self.is_open)
        if self.idle_ms_max is not None:
            settings["connections.max.idle.ms"] = self.idle_ms_max
        if self.syncs_every_write:
            settings["log.flush.interval.messages"] = 1
        return settings
