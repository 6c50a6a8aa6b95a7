"""What is wrong with groups: they do not get ready (D4), a member is idle (D6), a record is in the way (D7), or they
are set up so that there will be trouble (D13)."""

from collections.abc import Iterator

from ottla.cli.client import TopicPartition
from ottla.cli.doctor.findings import Diagnosis, NotChecked, Severity, counted, lasted, named
from ottla.cli.doctor.sample import Examination, SeenGroup, SeenMember

REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance"})
# A rebalance waits for the largest max.poll.interval.ms of its members, 5 minutes by default; one that lasts longer
# than this is seen by the users.
STUCK_S = 60.0
GENERATIONS_MAX = 3
OWNERS_MAX = 3
EAGER_MEMBERS_MAX = 20
EAGER_PROTOCOLS = frozenset({"range", "roundrobin", "sticky"})
UNEVEN = 2
SHORT_SESSION_MS = 10_000


def stuck(exam: Examination) -> Iterator[Diagnosis | NotChecked]:
    """D4."""
    for group_id, group in exam.last.groups.items():
        before = exam.first.groups.get(group_id)
        history = None if exam.histories is None else exam.histories.get(group_id)
        if history is not None and history.generations >= GENERATIONS_MAX:
            text = f"{group_id} began {counted(history.generations, 'generation')} in {lasted(exam.span_s)}"
            advice = f"ottla groups why {group_id}"
            yield Diagnosis("D4.storm", Severity.WARNING, group_id, text, advice, runbook="RebalanceStorm")
        if before is None or before.state not in REBALANCING or group.state not in REBALANCING:
            continue
        if history is None:
            yield _rebalancing(group_id, group, exam.span_s, None, is_sure=False)
        elif history.rebalancing_s is not None and history.rebalancing_s >= min(STUCK_S, exam.span_s):
            yield _rebalancing(group_id, group, history.rebalancing_s, history.waits_for, is_sure=True)


def _rebalancing(group_id: str, group: SeenGroup, for_s: float, waits_for: str | None, *, is_sure: bool) -> Diagnosis:
    doing = "joining" if group.state == "PreparingRebalance" else "waiting for its leader's assignment"
    at_least = "" if is_sure else "at least "
    text = f"{group_id} has been {doing} for {at_least}{lasted(for_s)}"
    if waits_for is not None:
        text += f"; it waits for {waits_for}, which sends heartbeats but does not rejoin (max.poll.interval.ms)"
    advice = f"ottla groups why {group_id}; restart the member that is waited for"
    evidence = (f"{counted(len(group.members), 'member')}: {named(each.name for each in group.members)}",)
    severity = Severity.CRITICAL if for_s >= STUCK_S else Severity.WARNING
    return Diagnosis("D4.stuck", severity, group_id, text, advice, evidence, is_sure, runbook="GroupStuck")


def idle_members(exam: Examination) -> Iterator[Diagnosis | NotChecked]:
    """D6: lag grows, and not all members can help."""
    for group_id, group in exam.last.groups.items():
        before, now = total_lag(exam, group_id, is_first=True), total_lag(exam, group_id, is_first=False)
        counts = {each.member_id: len(each.assignment) for each in group.members if each.assignment is not None}
        if before is None or now is None or now <= before or len(counts) < 2:
            continue
        partitions = sum(counts.values())
        idle = [each.name for each in group.members if counts.get(each.member_id) == 0]
        busiest = max(group.members, key=lambda each: counts.get(each.member_id, 0))
        most = counts.get(busiest.member_id, 0)
        grows = f"its lag grew by {now - before:,} records in {lasted(exam.span_s)}"
        if idle and len(counts) > partitions:
            text = (
                f"{group_id} has {counted(len(counts), 'member')} and {counted(partitions, 'partition')}: "
                f"{len(idle)} can never get work, and {grows}"
            )
            advice = "add partitions to the topic (keys move), or take the idle members away"
            yield Diagnosis("D6.idle-member", Severity.WARNING, group_id, text, advice, (f"idle: {named(idle)}",))
        elif idle or most > UNEVEN * partitions / len(counts):
            text = f"{busiest.name} of {group_id} has {most} of {counted(partitions, 'partition')}, and {grows}"
            advice = "use an assignor that spreads partitions evenly, and one subscription for all members"
            yield Diagnosis("D6.uneven", Severity.WARNING, group_id, text, advice, is_sure=False)


def total_lag(exam: Examination, group_id: str, *, is_first: bool) -> int | None:
    """Of the partitions whose end is known; None for a group that was not there."""
    sample = exam.first if is_first else exam.last
    group = sample.groups.get(group_id)
    if group is None:
        return None
    return sum(
        max(0, seen.high_watermark - max(offset, seen.log_start_offset or 0))
        for key, offset in group.offsets.items()
        if (seen := sample.partitions.get(key)) is not None and seen.high_watermark is not None
    )


