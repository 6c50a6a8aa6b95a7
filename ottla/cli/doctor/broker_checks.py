"""What is wrong with brokers: their versions (D3), clocks (D10) and disks (D11)."""

from collections import Counter
from collections.abc import Iterator, Mapping

from ottla.cli.doctor.findings import Diagnosis, NotChecked, Severity, counted, lasted, named
from ottla.cli.doctor.sample import Examination, SeenBroker
from ottla.cli.operations.brokers import API_NAMES, LogDirDescription

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH = 0, 1, 2, 3, 8, 9
FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 10, 11, 12, 13, 14
# The versions that clients which are in use speak, lowest and highest, of the APIs that changed most. A broker of Kafka
# before 2.1 does not serve Java's clients of 4.0 (KIP-896), nor one of 4.0 some older clients.
CLIENTS: Mapping[str, Mapping[int, tuple[int, int]]] = {
    "Java's clients of Kafka 2.1": {
        PRODUCE: (0, 7), FETCH: (0, 10), LIST_OFFSETS: (0, 4), METADATA: (0, 7), OFFSET_COMMIT: (0, 6),
        OFFSET_FETCH: (0, 5), FIND_COORDINATOR: (0, 2), JOIN_GROUP: (0, 3), HEARTBEAT: (0, 2), SYNC_GROUP: (0, 2),
    },
    "Java's clients of Kafka 4": {
        PRODUCE: (3, 13), FETCH: (4, 18), LIST_OFFSETS: (1, 11), METADATA: (0, 13), OFFSET_COMMIT: (2, 10),
        OFFSET_FETCH: (1, 10), FIND_COORDINATOR: (0, 6), JOIN_GROUP: (2, 9), HEARTBEAT: (0, 4), SYNC_GROUP: (0, 5),
    },
    "librdkafka 1.x and 2.x": {
        PRODUCE: (0, 7), FETCH: (0, 11), LIST_OFFSETS: (0, 2), METADATA: (0, 4), OFFSET_COMMIT: (0, 7),
        OFFSET_FETCH: (0, 7), FIND_COORDINATOR: (0, 2), JOIN_GROUP: (0, 5), HEARTBEAT: (0, 3), LEAVE_GROUP: (0, 1),
        SYNC_GROUP: (0, 3),
    },
    "kafka-python 2.x": {
        PRODUCE: (0, 7), FETCH: (0, 4), LIST_OFFSETS: (0, 1), METADATA: (0, 5), OFFSET_COMMIT: (0, 3),
        OFFSET_FETCH: (0, 3), JOIN_GROUP: (0, 2), HEARTBEAT: (0, 1), LEAVE_GROUP: (0, 1), SYNC_GROUP: (0, 1),
    },
    "Sarama 1.4x": {
        PRODUCE: (0, 7), FETCH: (0, 11), LIST_OFFSETS: (0, 2), METADATA: (0, 7), OFFSET_COMMIT: (1, 6),
        OFFSET_FETCH: (0, 7), FIND_COORDINATOR: (0, 2), JOIN_GROUP: (0, 5), HEARTBEAT: (0, 3), SYNC_GROUP: (0, 3),
    },
}  # fmt: skip
METADATA_VERSION = "metadata.version"
OLD_MESSAGE_FORMATS = ("0.8", "0.9", "0.10")

CLOCK_AHEAD_MAX_MS = 5_000
FUTURE_MS = 3_600_000
DISK_FREE_WARNING = 0.10
DISK_FREE_CRITICAL = 0.03
FULL_WITHIN_S = 4 * 3600
FULL_SOON_FREE = 0.25


