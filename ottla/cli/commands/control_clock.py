"""`ottla control clock`: the time of brokers in testing mode."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from ottla.cli.control_session import ControlSession, control_options
from ottla.cli.names import CommandGroup
from ottla.testing.clock.included import INCLUDABLE


@click.group("clock", cls=CommandGroup)
def clock() -> None:
    """The time that groups, transactions and retention go by (docs/broker-time.md)."""


_node = click.argument("node", metavar="NODE", type=click.IntRange(min=0))


@clock.command("show")
@control_options
def show_clock(session: ControlSession) -> None:
    """Show the time, and the timers that are pending."""
    _show_clock(session, session.ask("GET", "/v1/clock"))


@clock.command("advance")
@click.argument("by", metavar="DURATION")
@click.option("--expire", is_flag=True, help="Members of groups end too whose connection is open.")
@control_options
def advance_clock(session: ControlSession, by: str, expire: bool) -> None:
    """Let 90s or 7d pass, and show the timers that ran."""
    body = {"by": by, "sessions": "expire" if expire else "spare"}
    _show_fired(session, session.ask("POST", "/v1/clock/advance", body))


@clock.command("next")
@click.option(
    "--kind", metavar="KIND", help="Of the timer, as `clock show` has it; by default any that is no periodic job."
)
@click.option("--expire", is_flag=True, help="Members of groups end too whose connection is open.")
@control_options
def next_timer(session: ControlSession, kind: str | None, expire: bool) -> None:
    """Let time pass to the next timer and no further, and show what ran."""
    body = {"kind": kind, "sessions": "expire" if expire else "spare"}
    _show_fired(session, session.ask("POST", "/v1/clock/next", body))


@clock.command("freeze")
@click.option("--at", metavar="MOMENT", help="Such as 2026-11-23T12:00:00+00:00; by default where it is.")
@control_options
def freeze_clock(session: ControlSession, at: str | None) -> None:
    """Stop it."""
    _show_clock(session, session.ask("POST", "/v1/clock/freeze", {"at": at}))


@clock.command("resume")
@control_options
def resume_clock(session: ControlSession) -> None:
    """Have it go on."""
    _show_clock(session, session.ask("POST", "/v1/clock/resume", {}))


@clock.command("set")
@click.argument("at", metavar="MOMENT")
@control_options
def set_clock(session: ControlSession, at: str) -> None:
    """Set the wall clock."""
    _show_clock(session, session.ask("POST", "/v1/clock/set", {"at": at}))


@clock.command("rate")
@click.argument("rate", metavar="RATE", type=click.FloatRange(min=0, min_open=True))
@control_options
def rate_clock(session: ControlSession, rate: float) -> None:
    """Have it run at so many times the machine's; clients that live are spared."""
    _show_clock(session, session.ask("POST", "/v1/clock/rate", {"rate": rate}))


@clock.command("include")
@click.argument("names", metavar="[tokens] [replication]", nargs=-1, type=click.Choice(INCLUDABLE))
@control_options
def include_in_clock(session: ControlSession, names: Sequence[str]) -> None:
    """Have tokens and sessions of logins, or what followers may lag, go by it too; without a name neither."""
    _show_clock(session, session.ask("POST", "/v1/clock/include", {"names": list(names)}))


@clock.command("skew")
@_node
@click.argument("by", metavar="DURATION")
@click.option("--behind", is_flag=True, help="Else it is ahead.")
@control_options
def skew_clock(session: ControlSession, node: int, by: str, behind: bool) -> None:
    """Set the wall clock of one broker ahead of the others', or behind."""
    body = {"node": node, "by": f"-{by}" if behind else by}
    _show_clock(session, session.ask("POST", "/v1/clock/skew", body))


@clock.command("drift")
@_node
@click.argument("rate", metavar="RATE", type=click.FloatRange(min=0, min_open=True))
@control_options
def drift_clock(session: ControlSession, node: int, rate: float) -> None:
    """Have the wall clock of one broker run at so many times the others'."""
    _show_clock(session, session.ask("POST", "/v1/clock/drift", {"node": node, "rate": rate}))


def _show_fired(session: ControlSession, answer: Mapping[str, Any]) -> None:
    columns = ("at", "node", "kind", "what")
    session.show(answer, columns, [[each[name] for name in columns] for each in answer["fired"]])


def _show_clock(session: ControlSession, answer: Mapping[str, Any]) -> None:
    if session.output.as_json:
        session.output.json(answer)
        return
    how = "real" if answer["is_real"] else "frozen" if answer["is_frozen"] else "moved"
    session.output.say(f"{answer['now']} ({how})")
    columns = ("node", "kind", "what", "at")
    session.output.table(columns, [[each[name] for name in columns] for each in answer["pending"]])
