"""`ottla control`: waits, faults, topics and reports of brokers in testing mode, for scripts in any language."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import click

from ottla.cli.commands.control_clock import clock
from ottla.cli.commands.control_script import script
from ottla.cli.commands.control_surroundings import disks, links
from ottla.cli.commands.control_wire import coverage, wire
from ottla.cli.control_session import ControlSession, control_options
from ottla.cli.names import CommandGroup
from ottla.testing.control.client import part


def _milliseconds(_ctx: click.Context, _parameter: click.Parameter, seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _numbers(what: str) -> Callable[[click.Context, click.Parameter, Sequence[str]], dict[str, int] | None]:
    def parse(_ctx: click.Context, _parameter: click.Parameter, texts: Sequence[str]) -> dict[str, int] | None:
        pairs = [text.rpartition("=") for text in texts]
        if not all(name and number.isdecimal() for name, _, number in pairs):
            raise click.BadParameter(f"{' '.join(texts)} is not {what}")
        return {name: int(number) for name, _, number in pairs} or None

    return parse


@click.group(cls=CommandGroup)
def control() -> None:
    """Control brokers in testing mode: `ottla serve --testing --control`, and within `ottla run`."""


@control.command("about")
@control_options
def about(session: ControlSession) -> None:
    """Show the brokers, and what can be asked of them."""
    answer = session.ask("GET", "/v1")
    if session.output.as_json:
        session.output.json(answer)
        return
    shown = {name: value for name, value in answer.items() if name != "not_served"}
    session.output.facts(f"Ottla {answer['version']}", [(name, _words(value)) for name, value in shown.items()])


@control.command("wait")
@click.argument("condition", metavar="CONDITION")
@click.option("--group", metavar="GROUP")
@click.option("--topic", metavar="TOPIC")
@click.option("--partition", metavar="N", type=int)
@click.option("--members", metavar="N", type=int, help="Of group-stable.")
@click.option("--assigned", metavar="TOPIC=N", multiple=True, callback=_numbers("TOPIC=N"),
              help="Of group-stable, partitions that have an owner; repeatable.")  # fmt: skip
@click.option("--generation", metavar="N", type=int, help="Of group-generation, or a later one.")
@click.option("--lag", metavar="N", type=int, help="Of group-lag, 0 without it.")
@click.option("--offset", "offsets", metavar="PARTITION=N", multiple=True, callback=_numbers("PARTITION=N"),
              help="Of group-committed, or a later one, and of topic-consumed; repeatable.")  # fmt: skip
@click.option("--count", metavar="N", type=int, help="Records, of topic-records and topic-consumed.")
@click.option("--node", metavar="N", type=int, help="Of partition-leader; any broker without it.")
@click.option("--fault", metavar="ID", help="Of fault-hits.")
@click.option("--hits", metavar="N", type=int, help="Of fault-hits, 1 without it.")
@click.option("--script", metavar="ID", help="Of script-done.")
@click.option("--within", "within_ms", metavar="SECONDS", type=click.FloatRange(0, 60), callback=_milliseconds,
              help="At most a minute; by default the deadline of the brokers, 5 seconds.")  # fmt: skip
@control_options
def wait(session: ControlSession, condition: str, **values: Any) -> None:
    """Wait until something holds; where it does not, say why and end with status 1.

    A CONDITION is group-stable, group-empty, group-generation, group-lag, group-committed, topic-records,
    topic-consumed, topic-in-sync, partition-leader, fault-hits, script-done or idle.
    """
    given = {name: value for name, value in values.items() if value is not None}
    answer = session.ask("POST", "/v1/wait", {"for": condition, **given})
    if session.output.as_json:
        session.output.json(answer)
    else:
        session.output.say(answer["state"])


@control.group("faults", cls=CommandGroup)
def faults() -> None:
    """Rules by which requests fail, wait or get lost (docs/faults.md)."""


@faults.command("list")
@control_options
def list_faults(session: ControlSession) -> None:
    """List the rules, and how often they have acted."""
    _show_faults(session, session.ask("GET", "/v1/faults"))


@faults.command("add")
@click.argument("rules", metavar="RULE...", nargs=-1, required=True)
@control_options
def add_faults(session: ControlSession, rules: Sequence[str]) -> None:
    """Add rules, all or none: `api=Produce,topic=orders,drop=response`, or JSON."""
    _show_faults(session, session.ask("POST", "/v1/faults", {"rules": list(rules)}))


@faults.command("remove")
@click.argument("fault_id", metavar="ID")
@control_options
def remove_fault(session: ControlSession, fault_id: str) -> None:
    """Remove a rule; what it holds goes on."""
    _show_faults(session, session.ask("DELETE", f"/v1/faults/{part(fault_id)}"))


@faults.command("release")
@click.argument("fault_id", metavar="ID")
@click.option("--count", metavar="N", type=click.IntRange(min=1), help="How many, the oldest first; by default all.")
@control_options
def release_fault(session: ControlSession, fault_id: str, count: int | None) -> None:
    """Let requests go on that a rule with `hold` holds."""
    answer = session.ask("POST", f"/v1/faults/{part(fault_id)}/release", {"count": count})
    if session.output.as_json:
        session.output.json(answer)
    else:
        session.output.say(f"released {answer['released']} requests")


def _show_faults(session: ControlSession, answer: Mapping[str, Any]) -> None:
    rows = [(each["id"], each["hits"], each["held"], each["text"]) for each in answer["faults"]]
    session.show(answer, ("id", "hits", "held", "what it did"), rows)


@control.command("reset")
@control_options
def reset(session: ControlSession) -> None:
    """Empty the brokers: topics, groups, connections, rules."""
    answer = session.ask("POST", "/v1/reset", {})
    if session.output.as_json:
        session.output.json(answer)
        return
    session.output.say(f"deleted {answer['topics']} topics and {answer['groups']} groups")
    session.output.lines(answer["leaks"])


@control.group("snapshots", cls=CommandGroup)
def snapshots() -> None:
    """States of a broker that are kept, to go back to (docs/isolation.md)."""


@snapshots.command("list")
@control_options
def list_snapshots(session: ControlSession) -> None:
    """List their names."""
    answer = session.ask("GET", "/v1/snapshots")
    session.show(answer, ("snapshot",), [(name,) for name in answer["snapshots"]])


@snapshots.command("take")
@click.argument("name", metavar="NAME")
@control_options
def take_snapshot(session: ControlSession, name: str) -> None:
    """Keep what there is now, in the place of a snapshot of this name."""
    answer = session.ask("PUT", f"/v1/snapshots/{part(name)}", {})
    if session.output.as_json:
        session.output.json(answer)
    else:
        session.output.say(f"kept {answer['partitions']} partitions as {name}")


@snapshots.command("restore")
@click.argument("name", metavar="NAME")
@click.option("--keep-members", is_flag=True, help="Groups have the members of the snapshot; else none.")
@control_options
def restore_snapshot(session: ControlSession, name: str, keep_members: bool) -> None:
    """Go back to a snapshot; connections of clients are closed."""
    body = {"members": "keep" if keep_members else "leave"}
    answer = session.ask("POST", f"/v1/snapshots/{part(name)}/restore", body)
    if session.output.as_json:
        session.output.json(answer)
        return
    session.output.say(f"restored {answer['topics']} topics as in {name}")
    session.output.lines(answer["leaks"])


@snapshots.command("remove")
@click.argument("name", metavar="NAME")
@control_options
def remove_snapshot(session: ControlSession, name: str) -> None:
    """Remove a snapshot."""
    answer = session.ask("DELETE", f"/v1/snapshots/{part(name)}")
    session.show(answer, ("snapshot",), [(each,) for each in answer["snapshots"]])


@control.command("topics")
@control_options
def topics(session: ControlSession) -> None:
    """List the topics."""
    answer = session.ask("GET", "/v1/topics")
    session.show(answer, ("topic",), [(name,) for name in answer["topics"]])


@control.command("records")
@click.argument("topic", metavar="TOPIC")
@click.option("--partition", metavar="N", type=click.IntRange(min=0))
@click.option("--start", metavar="OFFSET", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--stop", metavar="OFFSET", type=click.IntRange(min=0), help="Before this offset.")
@click.option("--limit", metavar="N", type=click.IntRange(min=0), default=1000, show_default=True)
@control_options
def records(
    session: ControlSession, topic: str, partition: int | None, start: int, stop: int | None, limit: int
) -> None:
    """Print the records of a topic, without a consumer."""
    given = {"partition": partition, "stop": stop}
    chosen = "".join(f"&{name}={value}" for name, value in given.items() if value is not None)
    answer = session.ask("GET", f"/v1/topics/{part(topic)}/records?start={start}&limit={limit}{chosen}")
    rows = [(each["partition"], each["offset"], _text(each["key"]), _text(each["value"])) for each in answer["records"]]
    session.show(answer, ("partition", "offset", "key", "value"), rows)


@control.command("groups")
@control_options
def groups(session: ControlSession) -> None:
    """List the groups."""
    answer = session.ask("GET", "/v1/groups")
    columns = ("group_id", "state", "generation", "members")
    session.show(answer, ("group", *columns[1:]), [[each[name] for name in columns] for each in answer["groups"]])


@control.command("brokers")
@click.argument("action", type=click.Choice(("kill", "stop", "restart", "pause", "resume")))
@click.argument("node", metavar="NODE", type=click.IntRange(min=0))
@control_options
def brokers(session: ControlSession, action: str, node: int) -> None:
    """Kill, stop or restart a broker of several in a process, or pause any."""
    answer = session.ask("POST", f"/v1/brokers/{node}/{action}", {})
    if session.output.as_json:
        session.output.json(answer)
    else:
        session.output.say(f"brokers that run: {_words(answer['brokers']) or 'none'}")


control.add_command(links)
control.add_command(disks)
control.add_command(clock)
control.add_command(script)


@control.command("audit")
@control_options
def audit(session: ControlSession) -> None:
    """Show what was lost, doubled or reordered since the last reset (docs/audit.md)."""
    answer = session.ask("GET", "/v1/audit")
    columns = ("kind", "where", "what", "explained_by")
    rows = [[each[name] for name in columns] for each in answer["findings"]]
    session.show(answer, ("kind", "where", "what", "explained by"), rows)
    if answer["unjudged"] and not session.output.as_json:
        session.output.say(answer["unjudged"])


control.add_command(coverage)
control.add_command(wire)


@control.command("report")
@control_options
def report(session: ControlSession) -> None:
    """Print what a failing test shows: hints, rebalances, the last requests, faults, the log."""
    answer = session.ask("GET", "/v1/report")
    if session.output.as_json:
        session.output.json(answer)
        return
    for section in answer["sections"]:
        session.output.lines([f"---- {section['title']} ----", *section["text"].split("\n")])


def _words(value: Any) -> str:
    return ", ".join(map(str, cast("Any", value))) if isinstance(value, list) else str(value)


def _text(value: Mapping[str, str] | None) -> str | None:
    return None if value is None else value.get("text", value.get("base64"))
