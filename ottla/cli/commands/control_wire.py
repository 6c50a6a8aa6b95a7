"""`ottla control wire` and `ottla control coverage`: what goes over the wire of brokers in testing mode."""

from pathlib import Path

import click

from ottla.cli.commands.run import kafka_release
from ottla.cli.control_session import ControlSession, control_options
from ottla.cli.names import CommandGroup


@click.group("wire", cls=CommandGroup)
def wire() -> None:
    """What goes over the wire: the last requests, and captures for `ottla wire` (docs/wire.md)."""


@wire.command("last")
@click.option("--count", metavar="N", type=click.IntRange(1, 4096), default=40, show_default=True)
@control_options
def last_requests(session: ControlSession, count: int) -> None:
    """Print the last requests of clients."""
    answer = session.ask("GET", f"/v1/wire?last={count}")
    columns = ("at_ms", "connection", "api", "version", "what", "error", "duration_ms")
    session.show(answer, columns, [[each[name] for name in columns] for each in answer["requests"]])


@wire.command("start")
@control_options
def start_capture(session: ControlSession) -> None:
    """Capture from now on, in the place of what was captured before; logins are left out."""
    session.say(session.ask("POST", "/v1/wire/start", {}), "the capture has begun")


@wire.command("mark")
@click.argument("text", metavar="TEXT")
@control_options
def mark_capture(session: ControlSession, text: str) -> None:
    """Put a line into the capture, to find a place again."""
    answer = session.ask("POST", "/v1/wire/mark", {"text": text})
    session.say(answer, "marked" if answer["is_captured"] else "nothing is captured now")


@wire.command("stop")
@control_options
def stop_capture(session: ControlSession) -> None:
    """End the capture."""
    answer = session.ask("POST", "/v1/wire/stop", {})
    early = "" if answer["ended_early"] is None else f"; it ended early: {answer['ended_early']}"
    session.say(answer, f"captured {answer['bytes']} bytes{early}")


@wire.command("fetch")
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@control_options
def fetch_capture(session: ControlSession, target: Path) -> None:
    """Write the capture that is over to a file, for `ottla wire show`, `diff` and `replay`."""
    size = session.fetch("/v1/wire/capture", target)
    session.say({"file": str(target), "bytes": size}, f"{target} has {size} bytes")


@click.command("coverage")
@click.option("--forget", is_flag=True, help="Begin to count again.")
@click.option("--target", metavar="VERSION", callback=kafka_release,
              help="Also what this release of Kafka does not have, as 3.7.")  # fmt: skip
@control_options
def coverage(session: ControlSession, forget: bool, target: str | None) -> None:
    """Show what clients have used of the protocol (docs/audit.md); --json has all of it, as a baseline.

    A reset does not end it.
    """
    from ottla.testing.kafka_releases import difference_line, differences

    answer = session.ask("DELETE" if forget else "GET", "/v1/coverage")
    if target is not None:
        answer |= {"target": target, "differs": differences(answer, target)}
        answer["text"] = [*answer["text"], difference_line(answer, target)]
    if session.output.as_json:
        session.output.json(answer)
    else:
        session.output.lines(answer["text"])
