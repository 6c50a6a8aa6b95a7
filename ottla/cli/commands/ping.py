"""`ottla ping`: does a broker answer? The health check of containers."""

import asyncio

import click

from ottla.cli.connection import BrokerConnection
from ottla.cli.failures import NoAnswer
from ottla.cli.session import Session, broker_options, run_to_end


@click.command()
@broker_options
def ping(session: Session) -> None:
    """Connect to a broker and ask for its API versions; ends with status 1 if none answers."""
    address, took_ms = run_to_end(_first_answer(session))
    if session.output.as_json:
        session.output.json({"broker": address, "took_ms": took_ms})
    session.output.say(f"{address} answered in {took_ms} ms")


async def _first_answer(session: Session) -> tuple[str, float]:
    last: NoAnswer | None = None
    for address in session.bootstrap:
        asked_at = asyncio.get_running_loop().time()
        try:
            connection = await BrokerConnection.open(address, session.timeout_s)
        except NoAnswer as error:
            last = error
            continue
        await connection.close()
        return str(address), round((asyncio.get_running_loop().time() - asked_at) * 1000, 1)
    assert last is not None, "there is at least one bootstrap address"
    raise last
