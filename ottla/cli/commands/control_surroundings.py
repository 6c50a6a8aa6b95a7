"""`ottla control links` and `ottla control disks`: what is around brokers in testing mode, and how it fails."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from ottla.cli.control_session import ControlSession, control_options
from ottla.cli.names import CommandGroup

BOTH_WAYS: Final = "One end alone needs --to: `1 --to 2` is the way from 1 to 2, `1 2` is both ways."


@click.group("links", cls=CommandGroup)
def links() -> None:
    """Links between brokers, from clients and to the metadata store (docs/cluster-faults.md).

    A link has two ends: ids of brokers, `store`, or `clients`. `1 --to 2` is the way from 1 to 2, `1 2` is both ways.
    """


_ends = click.argument("ends", metavar="END [END]", nargs=-1, required=True)
_to = click.option("--to", metavar="END", help="One way, to there.")


@links.command("list")
@control_options
def list_links(session: ControlSession) -> None:
    """List the ways that have something in force."""
    _show_links(session, session.ask("GET", "/v1/links"))


@links.command("cut")
@_ends
@_to
@click.option("--reset", is_flag=True, help="Break connections; else what is sent is swallowed.")
@control_options
def cut_link(session: ControlSession, ends: Sequence[str], to: str | None, reset: bool) -> None:
    """Let nothing through."""
    _change_links(session, {"do": "cut", **_way(ends, to), "reset": reset})


@links.command("delay")
@_ends
@_to
@click.option("--ms", metavar="N", type=click.IntRange(0, 60_000), required=True, help="Milliseconds.")
@control_options
def delay_link(session: ControlSession, ends: Sequence[str], to: str | None, ms: int) -> None:
    """Let all that is sent arrive later."""
    _change_links(session, {"do": "delay", **_way(ends, to), "ms": ms})


@links.command("bandwidth")
@_ends
@_to
@click.option("--bytes-per-s", metavar="N", type=click.IntRange(min=1), required=True)
@control_options
def limit_link(session: ControlSession, ends: Sequence[str], to: str | None, bytes_per_s: int) -> None:
    """Let all that is sent arrive no faster."""
    _change_links(session, {"do": "bandwidth", **_way(ends, to), "bytes_per_s": bytes_per_s})


@links.command("pause")
@_ends
@_to
@control_options
def pause_link(session: ControlSession, ends: Sequence[str], to: str | None) -> None:
    """Let what is sent wait, until the link is healed."""
    _change_links(session, {"do": "pause", **_way(ends, to)})


@links.command("isolate")
@click.argument("node", metavar="NODE", type=click.IntRange(min=0))
@control_options
def isolate_broker(session: ControlSession, node: int) -> None:
    """Cut a broker off from all others and the metadata store; clients still reach it."""
    _change_links(session, {"do": "isolate", "node": node})


@links.command("heal")
@click.argument("ends", metavar="[END] [END]", nargs=-1)
@control_options
def heal_links(session: ControlSession, ends: Sequence[str]) -> None:
    """Heal all links, those of one end, or the one between two."""
    _change_links(session, {"do": "heal", "ends": [_end(each) for each in ends]})


def _way(ends: Sequence[str], to: str | None) -> dict[str, Any]:
    """Raises UsageError."""
    if len(ends) == 1 and to is not None:
        return {"from": _end(ends[0]), "to": _end(to)}
    if len(ends) == 2 and to is None:
        return {"between": [_end(each) for each in ends]}
    raise click.UsageError(BOTH_WAYS)


def _end(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdecimal() else text


def _change_links(session: ControlSession, body: Mapping[str, Any]) -> None:
    _show_links(session, session.ask("PUT", "/v1/links", body))


def _show_links(session: ControlSession, answer: Mapping[str, Any]) -> None:
    rows = [(each["from"], each["to"], _what_of_link(each)) for each in answer["links"]]
    session.show(answer, ("from", "to", "what"), rows)


def _what_of_link(link: Mapping[str, Any]) -> str:
    words = ["cut, connections break" if link["resets"] else "cut"] if link["is_cut"] else []
    words += ["paused"] if link["is_paused"] else []
    words += [f"{link['delay_ms']:g} ms late"] if link["delay_ms"] else []
    words += [f"{link['bytes_per_s']:g} bytes/s"] if link["bytes_per_s"] is not None else []
    return ", ".join(words)


@click.group("disks", cls=CommandGroup)
def disks() -> None:
    """Disks of brokers: full, slow, stalled, failing or damaged (docs/cluster-faults.md)."""


_node = click.argument("node", metavar="NODE", type=click.IntRange(min=0))


@disks.command("list")
@control_options
def list_disks(session: ControlSession) -> None:
    """List the disks, and what is wrong with them."""
    answer = session.ask("GET", "/v1/disks")
    session.show(answer, ("node", "what"), [(each["node"], _what_of_disk(each)) for each in answer["disks"]])


@disks.command("full")
@_node
@click.option("--after-bytes", metavar="N", type=click.IntRange(min=0), default=0, help="So many still fit.")
@control_options
def fill_disk(session: ControlSession, node: int, after_bytes: int) -> None:
    """Let writes fail that do not fit."""
    _change_disk(session, node, {"do": "full", "after_bytes": after_bytes})


@disks.command("slow-fsync")
@_node
@click.option("--ms", metavar="N", type=click.IntRange(0, 60_000), required=True, help="Milliseconds.")
@control_options
def slow_disk(session: ControlSession, node: int, ms: int) -> None:
    """Let each sync take longer."""
    _change_disk(session, node, {"do": "slow_fsync", "ms": ms})


@disks.command("fail")
@_node
@click.argument("operation", type=click.Choice(("fsync", "write", "read")))
@click.option("--match", metavar="PATTERN", default="*", help="Of files whose path is like `orders-0/*`.")
@click.option("--times", metavar="N", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--always", is_flag=True, help="In the place of --times: for good.")
@control_options
def fail_disk(session: ControlSession, node: int, operation: str, match: str, times: int, always: bool) -> None:
    """Let operations fail with an input/output error."""
    body = {"do": "fail", "operation": operation, "match": match, "times": None if always else times}
    _change_disk(session, node, body)


@disks.command("stall")
@_node
@control_options
def stall_disk(session: ControlSession, node: int) -> None:
    """Let syncs and reads wait, until the disk is healed."""
    _change_disk(session, node, {"do": "stall"})


@disks.command("corrupt")
@_node
@click.argument("topic", metavar="TOPIC")
@click.argument("partition", metavar="PARTITION", type=click.IntRange(min=0))
@click.option("--offset", metavar="N", type=click.IntRange(min=0), required=True)
@control_options
def corrupt_disk(session: ControlSession, node: int, topic: str, partition: int, offset: int) -> None:
    """Flip a bit of the stored batch that has an offset."""
    _change_disk(session, node, {"do": "corrupt", "topic": topic, "partition": partition, "offset": offset})


@disks.command("tear-tail")
@_node
@click.option("--bytes", "size", metavar="N", type=click.IntRange(min=1), required=True)
@click.option("--match", metavar="PATTERN", default="*", help="Of partitions like `orders-*`.")
@control_options
def tear_disk(session: ControlSession, node: int, size: int, match: str) -> None:
    """Tear the ends of logs off, of a broker that was killed."""
    _change_disk(session, node, {"do": "tear_tail", "bytes": size, "match": match})


@disks.command("lose-unsynced")
@_node
@control_options
def lose_of_disk(session: ControlSession, node: int) -> None:
    """Take away what was never synced, as a power cut does: at once, or at the next kill of a broker that runs."""
    _change_disk(session, node, {"do": "lose_unsynced"})


@disks.command("heal")
@_node
@control_options
def heal_disk(session: ControlSession, node: int) -> None:
    """End what is wrong with it; logs that have failed are offline until their broker starts again."""
    _change_disk(session, node, {"do": "heal"})


def _change_disk(session: ControlSession, node: int, body: Mapping[str, Any]) -> None:
    answer = session.ask("PUT", f"/v1/disks/{node}", body)
    session.show(answer, ("node", "what"), [(answer["node"], _what_of_disk(answer))])


def _what_of_disk(disk: Mapping[str, Any]) -> str:
    words = [f"full after {disk['room_bytes']} bytes"] if disk["room_bytes"] is not None else []
    words += [f"syncs {disk['fsync_ms']:g} ms slower"] if disk["fsync_ms"] else []
    words += ["stalled"] if disk["is_stalled"] else []
    for each in disk["failures"]:
        often = "always" if each["left"] is None else f"{each['left']} times more"
        words.append(f"{each['operation']} of {each['match']} fails {often}")
    return ", ".join(words)
