"""`ottla secure`: keys, certificates and passwords for a development cluster of several processes."""

from collections.abc import Sequence
from pathlib import Path

import click

from ottla.broker.runtime import StartError
from ottla.cli.session import parse_bootstrap

_OWN_HOSTS = ("localhost", "127.0.0.1", "::1")


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--host", "hosts", metavar="HOST", multiple=True, help="Host that the certificate names; repeatable.")
@click.option(
    "--advertise", metavar="HOST:PORT[,...]", default="127.0.0.1:9092", show_default=True, callback=parse_bootstrap,
    help="The addresses that clients get, in the files for them.",
)  # fmt: skip
def secure(directory: Path, hosts: Sequence[str], advertise: Sequence[object]) -> None:
    """For development: make in DIR an authority, a certificate and passwords, as `ottla serve --secure` does, and start
    nothing.

    broker.pem is for all brokers of a cluster, and for its etcd: it names --host, localhost, 127.0.0.1 and ::1, and is
    good for servers and clients. What is there is taken again; a certificate that lacks a host or ends within 30 days
    is replaced. compose.secure.yaml shows how it is used.
    """
    try:
        from ottla.cli.operations.secure_directory import SecureDirectory
    except ModuleNotFoundError as error:
        raise click.ClickException(f"this needs {error.name}, which comes with: pip install 'ottla[secure]'") from None
    made = SecureDirectory(directory.absolute())
    try:
        made.open([*_OWN_HOSTS, *hosts])
        made.write_client_files(",".join(map(str, advertise)))
    except StartError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"for development only: who can read {made.path} can do everything")
    for name in sorted(each.name for each in made.path.iterdir()):
        click.echo(f"  {name}")