def versions(exam: Examination) -> Iterator[Diagnosis | NotChecked]:
    """D3."""
    known = {broker.node_id: broker.ranges for broker in exam.last.brokers.values() if broker.ranges is not None}
    if not known:
        yield NotChecked("D3", "no broker said which versions it serves")
        return
    odd = _of_other_versions(known)
    if odd:
        yield Diagnosis(
            "D3.versions-differ", Severity.WARNING, f"broker {named(odd)}", "; ".join(odd.values()),
            "finish the upgrade of the brokers, or their downgrade", is_sure=True,
        )  # fmt: skip
    without = _clients_without(known)
    if without:
        text = f"{named(without)} cannot use this cluster: no version of theirs is served"
        advice = "use other versions of these clients, or of the brokers"
        evidence = tuple(f"{client}: {named(apis)}" for client, apis in without.items())
        yield Diagnosis(
            "D3.client-versions", Severity.WARNING, next(iter(without)), text, advice, evidence, is_sure=False
        )
    yield from _feature_levels(exam.last.brokers)
    old = [topic for topic in exam.last.topics if _has_old_format(exam.last.config(topic, "message.format.version"))]
    if old:
        text = (
            f"{counted(len(old), 'topic')} in a message format before 0.11 ({named(old)}): no headers, no idempotence"
        )
        advice = "unset message.format.version of the topics"
        yield Diagnosis("D3.message-format", Severity.WARNING, named(old, 1), text, advice)


def _of_other_versions(known: Mapping[int, Mapping[int, tuple[int, int]]]) -> dict[int, str]:
    """Brokers that do not serve what most do, each with the first difference in words."""
    most_common, _ = Counter(tuple(sorted(ranges.items())) for ranges in known.values()).most_common(1)[0]
    usual = dict(most_common)
    found: dict[int, str] = {}
    for node_id, ranges in sorted(known.items()):
        different = sorted(key for key in {*usual, *ranges} if usual.get(key) != ranges.get(key))
        if different:
            key = different[0]
            more = f", and {len(different) - 1} more APIs differ" if len(different) > 1 else ""
            said = f"{_range(ranges.get(key))}, the others {_range(usual.get(key))}"
            found[node_id] = f"broker {node_id} serves {_api(key)} {said}{more}: an upgrade is unfinished"
    return found


def _range(versions_: tuple[int, int] | None) -> str:
    return "not at all" if versions_ is None else f"{versions_[0]} to {versions_[1]}"


def _api(key: int) -> str:
    return API_NAMES[key] if key < len(API_NAMES) else f"API {key}"


def _clients_without(known: Mapping[int, Mapping[int, tuple[int, int]]]) -> dict[str, list[str]]:
    """Of each client, the APIs of which some broker serves no version that it speaks."""
    found: dict[str, list[str]] = {}
    for client, spoken in CLIENTS.items():
        for key, (lowest, highest) in spoken.items():
            ranges = [each.get(key) for each in known.values()]
            if any(each is None or each[0] > highest or each[1] < lowest for each in ranges):
                found.setdefault(client, []).append(_api(key))
    return found


def _feature_levels(brokers: Mapping[int, SeenBroker]) -> Iterator[Diagnosis]:
    levels = {
        (broker.finalized[METADATA_VERSION], min(each.supported.get(METADATA_VERSION, 0) for each in brokers.values()))
        for broker in brokers.values()
        if METADATA_VERSION in broker.finalized
    }
    for finalized, supported in levels:
        if finalized < supported:
            text = f"the cluster works at metadata.version {finalized}, all brokers could at {supported}"
            advice = "when no downgrade is planned any more: kafka-features.sh upgrade --release-version VERSION"
            yield Diagnosis("D3.feature-level", Severity.INFO, METADATA_VERSION, text, advice)


def _has_old_format(version: str | None) -> bool:
    return version is not None and ".".join(version.split("-")[0].split(".")[:2]) in OLD_MESSAGE_FORMATS


