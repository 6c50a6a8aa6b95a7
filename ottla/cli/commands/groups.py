"""`ottla groups`: list, describe and delete consumer groups, show their events, and reset their offsets."""

from collections.abc import Sequence
from dataclasses import asdict
from time import time
from typing import Any

import click

from ottla.cli.arguments import checked, parse_datetime, parse_duration, parse_topics
from ottla.cli.client import Client, TopicPartition
from ottla.cli.commands.why import story, why
from ottla.cli.failures import ClientError
from ottla.cli.names import CommandGroup, complete_groups
from ottla.cli.operations import groups as operations
from ottla.cli.operations import offset_reset
from ottla.cli.operations.offset_reset import Goal, Reset, Target
from ottla.cli.output import Output, confirm, progress
from ottla.cli.session import Session, broker_options

# Brokers that know no other kind do not name it.
CLASSIC = "classic"
WAYS_TO_RESET = ("--to-earliest", "--to-latest", "--to-offset", "--shift-by", "--to-datetime", "--by-duration")


@click.group(cls=CommandGroup)
def groups() -> None:
    """List, describe and delete consumer groups, reset their offsets, say why they rebalanced."""


@groups.command("list")
@broker_options
def list_groups(session: Session) -> None:
    """List the groups of a cluster."""
    listed = session.run(operations.list_groups)
    if session.output.as_json:
        session.output.json([asdict(group) for group in listed])
        return
    columns = ("group", "state", "protocol type", "kind", "coordinator")
    rows = [(group.group_id, group.state, group.protocol_type, group.kind, group.coordinator) for group in listed]
    session.output.table(columns, rows)


@groups.command("describe")
@click.argument("group_ids", metavar="[GROUP...]", nargs=-1, shell_complete=complete_groups)
@click.option("--all", "everything", is_flag=True, help="All groups of the cluster.")
@broker_options
def describe_groups(session: Session, group_ids: Sequence[str], everything: bool) -> None:
    """Show state, members, assignments and lag.

    For every partition: the committed offset, the log end offset and the lag.
    """
    described = _described(session, group_ids, everything=everything)
    if session.output.as_json:
        session.output.json([_group_as_json(group) for group in described])
        return
    for group in described:
        _print_group(session.output, group)


def _described(session: Session, group_ids: Sequence[str], *, everything: bool) -> list[operations.GroupDescription]:
    if bool(group_ids) == everything:
        raise click.UsageError("name groups, or give --all")

    async def describe(client: Client) -> list[operations.GroupDescription]:
        wanted = group_ids
        if everything:
            listed = await operations.list_groups(client)
            wanted = [group.group_id for group in listed if (group.kind or CLASSIC).lower() == CLASSIC]
        return [await operations.describe_group(client, group_id) for group_id in progress(wanted, "describing")]

    return session.run(describe)


@groups.command("lag")
@click.argument("group_ids", metavar="[GROUP...]", nargs=-1, shell_complete=complete_groups)
@click.option("--all", "everything", is_flag=True, help="All groups of the cluster.")
@click.option("--partitions", "by_partition", is_flag=True, help="Show every partition.")
@broker_options
def lag(session: Session, group_ids: Sequence[str], everything: bool, by_partition: bool) -> None:
    """Show how many records groups have still to read, by topic or by partition."""
    described = _described(session, group_ids, everything=everything)
    rows = [(group, row) for group in described for row in group.partitions]
    if session.output.as_json:
        keys = ("topic", "partition", "committed_offset", "log_end_offset", "lag")
        found = [{"group_id": group.group_id, **{key: getattr(row, key) for key in keys}} for group, row in rows]
        session.output.json(found)
    elif by_partition:
        columns = ("group", "topic", "partition", "lag", "member")
        session.output.table(columns, [(g.group_id, r.topic, r.partition, r.lag, r.member_id) for g, r in rows])
    else:
        by_topic: dict[tuple[str, str, str], list[int]] = {}
        for group, row in rows:
            by_topic.setdefault((group.group_id, group.state, row.topic), []).append(row.lag or 0)
        lags = [(*key, len(found), sum(found), max(found)) for key, found in by_topic.items()]
        session.output.table(("group", "state", "topic", "partitions", "lag", "largest"), lags)


def _group_as_json(group: operations.GroupDescription) -> dict[str, Any]:
    partitions = [{**asdict(row), "lag": row.lag} for row in group.partitions]
    return {**asdict(group), "members": [_member_as_json(m) for m in group.members], "partitions": partitions}


def _member_as_json(member: operations.MemberDescription) -> dict[str, Any]:
    assignment = None
    if member.assignment is not None:
        assignment = [{"topic": topic, "partition": index} for topic, index in member.assignment]
    return {**asdict(member), "assignment": assignment}


def _print_group(output: Output, group: operations.GroupDescription) -> None:
    lags = [row.lag for row in group.partitions if row.lag is not None]
    facts = [
        ("state", group.state),
        ("protocol", f"{group.protocol_type or '-'} {group.protocol}".strip()),
        ("coordinator", group.coordinator),
        ("members", str(len(group.members))),
        ("total lag", str(sum(lags)) if lags else "-"),
    ]
    output.facts(f"group {group.group_id}", facts)
    if group.members:
        output.table(
            ("member", "instance", "client", "host", "assignment"),
            [(m.member_id, m.group_instance_id, m.client_id, m.host, _assignment(m)) for m in group.members],
        )
    if group.partitions:
        output.table(
            ("topic", "partition", "committed offset", "log end offset", "lag", "member"),
            [
                (row.topic, row.partition, row.committed_offset, row.log_end_offset, row.lag, row.member_id)
                for row in group.partitions
            ],
        )