def poison(exam: Examination) -> Iterator[Diagnosis | NotChecked]:
    """D7: one partition of a group stands and the others go on."""
    for group_id, key in standing_commits(exam):
        offset = exam.last.groups[group_id].offsets[key]
        record = exam.waiting_records.get(key)
        name = f"{key[0]}-{key[1]}"
        history = None if exam.histories is None else exam.histories.get(group_id)
        owners = 0 if history is None else history.owners.get(key, 0)
        text = f"{name} of {group_id} stands at {offset:,} while its other partitions go on"
        if owners >= OWNERS_MAX:
            text = f"{name} of {group_id} stands at {offset:,} over {owners} owners"
        evidence: list[str] = []
        if record is not None and record.size_bytes is not None:
            text += f": a record of {_size(record.size_bytes)}, max.poll.records, or what parses it?"
            evidence.append(f"headers: {named(record.headers) or 'none'}")
        if record is not None and record.problem is not None:
            evidence.append(record.problem)
        look = f"ottla consume {key[0]} --partition {key[1]} --offset {offset} --max-messages 1 --json"
        skip = f"ottla groups reset-offsets {group_id} --topic {key[0]}:{key[1]} --to-offset {offset + 1} --execute"
        advice = f"look: {look}; skip it, with the group stopped: {skip}"
        is_sure = owners >= OWNERS_MAX
        yield Diagnosis(
            "D7.poison-record", Severity.WARNING, f"{group_id}/{name}", text, advice, tuple(evidence), is_sure,
        )  # fmt: skip


def standing_commits(exam: Examination) -> Iterator[tuple[str, TopicPartition]]:
    """Partitions with lag of which a group has committed nothing between the samples, where it went on elsewhere, or
    where partitions have had several owners."""
    for group_id, group in exam.last.groups.items():
        before = exam.first.groups.get(group_id)
        if before is None or not group.members:
            continue
        moved = {key for key, offset in group.offsets.items() if before.offsets.get(key, offset) != offset}
        history = None if exam.histories is None else exam.histories.get(group_id)
        for key, offset in sorted(group.offsets.items()):
            seen = exam.last.partitions.get(key)
            has_lag = seen is not None and seen.high_watermark is not None and seen.high_watermark > offset
            owners = 0 if history is None else history.owners.get(key, 0)
            if has_lag and key not in moved and before.offsets.get(key) == offset and (moved or owners >= OWNERS_MAX):
                yield group_id, key


def risky_groups(exam: Examination) -> Iterator[Diagnosis | NotChecked]:
    """D13."""
    if exam.last.groups and exam.histories is None:
        yield NotChecked("D13", "session timeouts are not in Kafka's protocol, and there are no events")
    for group_id, group in exam.last.groups.items():
        if group.protocol in EAGER_PROTOCOLS and len(group.members) > EAGER_MEMBERS_MAX:
            text = f"{group_id}: a rebalance stops all {len(group.members)} members, for {group.protocol} is eager"
            advice = "use cooperative-sticky (partition.assignment.strategy), and group.instance.id"
            yield Diagnosis("D13.eager", Severity.WARNING, group_id, text, advice)
        subscriptions = {each.topics for each in group.members if each.topics is not None}
        if len(subscriptions) > 1:
            text = f"{group_id}: members of one group subscribe to different topics: each rejoin moves all"
            advice = "give each application a group.id of its own"
            yield Diagnosis(
                "D13.mixed-subscriptions", Severity.WARNING, group_id, text, advice, tuple(_subscribed(group))
            )  # fmt: skip
        history = None if exam.histories is None else exam.histories.get(group_id)
        timeout_ms = None if history is None else history.expired_session_timeout_ms
        if timeout_ms is not None and timeout_ms <= SHORT_SESSION_MS:
            text = f"{group_id}: sessions of {lasted(timeout_ms / 1000)} have expired: a pause of that length ends them"
            advice = "set session.timeout.ms=45000, and heartbeat.interval.ms to a third of it or less"
            yield Diagnosis("D13.short-session", Severity.WARNING, group_id, text, advice, runbook="SessionExpiries")


def _subscribed(group: SeenGroup) -> Iterator[str]:
    by_topics: dict[tuple[str, ...], list[SeenMember]] = {}
    for each in group.members:
        if each.topics is not None:
            by_topics.setdefault(each.topics, []).append(each)
    for topics, members in sorted(by_topics.items()):
        yield f"{named(topics)}: {named(each.name for each in members)}"


def _size(size_bytes: int) -> str:
    for unit, size in (("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= size:
            return f"{size_bytes / size:.1f} {unit}"
    return f"{size_bytes} bytes"
