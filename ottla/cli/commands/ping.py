"""`ottla ping`: whether a broker answers, as a health check of containers."""

import click

from ottla.cli.operations.cluster import first_answer
from ottla.cli.session import Session, broker_options, run_to_end


@click.command()
@broker_options
def ping(session: Session) -> None:
    """Connect to a broker and ask for its API versions; ends with status 1 if none answers."""
    address, took_ms = run_to_end(first_answer(session.config))
    if session.output.as_json:
        session.output.json({"broker": address, "took_ms": took_ms})
    session.output.say(f"{address} answered in {took_ms} ms")