def clocks(exam: Examination) -> Iterator[Diagnosis | NotChecked]:
    """D10."""
    unknown: list[int] = []
    for broker in exam.last.brokers.values():
        if broker.clock_ahead_ms is None:
            unknown.append(broker.node_id)
            continue
        off_ms = abs(broker.clock_ahead_ms) - broker.clock_within_ms
        if off_ms > CLOCK_AHEAD_MAX_MS:
            direction = "ahead of" if broker.clock_ahead_ms > 0 else "behind"
            text = f"broker {broker.node_id}'s clock is {lasted(off_ms / 1000)} {direction} the clock here"
            advice = "synchronize the clocks (chrony, NTP); retention and LogAppendTime go by the broker's"
            yield Diagnosis("D10.clock", Severity.WARNING, f"broker {broker.node_id}", text, advice)
    if unknown:
        who = f"the clock of broker {named(sorted(unknown))}"
        reason = f"{who} is not known: it has no admin listener, and --probe was not given"
        yield NotChecked("D10", reason)
    now_ms = exam.last.wall_ms
    future = {
        topic: max(each.newest_ms or 0 for each in rows)
        for topic, rows in exam.last.topics.items()
        if any((each.newest_ms or 0) > now_ms + FUTURE_MS for each in rows)
    }
    if future:
        topic, newest_ms = max(future.items(), key=lambda item: item[1])
        text = (
            f"{named(future)} {'has' if len(future) == 1 else 'have'} records of the future, {topic} up to "
            f"{lasted((newest_ms - now_ms) / 1000)} from now: time retention will not delete them before"
        )
        advice = (
            "mend the producer's clock or unit (milliseconds, not microseconds); set message.timestamp.after.max.ms"
        )
        yield Diagnosis("D10.future-records", Severity.WARNING, named(future, 1), text, advice)


def disks(exam: Examination) -> Iterator[Diagnosis | NotChecked]:
    """D11."""
    for node_id, broker in sorted(exam.last.brokers.items()):
        if broker.log_dirs is None:
            yield NotChecked("D11", f"broker {node_id} did not describe its log directories")
            continue
        for directory in broker.log_dirs:
            if directory.error is not None:
                text = f"broker {node_id}: {directory.directory} is offline ({directory.error})"
                advice = "look at the kernel's log for disk errors; other replicas go on serving"
                subject = f"broker {node_id}"
                yield Diagnosis("D11.offline", Severity.CRITICAL, subject, text, advice, runbook="LogFailed")
            elif directory.total_bytes is None or directory.usable_bytes is None:
                yield NotChecked("D11", f"broker {node_id} does not say how large its disk is (Kafka before 3.3)")
            else:
                yield from _room(exam, node_id, directory, directory.total_bytes, directory.usable_bytes)


def _room(
    exam: Examination, node_id: int, directory: LogDirDescription, total: int, usable: int
) -> Iterator[Diagnosis]:
    free = usable / total if total else 1.0
    grown = directory.size_bytes - _size_before(exam, node_id, directory.directory)
    full_in_s = usable * exam.span_s / grown if grown > 0 else None
    is_soon = full_in_s is not None and full_in_s < FULL_WITHIN_S and free < FULL_SOON_FREE
    if free >= DISK_FREE_WARNING and not is_soon:
        return
    is_critical = free < DISK_FREE_CRITICAL or is_soon
    text = f"broker {node_id}: the disk of {directory.directory} is {1 - free:.0%} full"
    if full_in_s is not None:
        text += f", and all of it in about {lasted(full_in_s)} at this rate"
    yield Diagnosis(
        "D11.disk-full", Severity.CRITICAL if is_critical else Severity.WARNING, f"broker {node_id}", text,
        "lower retention of the largest topics, or `ottla topics delete-records`; never delete files by hand",
        tuple(_largest(exam, directory)), runbook="DiskFullIn4h",
    )  # fmt: skip


def _size_before(exam: Examination, node_id: int, path: str) -> int:
    before = exam.first.brokers.get(node_id)
    directories = () if before is None else before.log_dirs or ()
    return next((each.size_bytes for each in directories if each.directory == path), 1 << 62)


def _largest(exam: Examination, directory: LogDirDescription) -> Iterator[str]:
    sizes: Counter[str] = Counter()
    for row in directory.partitions:
        sizes[row.topic] += row.size_bytes
    for topic, size in sizes.most_common(3):
        share = size / directory.size_bytes if directory.size_bytes else 0
        retention = exam.last.config(topic, "retention.ms")
        keeps = "" if retention is None else f", retention.ms={retention}"
        yield f"{topic} is {share:.0%} of the records there{keeps}"
