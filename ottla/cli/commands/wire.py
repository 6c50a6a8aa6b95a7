"""`ottla wire`: captures of what went over the wire. What reads them is imported when a command runs."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from ottla.cli.arguments import checked
from ottla.cli.names import CommandGroup
from ottla.cli.output import Output
from ottla.protocol.address import Address, parse_address

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(cls=CommandGroup)
def wire() -> None:
    """Look at captures of what clients and brokers sent each other, compare them, send them again.

    A capture is made with `ottla serve --capture FILE`, `ottla run --capture FILE`, or by a test (docs/wire.md).
    """


@wire.command("show")
@click.argument("file", metavar="FILE", type=FILE)
@click.option("--api", "apis", metavar="NAME", multiple=True, help="Only this API, as JoinGroup; repeatable.")
@click.option("--client", "clients", metavar="ID", multiple=True,
              help="Only clients with this client id, with * and ?; repeatable.")  # fmt: skip
@click.option("--group", "groups", metavar="ID", multiple=True, help="Only what is about this group; repeatable.")
@click.option("--errors", "only_errors", is_flag=True, help="Only answers with an error, and requests without answer.")
@click.option("--follow", is_flag=True, help="Go on with what a capture that is not over adds to the file.")
@click.option("-v", "--verbose", "detail", count=True, help="Fields by name, and connections; -vv: their bytes too.")
@click.option("--json", "is_json", is_flag=True, help="Print a JSON object for each line.")
@click.option("--pcap", "is_pcap", is_flag=True,
              help="Write packets for Wireshark to standard output: whole connections.")  # fmt: skip
def show(
    file: Path,
    apis: Sequence[str],
    clients: Sequence[str],
    groups: Sequence[str],
    only_errors: bool,
    follow: bool,
    detail: int,
    is_json: bool,
    is_pcap: bool,
) -> None:
    """Show a capture: one line for each exchange, when it was answered.

    Times are in milliseconds since the capture began. The exit status is 1 when the file is damaged; what is before the
    damage is shown.
    """
    from ottla.cli.operations.wire import NotWhole, known_apis, pcap_pieces, shown_lines
    from ottla.testing.wire_capture.lines import ShownParts

    unknown = sorted({each.lower() for each in apis} - known_apis())
    if unknown:
        raise click.BadParameter(f"there is no API {unknown[0]!r} (docs/apis.md)", param_hint="--api")
    shown = ShownParts(frozenset(each.lower() for each in apis), tuple(clients), frozenset(groups), only_errors, detail)
    ended = NotWhole()
    if is_pcap:
        _refuse_beside_pcap(is_json=is_json, has_detail=detail > 0, follows_some=follow and not shown.is_all)
        Output(as_json=False).pieces(pcap_pieces(file, shown, ended, follows=follow))
    else:
        Output(is_json).lines(shown_lines(file, shown, ended, is_json=is_json, follows=follow))
    if ended.note:
        click.echo(ended.note, err=True)
    if ended.wrong:
        raise click.ClickException(ended.wrong)


def _refuse_beside_pcap(*, is_json: bool, has_detail: bool, follows_some: bool) -> None:
    """Raises click.UsageError."""
    wrong = ""
    if is_json:
        wrong = "--pcap and --json exclude each other"
    elif has_detail:
        wrong = "--pcap and -v exclude each other: Wireshark shows the fields"
    elif follows_some:
        wrong = "--pcap with --follow has all connections: leave out --api, --client, --group and --errors"
    elif sys.stdout.isatty():
        wrong = "--pcap writes bytes: append `> FILE.pcapng`, or `| wireshark -k -i -`"
    if wrong:
        raise click.UsageError(wrong)


@wire.command("diff")
@click.argument("a", metavar="A", type=FILE)
@click.argument("b", metavar="B", type=FILE)
@click.option("--json", "is_json", is_flag=True, help="Print a JSON object for each difference.")
def diff(a: Path, b: Path, is_json: bool) -> None:
    """Compare two captures: of Ottla and Apache Kafka, of two versions of a client.

    Connections are compared with those of the same kind, their exchanges in order. Ids that brokers give may differ, as
    long as each stands for one other; so may times and addresses. The exit status is 1 when something differs.
    """
    from ottla.cli.operations.wire import difference_lines

    lines = difference_lines(a, b, is_json=is_json)
    Output(is_json).lines(lines)
    if lines:
        raise SystemExit(1)


@wire.command("replay")
@click.argument("file", metavar="FILE", type=FILE)
@click.option("--to", "address", metavar="HOST:PORT", required=True, callback=checked(parse_address),
              help="The broker, or one of a cluster.")  # fmt: skip
@click.option("--speed", metavar="FACTOR", type=click.FloatRange(min=0), default=1.0, show_default=True,
              help="2: in half the time; 0: without pauses.")  # fmt: skip
@click.option("--answer-within", metavar="SECONDS", type=click.FloatRange(min=0, min_open=True), default=30.0,
              show_default=True, help="How long to wait for an answer that the capture has.")  # fmt: skip
@click.option("--capture", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
              help="Write what is sent and answered now to FILE, for ottla wire diff.")  # fmt: skip
@click.option("--json", "is_json", is_flag=True, help="Print the result as a JSON object.")
def replay(
    file: Path, address: Address, speed: float, answer_within: float, capture: Path | None, is_json: bool
) -> None:
    """Send the requests of a capture again, as its clients did.

    What the brokers of the capture had given, as member ids and producer ids, is replaced by what this one gives. A
    request is sent when all has been answered that was answered before it. The exit status is 1 when an answer has
    another error than in the capture, or does not come.
    """
    from ottla.cli.operations.wire import ReplayOptions, replayed

    options = ReplayOptions(file, address, speed, answer_within, capture)
    if not replayed(options, Output(is_json)):
        raise SystemExit(1)
