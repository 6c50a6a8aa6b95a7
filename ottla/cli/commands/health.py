"""`ottla health` as click sees it."""

import sys

import click

from ottla.cli.health import DEFAULT_TIMEOUT_S, DEFAULT_URL, HealthQuestion, run


@click.command()
@click.option(
    "--url",
    default=DEFAULT_URL,
    show_default=True,
    metavar="http[s]://HOST:PORT[/PATH]",
    help="The admin listener; the path is /health/ready if none is given.",
)
@click.option("--ca", metavar="FILE", help="With https://, trust the authorities in this PEM file.")
@click.option("--cert", metavar="FILE", help="With https://, show the certificate in this PEM file with its key.")
@click.option("--timeout", default=DEFAULT_TIMEOUT_S, show_default=True, metavar="SECONDS", help="How long to wait.")
def health(url: str, ca: str | None, cert: str | None, timeout: float) -> None:
    """Ask a broker's admin listener whether it is ready.

    Ends with status 1 if it is not, and 3 if nothing answers there. Other pages: /health/live, /health/startup and
    /health/restart-safe, which says whether the broker may be stopped now."""
    sys.exit(run(HealthQuestion(url, ca, cert, timeout)))
