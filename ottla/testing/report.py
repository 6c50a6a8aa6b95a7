"""What a failing test shows beside its traceback: hints, rebalances, the last requests, and the broker's log.

Keys, values, tokens and passwords are in none of it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.protocol.errors import ErrorCode
from ottla.testing.audit.auditor import summary
from ottla.testing.conditions import STABLE, group_stable, times_text
from ottla.testing.scope import ControlScope
from ottla.testing.testbed import Testbed
from ottla.testing.views import GroupRebalance, GroupView
from ottla.testing.wire import WireEvent
from ottla.testing.wire_words import with_topic_names

LINES_MAX: Final = 60
"""Of all sections together, in a short report."""
HINTS_MAX: Final = 5
WIRE_LINES: Final = 40
LOG_LINES: Final = 20
GROUP_LINES: Final = 12
COMMITS_SHOWN: Final = 6
AUDIT_LINES: Final = 16
NS_PER_MS: Final = 1_000_000

Section = tuple[str, str]
"""Title and text."""


@dataclass(frozen=True, slots=True)
class ReportMark:
    """Where a test begins in what a testbed keeps."""

    wire: int
    log: int

    @classmethod
    def now(cls, bed: Testbed) -> "ReportMark":
        return cls(bed.wire.count, bed.hosted.log_lines.count)


def failure_sections(
    bed: Testbed, mark: ReportMark, *, is_full: bool = False, scope: ControlScope | None = None
) -> list[Section]:
    """Those that have something to say, of what the scope covers. On the loop of the brokers."""
    scope = ControlScope(bed) if scope is None else scope
    sections = [
        ("ottla: why it may have failed", list(_hints(bed, mark, scope))[:HINTS_MAX]),
        ("ottla: groups", list(_groups(bed, scope))),
        ("ottla: faults", list(_faults(bed, scope))),
        ("ottla: audit", _audit(bed, scope)),
        ("ottla: clock", bed.clock.report()),
        ("ottla: broker log", bed.hosted.log_lines.since(mark.log)[-LOG_LINES:]),
    ]
    taken = sum(len(lines) + 1 for _, lines in sections if lines)
    room = WIRE_LINES if is_full else max(min(WIRE_LINES, LINES_MAX - taken - 1), 5)
    events = _events(bed, mark, scope)
    begin_ns = events[0].at_ns if events else 0
    topics = bed.reader.image.topics.values() if bed.hosted.parts() else ()
    names = {topic.topic_id: topic.name for topic in topics}
    wire = [_wire_line(event, begin_ns, names) for event in events[-room:]]
    sections.insert(2, (f"ottla: wire, last {len(wire)}", wire))
    return [(title, "\n".join(lines)) for title, lines in sections if lines]


def _events(bed: Testbed, mark: ReportMark, scope: ControlScope) -> list[WireEvent]:
    return [each for each in bed.wire.since(mark.wire) if scope.covers_connection(each.connection)]


def _hints(bed: Testbed, mark: ReportMark, scope: ControlScope) -> Iterator[str]:
    for group_id in filter(scope.covers, bed.reader.group_ids()):
        view = bed.reader.group(group_id)
        if view.members and view.state != STABLE:
            why = group_stable(bed.sources, group_id, None, None).explain()
            yield from (f"group {group_id}: {each}" for each in (*why.hints, *why.missing))
    yield from bed.clock.hints()
    refused: dict[tuple[bool, str, str, int], int] = {}
    for event in _events(bed, mark, scope):
        if event.error:
            key = event.connection.is_of_broker, event.connection.name, event.api, event.error
            refused[key] = refused.get(key, 0) + 1
    # A client asks for its coordinator and gives its place in a group by such answers: they are no failure.
    expected = (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE)
    # Clients first: brokers fetch from each other again and again until one of them leads.
    for (_, name, api, error), times in sorted(refused.items(), key=lambda item: (item[0][0], -item[1])):
        if error not in expected:
            yield f"{api} of {name} was answered {_error_name(error)} {times_text(times)}"


def _groups(bed: Testbed, scope: ControlScope) -> Iterator[str]:
    for group_id in filter(scope.covers, bed.histories.group_ids()):
        view = bed.reader.group(group_id)
        yield f"{group_id}: {view.state}, generation {view.generation}, {len(view.members)} members"
        history = bed.histories.of(group_id)
        begin_ms = history[0].started_ms
        for each in history[-GROUP_LINES:]:
            yield _rebalance_line(each, begin_ms, _unended(view, is_last=each is history[-1]))
        yield from _committed(bed, view)


def _faults(bed: Testbed, scope: ControlScope) -> Iterator[str]:
    yield from map(str, bed.steps.since_clear())
    if bed.scripts_if_used is not None:
        yield from bed.scripts.unused()
    yield from (fault.explain() for fault in scope.faults())


def _audit(bed: Testbed, scope: ControlScope) -> list[str]:
    if not bed.hosted.parts():
        return ["no broker runs: nothing is judged"]
    lines = summary(scope.auditor.findings(), scope.auditor.unjudged())
    return lines if len(lines) <= AUDIT_LINES else [*lines[:AUDIT_LINES], f"{len(lines) - AUDIT_LINES} more lines"]


def _unended(view: GroupView, *, is_last: bool) -> str | None:
    """Why a rebalance that has not ended never will; None where it is under way."""
    if not is_last:
        return "another one began before it ended"
    return None if view.members else "no member is left"


def _rebalance_line(rebalance: GroupRebalance, begin_ms: int, unended: str | None) -> str:
    who = "" if rebalance.member_id is None else f" ({rebalance.member_id})"
    words = [f"  +{rebalance.started_ms - begin_ms} ms  generation {rebalance.generation}: {rebalance.cause}{who}"]
    if rebalance.join_phase_ms is None:
        words.append(unended or "members are waited for")
    elif rebalance.sync_phase_ms is None:
        words.append(f"joined in {rebalance.join_phase_ms} ms, {unended or 'the assignment is waited for'}")
    else:
        phases = f"joined in {rebalance.join_phase_ms} ms, assigned in {rebalance.sync_phase_ms} ms"
        words.append(f"{len(rebalance.members)} members, {phases}")
    words += [f"{member_id} left: {cause}" for member_id, cause in (rebalance.removed or {}).items()]
    return "; ".join(words)


def _committed(bed: Testbed, view: GroupView) -> Iterator[str]:
    """Nothing, or one line."""
    places = [
        f"{topic}-{partition}: {offset} (lag {bed.reader.lag(view, topic).get(partition, '?')})"
        for (topic, partition), offset in sorted(view.offsets.items())[:COMMITS_SHOWN]
    ]
    if places:
        more = f" and {len(view.offsets) - len(places)} more" if len(view.offsets) > len(places) else ""
        yield f"  committed  {', '.join(places)}{more}"


def _wire_line(event: WireEvent, begin_ns: int, names: Mapping[bytes, str]) -> str:
    at_ms = (event.at_ns - begin_ns) / NS_PER_MS
    if event.error is None:
        outcome = "no answer"
    else:
        outcome = f"{_error_name(event.error)} {(event.answered_ns - event.at_ns) / NS_PER_MS:.1f} ms"
    what = with_topic_names(event.what, names)
    what = f" {what}" if what else ""
    return f"{at_ms:9.1f}  {event.connection.name}  {event.api} v{event.version}{what}  {outcome}"


def _error_name(code: int) -> str:
    if not code:
        return "ok"
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def leftovers(bed: Testbed, groups: Iterable[str]) -> list[str]:
    """Groups that should have no member any more, and have."""
    views = [bed.reader.group(group_id) for group_id in groups]
    return [f"group {view.group_id} still has {len(view.members)} members" for view in views if view.members]
