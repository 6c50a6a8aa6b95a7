"""What settings are altered to in flight, by what they are of.

What would lose records is never drawn: `min.insync.replicas` below the plan's where power or disks are lost, compaction
of records without keys (they are too young for it), retention of a log of keys.
"""

from collections.abc import Mapping

from ottla.cluster.image import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.simulation.cluster.keyed import KEYED
from tests.simulation.cluster.plan import NODE_IDS, ClusterPlan
from tests.simulation.cluster.risked import RISKED
from tests.simulation.cluster.transacting import TOPIC as PAYMENTS

ALL = ""
"""The owner of the cluster-wide defaults."""
Values = Mapping[str, str | None]
"""None: the setting is deleted."""

FOR_EVER_MS = str(10**12)
# Codecs that every version of a reader here understands.
CODECS = ("gzip", "lz4", "snappy", "uncompressed", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
COMPACTED = {"cleanup.policy": "compact", "min.compaction.lag.ms": FOR_EVER_MS}
COMPACTED_AND_DELETED = {"cleanup.policy": "compact,delete", "min.compaction.lag.ms": FOR_EVER_MS}
ALL_COMPACTED = {"log.cleanup.policy": "compact", "log.cleaner.min.compaction.lag.ms": FOR_EVER_MS}
# Of a log of keys: nothing is compacted, and nothing is deleted.
NOT_COMPACTED = {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
COMPACTED_AGAIN: Values = {"cleanup.policy": "compact", "retention.bytes": None, "retention.ms": None}

# What must have gone before the calm's checks, and what is there instead, by the kind of owner.
RESTORED: Values = {"max.message.bytes": None, "cleanup.policy": None, "min.compaction.lag.ms": None}
ALL_RESTORED: Values = {
    "message.max.bytes": None,
    "log.cleanup.policy": None,
    "log.cleaner.min.compaction.lag.ms": None,
}
RISKED_RESTORED: Values = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}


def choices_of(owner: str, plan: ClusterPlan) -> list[list[Values]]:
    """Of a topic, or ALL: one of the lists is drawn, and one of its alterations."""
    if owner == ALL:
        return of_all(plan)
    if owner in (CONSUMER_OFFSETS, TRANSACTION_STATE):
        return of_coordinators(plan)
    if owner == KEYED:
        return of_keys(plan)
    if owner == PAYMENTS:
        return of_payments(plan)
    return of_risked() if owner == RISKED else of_clients(plan)


def choices(name: str, values: tuple[str, ...]) -> list[Values]:
    """One of them, or none in every fourth draw or so."""
    return [{name: value} for value in values] + [{name: None}]


def min_isrs(plan: ClusterPlan) -> tuple[str, ...]:
    """The lower ones lose what was acknowledged with the disk that had it, or with its power."""
    loses = plan.blackouts or bool(plan.faults & {"power", "rot"})
    return tuple(str(size) for size in NODE_IDS if size >= plan.min_isr or not loses)


def of_clients(plan: ClusterPlan) -> list[list[Values]]:
    """What records without keys may be obeyed by."""
    return [
        [{"max.message.bytes": "85"}, {"max.message.bytes": "110"}],
        [COMPACTED, COMPACTED_AND_DELETED],
        choices("min.insync.replicas", min_isrs(plan)),
        choices("min.insync.replicas", min_isrs(plan)),
        choices("compression.type", CODECS),
        choices("message.timestamp.type", TIMESTAMP_TYPES),
        choices("segment.bytes", ("500", "1000000")),
        choices("retention.bytes", ("1500", "-1")),
        choices("retention.ms", ("4000", "604800000")),
        choices("unclean.leader.election.enable", ("false",)),
    ]


def of_keys(plan: ClusterPlan) -> list[list[Values]]:
    return [
        [NOT_COMPACTED, COMPACTED_AGAIN],
        choices("min.insync.replicas", min_isrs(plan)),
        choices("compression.type", CODECS),
        choices("message.timestamp.type", TIMESTAMP_TYPES),
        [{"segment.bytes": size} for size in ("700", "1000000")],
        [{"delete.retention.ms": span} for span in ("3000", "60000")],
    ]


def of_payments(plan: ClusterPlan) -> list[list[Values]]:
    """Their book knows what compaction and deletions may take."""
    if plan.compacts:
        return of_keys(plan)
    return [
        choices("min.insync.replicas", min_isrs(plan)),
        choices("compression.type", CODECS),
        choices("message.timestamp.type", TIMESTAMP_TYPES),
        [{"segment.bytes": size} for size in ("600", "1000000")],
    ]


def of_risked() -> list[list[Values]]:
    return [
        [{"unclean.leader.election.enable": value} for value in ("true", "false")],
        [{"min.insync.replicas": str(size)} for size in NODE_IDS],
        choices("compression.type", CODECS),
    ]


def of_coordinators(plan: ClusterPlan) -> list[list[Values]]:
    """Internal topics have values of their own, which are never deleted. Large segments are never compacted."""
    segments: list[list[Values]] = [[{"segment.bytes": size} for size in ("4000", "1000000")]] if plan.compacts else []
    return [
        [{"min.insync.replicas": size} for size in min_isrs(plan)],
        [{"compression.type": codec} for codec in ("producer", "gzip")],
        *segments,
    ]


def of_all(plan: ClusterPlan) -> list[list[Values]]:
    """That of `min.insync.replicas` cannot be deleted (KIP-966)."""
    min_isrs_of_all: list[Values] = [{"min.insync.replicas": size} for size in min_isrs(plan)]
    retained = ("-1",) if plan.compacts else ("2000", "-1")
    return [
        min_isrs_of_all,
        min_isrs_of_all,
        choices("compression.type", CODECS),
        choices("log.message.timestamp.type", TIMESTAMP_TYPES),
        choices("message.max.bytes", ("30000", "2000000")),
        choices("log.segment.bytes", ("700", "1000000")),
        choices("log.retention.bytes", retained),
        choices("log.cleaner.delete.retention.ms", ("60000", "86400000")),
        choices("unclean.leader.election.enable", ("false",)),
        [ALL_COMPACTED],
    ]
