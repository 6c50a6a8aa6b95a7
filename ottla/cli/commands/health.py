"""`ottla health` as click sees it."""

import sys

import click

from ottla.cli.health import DEFAULT_TIMEOUT_S, DEFAULT_URL, run


@click.command()
@click.option(
    "--url",
    default=DEFAULT_URL,
    show_default=True,
    metavar="http://HOST:PORT[/PATH]",
    help="The admin listener; the path is /health/ready if none is given.",
)
@click.option("--timeout", default=DEFAULT_TIMEOUT_S, show_default=True, metavar="SECONDS", help="How long to wait.")
def health(url: str, timeout: float) -> None:
    """Ask a broker's admin listener whether it is ready.

    Ends with status 1 if it is not, and 3 if nothing answers there. Other pages: /health/live, /health/startup and
    /health/restart-safe, which says whether the broker may be stopped now."""
    sys.exit(run(url, timeout))
