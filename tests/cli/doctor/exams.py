"""Examinations of a sound cluster of three, to be changed in one place."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ottla.broker.server.apis import APIS
from ottla.cli.client import TopicPartition
from ottla.cli.doctor.examination import CHECKS
from ottla.cli.doctor.findings import Diagnosis, NotChecked
from ottla.cli.doctor.sample import Examination, Sample, SeenBroker, SeenGroup, SeenMember, SeenPartition
from ottla.cli.operations.brokers import LogDirDescription, LogSize

SPAN_S = 15.0
NOW_MS = 1_800_000_000_000
RANGES = {key: (api.min_version, api.max_version) for key, api in APIS.items()}
SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false", "retention.ms": "604800000"}


def log_dir(node_id: int, size_bytes: int = 1000, free: float = 0.5, **changes: Any) -> LogDirDescription:
    sizes = (LogSize("orders", 0, size_bytes, 0, False),)
    return replace(
        LogDirDescription(node_id, "/data", None, 1, size_bytes, 1_000_000, round(free * 1_000_000), sizes), **changes
    )


def broker(node_id: int, **changes: Any) -> SeenBroker:
    sound = SeenBroker(
        node_id, f"b{node_id}", 9092, rack=f"r{node_id}", ranges=RANGES, configs={"auto.create.topics.enable": "false"},
        log_dirs=(log_dir(node_id),), clock_ahead_ms=20, clock_within_ms=500,
    )  # fmt: skip
    return replace(sound, **changes)


def brokers(**changes: Any) -> dict[int, SeenBroker]:
    """Broker 3 with these changes."""
    return {1: broker(1), 2: broker(2), 3: broker(3, **changes)}


def partition(leader: int | None = 1, *others: int, isr: Iterable[int] | None = None, **changes: Any) -> SeenPartition:
    first = 1 if leader is None else leader
    replicas = (first, *others) if others else tuple((first + step - 1) % 3 + 1 for step in range(3))
    sound = SeenPartition(
        leader, replicas, replicas if isr is None else tuple(isr), log_start_offset=0, high_watermark=100,
        last_stable_offset=100, newest_ms=NOW_MS,
    )  # fmt: skip
    return replace(sound, **changes)


def group(*members: SeenMember, state: str = "Stable", protocol: str = "cooperative-sticky", **at: int) -> SeenGroup:
    """Offsets by index of a partition of `orders`: p0=5."""
    return SeenGroup(state, protocol, members, {("orders", int(name[1:])): offset for name, offset in at.items()})


def member(name: str, *indexes: int, topics: tuple[str, ...] = ("orders",)) -> SeenMember:
    return SeenMember(f"{name}-id", name, tuple(("orders", index) for index in indexes), topics)


def sample(**changes: Any) -> Sample:
    partitions: Mapping[TopicPartition, SeenPartition] = {("orders", index): partition(index + 1) for index in range(3)}
    sound = Sample(
        at_s=0.0, wall_ms=NOW_MS, cluster_id="c", controller=1, brokers=brokers(), partitions=partitions,
        groups={}, topic_configs={"orders": SAFE},
    )  # fmt: skip
    return replace(sound, **changes)


def exam(first: Sample | None = None, last: Sample | None = None, **changes: Any) -> Examination:
    """Of one sample, what is so in both."""
    last = last or first or sample()
    found = Examination(first or last, replace(last, at_s=SPAN_S), histories={})
    return replace(found, **changes)


def said(found: Examination) -> dict[str, Diagnosis]:
    """By id; each is there once."""
    findings = [each for check in CHECKS for each in check(found) if isinstance(each, Diagnosis)]
    by_id = {each.id: each for each in findings}
    assert len(by_id) == len(findings), findings
    return by_id


def not_said(found: Examination) -> dict[str, str]:
    """Why something was not checked, by check."""
    return {each.check: each.reason for check in CHECKS for each in check(found) if isinstance(each, NotChecked)}


def only(found: Examination) -> Diagnosis:
    """The one finding there is."""
    findings = said(found)
    assert len(findings) == 1, findings
    return next(iter(findings.values()))
