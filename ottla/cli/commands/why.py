"""`ottla groups why` and `ottla groups story`: what happened to groups, and why, from the topic ottla.events."""

import json
import shutil
import sys
import textwrap
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from ottla.cli.arguments import checked, parse_moment
from ottla.cli.names import complete_groups
from ottla.cli.operations.event_history import Span, all_rebalances, group_rebalances
from ottla.cli.operations.group_events import Event
from ottla.cli.operations.rebalances import GroupRebalances, Rebalance, causes, waits
from ottla.cli.operations.story import Story, StoryLine
from ottla.cli.operations.story_reader import read_story
from ottla.cli.output import Output, harmless
from ottla.cli.session import Session, broker_options, run_to_end

# Of the table of rebalances; --json has all of them.
REBALANCES_SHOWN = 10


def span_options(command: Callable[..., None]) -> Callable[..., None]:
    """`--since` and `--until`."""
    moment = checked(parse_moment)
    since = "Only events since a time like 2026-03-01T12:00, or since 30m, 12h or 7d ago."
    until = click.option("--until", "until_ms", metavar="TIME", callback=moment, help="Only events before this time.")
    return click.option("--since", "since_ms", metavar="TIME", callback=moment, help=since)(until(command))


@click.command("why")
@click.argument("group_id", metavar="[GROUP]", required=False, shell_complete=complete_groups)
@span_options
@broker_options
def why(session: Session, group_id: str | None, since_ms: int | None, until_ms: int | None) -> None:
    """Say why a group rebalanced, what it cost, and for whom the others waited.

    Without GROUP, one line for each group. The events come from the topic ottla.events, which an Ottla broker writes
    with ottla.events.enable=true; `ottla groups story` shows them one by one.
    """
    span, output = Span(since_ms, until_ms), session.output
    if group_id is None:
        show_overview(session, span)
        return
    group = session.run(lambda client: group_rebalances(client, group_id, span))
    if output.as_json:
        output.json(_as_json(group))
        return
    output.say(headline(group))
    _print_causes(output, group)
    _print_partitions(output, group)
    _print_rebalances(output, group)
    if group.dropped_events:
        output.say(f"{group.dropped_events:,} events of that time were dropped, so some of this may be missing")


def headline(group: GroupRebalances) -> str:
    """The answer in one sentence."""
    count = len(group.rebalances)
    if not count:
        return f"{group.group_id}: no rebalances"
    text = (
        f"{group.group_id}: {count:,} {'rebalance' if count == 1 else 'rebalances'} in {_seconds(group.rebalance_ms)}"
    )
    waited_for = waits(group.rebalances)
    if waited_for:
        text += f", {_seconds(waited_for[0].total_ms)} of it waiting for {waited_for[0].name}"
    return f"{text}; {_seconds(group.incomplete_ms)} without all partitions"


def _print_causes(output: Output, group: GroupRebalances) -> None:
    if group.rebalances:
        rows = [
            (share.name, share.times, _seconds(share.total_ms), share.members) for share in causes(group.rebalances)
        ]
        output.say("")
        output.table(("cause", "rebalances", "took", "set off by"), rows)
    waited_for = waits(group.rebalances)
    if waited_for:
        output.say("")
        waited = [(share.name, share.times, _seconds(share.total_ms)) for share in waited_for]
        output.table(("waited for", "times", "waited"), waited)


def _print_partitions(output: Output, group: GroupRebalances) -> None:
    if group.unowned:
        output.say("")
        rows = [
            (
                topic,
                index,
                each.times,
                _seconds(each.total_ms),
                _seconds(each.longest_ms),
                "no members" if group.is_empty else _now(each.since_ms),
            )
            for (topic, index), each in sorted(group.unowned.items())
        ]
        output.table(("topic", "partition", "times", "without owner", "longest", "now"), rows)


def _print_rebalances(output: Output, group: GroupRebalances) -> None:
    latest = group.rebalances[-REBALANCES_SHOWN:]
    if latest:
        output.say("")
        columns = ("started", "generation", "cause", "member", "took", "joining", "waited for", "outcome")
        output.table(columns, [_row(each) for each in latest])
    if len(latest) < len(group.rebalances):
        output.say(f"({len(group.rebalances) - len(latest):,} earlier ones are not shown; --json has them)")