def _assignment(member: operations.MemberDescription) -> str:
    if member.assignment is None:
        return "?"
    by_topic: dict[str, list[str]] = {}
    for topic, index in member.assignment:
        by_topic.setdefault(topic, []).append(str(index))
    return " ".join(f"{topic}:{','.join(indexes)}" for topic, indexes in by_topic.items())


groups.add_command(why)
groups.add_command(story)


@groups.command("delete")
@click.argument("group_ids", metavar="GROUP...", nargs=-1, required=True, shell_complete=complete_groups)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@broker_options
def delete_groups(session: Session, group_ids: Sequence[str], yes: bool) -> None:
    """Delete groups that have no members, and their offsets."""
    confirm(f"Delete {', '.join(group_ids)} with all offsets?", yes=yes)

    async def delete(client: Client) -> None:
        for group_id in progress(group_ids, "deleting"):
            await operations.delete_group(client, group_id)
            session.output.say(f"deleted group {group_id}")

    session.run(delete)
    if session.output.as_json:
        session.output.json({"deleted": list(group_ids)})


@groups.command("delete-offsets")
@click.argument("group_id", metavar="GROUP", shell_complete=complete_groups)
@click.option(
    "--topic", "topics", metavar="TOPIC[:P,...]", multiple=True, required=True, callback=checked(parse_topics),
    help="Delete the offsets of these partitions; repeatable.",
)  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@broker_options
def delete_offsets(session: Session, group_id: str, topics: dict[str, list[int]], yes: bool) -> None:
    """Delete committed offsets of topics that no consumer of the group reads."""
    confirm(f"Delete the offsets of group {group_id} in {', '.join(topics)}?", yes=yes)

    async def delete(client: Client) -> list[TopicPartition]:
        committed = await operations.committed_offsets(client, group_id)
        wanted = [key for key in sorted(committed) if key[0] in topics and (topics[key[0]] or [key[1]]).count(key[1])]
        if not wanted:
            raise ClientError(f"group {group_id} has committed no offsets there")
        await operations.delete_offsets(client, group_id, wanted)
        return wanted

    deleted = session.run(delete)
    if session.output.as_json:
        session.output.json([{"topic": topic, "partition": index} for topic, index in deleted])
    for topic, index in deleted:
        session.output.say(f"deleted the offset of {topic}:{index}")


@groups.command("reset-offsets")
@click.argument("group_id", metavar="GROUP", shell_complete=complete_groups)
@click.option(
    "--topic", "topics", metavar="TOPIC[:P,...]", multiple=True, callback=checked(parse_topics),
    help="Reset these partitions; repeatable.",
)  # fmt: skip
@click.option("--all-topics", is_flag=True, help="Reset every partition with a committed offset.")
@click.option("--to-earliest", is_flag=True, help="To the log start offset.")
@click.option("--to-latest", is_flag=True, help="To the log end offset.")
@click.option("--to-offset", metavar="OFFSET", type=click.IntRange(min=0), help="To this offset.")
@click.option("--shift-by", metavar="N", type=int, help="Forward by N, or back if N is negative.")
@click.option(
    "--to-datetime", metavar="TIME", callback=checked(parse_datetime),
    help="To the first record at or after a time like 2026-03-01T12:00:00+01:00.",
)  # fmt: skip
@click.option(
    "--by-duration", metavar="DURATION", callback=checked(parse_duration),
    help="To the first record within the last DURATION, like PT1H30M or P7D.",
)  # fmt: skip
@click.option("--execute", is_flag=True, help="Commit the offsets; by default they are only shown.")
@broker_options
def reset_offsets(
    session: Session, group_id: str, topics: dict[str, list[int]], all_topics: bool, execute: bool, **ways: Any
) -> None:
    """Reset the committed offsets of a group without members. Shows the new offsets; commits them with --execute."""
    if bool(topics) == all_topics:
        raise click.UsageError("give either --topic or --all-topics")
    goal = _goal(**ways)

    async def reset(client: Client) -> list[Reset]:
        resets = await offset_reset.plan(client, group_id, goal, None if all_topics else topics)
        if execute:
            offsets = {(reset.topic, reset.partition): reset.new_offset for reset in resets}
            await operations.commit_offsets(client, group_id, offsets)
        return resets

    resets = session.run(reset)
    if session.output.as_json:
        session.output.json({"group_id": group_id, "executed": execute, "offsets": [asdict(row) for row in resets]})
        return
    columns = ("topic", "partition", "committed offset", "new offset")
    session.output.table(columns, [(row.topic, row.partition, row.committed_offset, row.new_offset) for row in resets])
    session.output.say("committed" if execute else "nothing was changed; add --execute to commit")


def _goal(
    *,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: int | None,
    by_duration: int | None,
) -> Goal:
    goals: list[Goal] = []
    if to_earliest:
        goals.append(Goal(Target.EARLIEST))
    if to_latest:
        goals.append(Goal(Target.LATEST))
    if to_offset is not None:
        goals.append(Goal(Target.OFFSET, to_offset))
    if shift_by is not None:
        goals.append(Goal(Target.SHIFT, shift_by))
    if to_datetime is not None:
        goals.append(Goal(Target.TIMESTAMP, to_datetime))
    if by_duration is not None:
        goals.append(Goal(Target.TIMESTAMP, max(0, round(time() * 1000) - by_duration)))
    if len(goals) != 1:
        raise click.UsageError(f"give exactly one of {', '.join(WAYS_TO_RESET)}")
    return goals[0]
