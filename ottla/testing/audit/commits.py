"""What groups committed: no commit of an older generation is accepted (B7), none is beyond what its client was given
(P2) or below an earlier one (P3), and what one member was given and did not commit comes to the next again (P4).

A commit does not name the connections that fetched, so they are joined by client id and address. Where two members have
both in common, none of it is judged but B7; nor where offsets are committed in transactions.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ottla.testing.audit.findings import AuditFinding, FindingKind
from ottla.testing.audit.history import AuditHistory, Client, Commit, Delivered

NO_GENERATION = -1


def check_commits(history: AuditHistory) -> Iterator[AuditFinding]:
    registers: dict[tuple[str, int], list[Commit]] = defaultdict(list)
    for commit in history.commits:
        then = commit.generation_then
        if NO_GENERATION < commit.generation < then:
            what = f"{commit.member_id} committed in generation {commit.generation}, after {then} began"
            yield _finding(history, FindingKind.B7, what, commit)
        registers[commit.group, commit.partition].append(commit)
    delivered: dict[tuple[int, Client], list[Delivered]] = defaultdict(list)
    for each in history.deliveries:
        delivered[each.partition, history.connections[each.connection].client].append(each)
    for (group, _), commits in registers.items():
        if group not in history.transactional:
            yield from _lost(history, commits)
            yield from _beyond(history, commits, delivered)
            yield from _below(history, commits, delivered)
    for group, members in history.members.items():
        if group not in history.transactional:
            yield from _given_again(history, group, set(members.values()), delivered)


def _lost(history: AuditHistory, commits: Sequence[Commit]) -> Iterator[AuditFinding]:
    """B1, of the last one that was certainly acknowledged: it is there, or a later one that may have been applied."""
    acknowledged = [each for each in commits if history.connections[each.connection].has_got(each.answered)]
    if history.offsets is None or not acknowledged:
        return
    last = acknowledged[-1]
    place = last.group, last.partition
    now = history.offsets.get(place)
    if now == last.offset or history.partitions[last.partition].log is None:
        return
    is_forgotten = history.forgotten.get(last.group, 0) >= last.number
    later = {offset for number, offset in history.attempts.get(place, ()) if number > last.number}
    if not is_forgotten and now not in later:
        what = f"the commit of {last.offset} is acknowledged, and {'nothing' if now is None else now} is committed"
        yield _finding(history, FindingKind.B1, what, last)


def _beyond(
    history: AuditHistory, commits: Sequence[Commit], delivered: dict[tuple[int, Client], list[Delivered]]
) -> Iterator[AuditFinding]:
    """P2, the first of a group and partition. What ListOffsets answered, and what the group had committed, or the test
    for it, may be committed without a record."""
    known = 0
    for commit in commits:
        client = history.connections[commit.connection].client
        place = commit.partition, client
        ends = [each.end for each in delivered[place]]
        own = history.set_offsets.get((commit.group, commit.partition), ())
        known = max(known, *(offset for number, offset in own if number <= commit.number), 0)
        reached = max(known, history.ends.get(place, 0), *ends, 0)
        is_member = commit.generation > NO_GENERATION and client not in history.shared
        if is_member and ends and commit.offset > reached:
            what = f"{commit.member_id} committed {commit.offset}, and was given records up to offset {reached - 1}"
            yield _finding(history, FindingKind.P2, what, commit)
            return
        known = max(known, commit.offset)


def _below(
    history: AuditHistory, commits: Sequence[Commit], delivered: dict[tuple[int, Client], list[Delivered]]
) -> Iterator[AuditFinding]:
    """P3, the first of a group and partition. A client that went back and read again means it so."""
    before: Commit | None = None
    for commit in commits:
        client = history.connections[commit.connection].client
        is_member = commit.generation > NO_GENERATION and client not in history.shared
        if (
            before is not None
            and is_member
            and commit.offset < before.offset
            and history.forgotten.get(commit.group, 0) < before.number
            and not any(
                before.number < each.number <= commit.number and each.start <= commit.offset
                for each in delivered[commit.partition, client]
            )
        ):
            what = f"{commit.member_id} committed {commit.offset} after {before.offset} was committed"
            yield _finding(history, FindingKind.P3, what, before, commit)
            return
        before = commit


def _given_again(
    history: AuditHistory,
    group: str,
    clients: set[Client],
    delivered: dict[tuple[int, Client], list[Delivered]],
) -> Iterator[AuditFinding]:
    """P4, one for each partition."""
    if clients & history.shared:
        return
    for partition in range(len(history.partitions)):
        found = [each for client in clients for each in delivered.get((partition, client), ())]
        given = sorted(found, key=lambda each: each.number)
        for position, again in enumerate(given):
            earlier = [each for each in given[:position] if _client(history, each) != _client(history, again)]
            committed = _committed(history, group, partition, again.number)
            start = max(again.start, committed)
            end = min(again.end, max((each.end for each in earlier if each.start <= start), default=0))
            if start < end:
                first = next(each for each in earlier if each.start <= start and each.end >= end)
                where = f"{group} {history.partitions[partition]}"
                what = f"{end - start} records from offset {start} on"
                events = tuple(_given(history, each) for each in (first, again))
                yield AuditFinding(FindingKind.P4, what, where, _client(history, again)[0], events)
                break


def _client(history: AuditHistory, each: Delivered) -> Client:
    return history.connections[each.connection].client


def _committed(history: AuditHistory, group: str, partition: int, number: int) -> int:
    """What a group had committed before a request."""
    offsets = [
        each.offset
        for each in history.commits
        if each.group == group and each.partition == partition and each.number < number
    ]
    return offsets[-1] if offsets else 0


def _given(history: AuditHistory, each: Delivered) -> str:
    text = f"Fetch {history.partitions[each.partition]}: offsets {each.start} to {each.end - 1}"
    return history.at(each.at_ns, each.connection, text)


def _finding(history: AuditHistory, kind: FindingKind, what: str, *commits: Commit) -> AuditFinding:
    last = commits[-1]
    where = f"{last.group} {history.partitions[last.partition]}"
    events = tuple(
        history.at(
            each.at_ns,
            each.connection,
            f"OffsetCommit {where} generation {each.generation}: {each.offset}",
        )
        for each in commits
    )
    return AuditFinding(kind, what, where, history.connections[last.connection].client[0], events)