def _row(each: Rebalance) -> tuple[object, ...]:
    waited_for = None if each.waited_for is None else f"{each.waited_for} {_seconds(each.waited_ms)}"
    if each.is_initial:
        waited_for = "(initial delay)"
    return (
        _time(each.started_ms), each.generation, each.cause, each.member, _seconds(each.duration_ms),
        _seconds(each.join_phase_ms), waited_for, each.outcome,
    )  # fmt: skip


def show_overview(session: Session, span: Span) -> None:
    """One row for each group."""
    groups = session.run(lambda client: all_rebalances(client, span))
    if session.output.as_json:
        session.output.json([_as_json(group) for group in groups])
        return
    columns = ("group", "rebalances", "took", "without all partitions", "most frequent cause", "waited most for")
    session.output.table(columns, [_overview_row(group) for group in groups])


def _overview_row(group: GroupRebalances) -> tuple[object, ...]:
    frequent, longest = causes(group.rebalances), waits(group.rebalances)
    return (
        group.group_id,
        len(group.rebalances),
        _seconds(group.rebalance_ms),
        _seconds(group.incomplete_ms),
        f"{frequent[0].name} ({frequent[0].times})" if frequent else None,
        f"{longest[0].name} ({_seconds(longest[0].total_ms)})" if longest else None,
    )


def _as_json(group: GroupRebalances) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "rebalances": len(group.rebalances),
        "rebalance_ms": group.rebalance_ms,
        "without_all_partitions_ms": group.incomplete_ms,
        "causes": [
            {"cause": each.name, "rebalances": each.times, "rebalance_ms": each.total_ms, "members": each.members}
            for each in causes(group.rebalances)
        ],
        "waited_for": [
            {"member": each.name, "rebalances": each.times, "waited_ms": each.total_ms}
            for each in waits(group.rebalances)
        ],
        "partitions_without_owner": [
            {"topic": topic, "partition": index, **asdict(each)}
            for (topic, index), each in sorted(group.unowned.items())
        ],
        "removed_members": [{"member": member, "cause": cause} for member, cause in group.removals],
        "history": [asdict(each) for each in group.rebalances],
        "is_empty": group.is_empty,
        "dropped_events": group.dropped_events,
    }


def _seconds(duration_ms: int | None) -> str:
    return "" if duration_ms is None else f"{duration_ms / 1000:,.1f} s"


def _time(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000).astimezone().isoformat(sep=" ", timespec="seconds")


def _now(since_ms: int | None) -> str:
    return "owned" if since_ms is None else f"none since {_time(since_ms)}"


@click.command("story")
@click.argument("group_id", metavar="[GROUP]", required=False, shell_complete=complete_groups)
@click.option("--follow", is_flag=True, help="Continue with new events, until Ctrl-C.")
@span_options
@broker_options
def story(session: Session, group_id: str | None, follow: bool, since_ms: int | None, until_ms: int | None) -> None:
    """Show what happened to a group, and why, generation by generation.

    Without GROUP, one line for each group. The events come from the topic ottla.events, which an Ottla broker writes
    with ottla.events.enable=true. With --json, each event is a JSON object on a line of its own.
    """
    if follow and (group_id is None or until_ms is not None):
        raise click.UsageError("--follow needs a GROUP, and cannot be combined with --until")
    span = Span(since_ms, until_ms)
    if group_id is None:
        show_overview(session, span)
        return
    write = _event_as_json if session.output.as_json else _paragraphs(Story())
    run_to_end(read_story(session.config, group_id, write, session.output.styled_lines, span=span, follow=follow))


def _event_as_json(event: Event) -> str:
    return harmless(json.dumps(event, ensure_ascii=False))


def _paragraphs(story: Story) -> Callable[[Event], str | None]:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return lambda event: "\n".join(_shown(line, width) for line in story.lines_of(event)) or None


def _shown(line: StoryLine, width: int | None) -> str:
    """In a pipe, without colours, one line."""
    if not line.text:
        return ""
    indent = " " * (len(line.moment) + 2)
    text = harmless(line.text)
    if width is not None and width > 2 * len(indent):
        text = f"\n{indent}".join(textwrap.wrap(text, width - len(indent), break_long_words=False))
    return f"{click.style(line.moment, dim=True)}  {click.style(text, bold=line.is_heading, fg=_colour(line))}"


def _colour(line: StoryLine) -> str | None:
    if not line.is_heading:
        return None
    return "yellow" if line.text.startswith("REBALANCE") else "green"
