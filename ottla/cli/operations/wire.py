"""`ottla wire`: from files of captures to what its commands print."""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import click

from ottla.broker.server.apis import APIS
from ottla.cli.output import Output
from ottla.protocol.address import Address
from ottla.testing.wire_capture.capture import Capture
from ottla.testing.wire_capture.comparison import compare
from ottla.testing.wire_capture.exchanges import Answered, ExchangeReader, NotAnswered, Said
from ottla.testing.wire_capture.file_format import CaptureError, CaptureFile, CaptureRecord
from ottla.testing.wire_capture.lines import ShownParts, json_lines, text_lines
from ottla.testing.wire_capture.pcap import PcapBuilder
from ottla.testing.wire_capture.replay import Replay, ReplayFailed, ReplayReport

FOLLOW_EVERY_S: Final = 0.2
Piece = TypeVar("Piece", str, bytes)


@dataclass(slots=True)
class NotWhole:
    """What there is to say behind the lines of a file."""

    note: str = ""
    wrong: str = ""


def known_apis() -> set[str]:
    """In small letters."""
    return {api.name.lower() for api in APIS.values()}


def shown_lines(path: Path, shown: ShownParts, ended: NotWhole, *, is_json: bool, follows: bool) -> Iterator[str]:
    return _until_wrong(path, ended, lambda file: _lines(file, shown, is_json=is_json, follows=follows))


def pcap_pieces(path: Path, shown: ShownParts, ended: NotWhole, *, follows: bool) -> Iterator[bytes]:
    """A pcapng file with the connections that have an exchange of `shown`, whole."""
    return _until_wrong(path, ended, lambda file: _packets(file, shown, follows=follows))


def _until_wrong(path: Path, ended: NotWhole, read: Callable[[CaptureFile], Iterator[Piece]]) -> Iterator[Piece]:
    """What is read of a file until its end or what is wrong with it, which `ended` gets."""
    try:
        with CaptureFile(path) as file:
            yield from read(file)
            ended.wrong = file.damage or ""
            if not file.has_end and file.damage is None:
                ended.note = f"{path} has no end: its broker still runs, or was killed"
    except CaptureError as error:
        ended.wrong = str(error)


def _lines(file: CaptureFile, shown: ShownParts, *, is_json: bool, follows: bool) -> Iterator[str]:
    reader = ExchangeReader()
    has_secrets = file.header.get("secrets") == "kept"
    # Of the first record, which is known when the first line is.
    said = _with_rest(file, reader, follows=follows)
    for each in said:
        began_ns = reader.began_ns or 0
        if is_json:
            yield from json_lines((each,), shown, began_ns)
        else:
            yield from text_lines((each,), shown, began_ns, reader.topics, has_secrets=has_secrets)


def _with_rest(file: CaptureFile, reader: ExchangeReader, *, follows: bool) -> Iterator[Said]:
    yield from reader.said(_records(file, follows=follows))
    yield from reader.rest()


def _records(file: CaptureFile, *, follows: bool) -> Iterator[CaptureRecord]:
    yield from file.records()
    while follows and not file.has_end and (file.damage is None or file.is_cut_off):
        time.sleep(FOLLOW_EVERY_S)
        yield from file.records()


def _packets(file: CaptureFile, shown: ShownParts, *, follows: bool) -> Iterator[bytes]:
    builder = PcapBuilder(None if shown.is_all else _connections(file.path, shown))
    yield builder.header(file.header)
    yield from builder.blocks(_records(file, follows=follows))


def _connections(path: Path, shown: ShownParts) -> frozenset[int]:
    """Those with an exchange of `shown`. Raises CaptureError."""
    reader = ExchangeReader()
    with CaptureFile(path) as file:
        ended = (each for each in _with_rest(file, reader, follows=False) if isinstance(each, Answered | NotAnswered))
        return frozenset(each.exchange.peer.number for each in ended if shown.has(each.exchange))


def difference_lines(a: Path, b: Path, *, is_json: bool) -> list[str]:
    """Raises click.ClickException for what is no capture, or damaged."""
    try:
        return [each.to_json() if is_json else str(each) for each in compare(a, b)]
    except CaptureError as error:
        raise click.ClickException(str(error)) from None


class ReplayOptions(NamedTuple):
    path: Path
    address: Address
    speed: float
    answer_within_s: float
    capture: Path | None
    """Gets what is sent and answered now."""


def replayed(options: ReplayOptions, output: Output) -> bool:
    """Whether all answers have come, with the errors of the capture. Raises click.ClickException."""
    try:
        report = asyncio.run(_replay(options))
    except (CaptureError, ReplayFailed) as error:
        raise click.ClickException(str(error)) from None
    if output.as_json:
        output.json(report.to_json())
    else:
        output.lines(report.lines())
    return report.is_alike


async def _replay(options: ReplayOptions) -> ReplayReport:
    """Raises CaptureError, ReplayFailed."""
    path, (host, port), speed, within_s, to = options
    header = {"replay_of": str(path), "to": f"{host}:{port}"}
    capture = None if to is None else Capture(to, header, with_secrets=False)
    try:
        return await Replay(path, host, port, speed=speed, answer_within_s=within_s, capture=capture).run()
    finally:
        if capture is not None:
            capture.end()
            await asyncio.to_thread(capture.wait)
            if capture.ended is not None:
                click.echo(capture.ended, err=True)
