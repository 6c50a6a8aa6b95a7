"""Writes docs/cli.md from what the commands say of themselves: `python -m ottla.cli.reference`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ottla.cli.app import cli

DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"
WIDTH = 100

PREFACE = """\
# The command line

<!-- Written by `python -m ottla.cli.reference`; what is between the commands stands in ottla/cli/reference.py. -->

`ottla serve` runs a broker. The other commands talk to any broker that speaks Kafka's protocol, Apache Kafka 2.0 and
newer included, over plain connections (no TLS, no SASL). They look for it at `--bootstrap`, else at the environment
variable `OTTLA_BOOTSTRAP`, else at 127.0.0.1:9092.

- On a terminal they print tables; in a pipe, the same as aligned text with one heading line; with `--json`, JSON.
- What goes wrong is one sentence on standard error. The exit status is 1, or 2 when the command was written wrongly.
- Errors that pass (a leader or a coordinator that is moving) are tried again for `--request-timeout` seconds.

```console
$ ottla serve --ephemeral &
ready bootstrap=127.0.0.1:9092 cluster_id=... startup_ms=...
$ ottla topics create words --partitions 3
created topic words
$ printf 'a:1\\nb:2\\n' | ottla produce words --key-separator :
produced 2 records to words in 0.01 s (190/s)
$ ottla consume words --from-beginning --exit-at-end --format '{partition} {offset} {key} {value}'
$ ottla consume words --group readers --from-beginning --timeout 5
$ ottla groups describe readers
$ ottla groups reset-offsets readers --all-topics --to-earliest
nothing was changed; add --execute to commit
```

Of a cluster, `ottla cluster status` tells which partitions lack replicas and how many records their followers have
still to copy; `ottla partitions` shows and changes who has and who leads what:

```console
$ ottla serve --ephemeral --brokers 3 &
ready bootstrap=127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094 cluster_id=... startup_ms=...
$ ottla topics create orders --partitions 2 --replication-factor 3
created topic orders
$ ottla partitions reassign orders:0=2,0 orders:1=0,1 --wait
orders:0 moved to 2,0
orders:1 moved to 0,1
$ ottla partitions elect orders --preferred
```

`ottla consume --json` writes what `ottla produce --from-json` reads, keys, headers, partitions and timestamps included;
bytes that are no UTF-8 are `{"base64": "..."}`.

Groups of the consumer protocol of KIP-848 (`group.protocol=consumer`) are listed, but not yet described.
"""


def document() -> str:
    """The whole of docs/cli.md."""
    return PREFACE + "".join(_sections(cli, click.Context(cli, info_name="ottla", **_settings())))


def _sections(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"\n## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None, f"{name} is listed, so it is there"
            yield from _sections(child, click.Context(child, parent=context, info_name=name, **_settings()))


def _settings() -> dict[str, Any]:
    return {**cli.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}


if __name__ == "__main__":
    DOCUMENT.write_text(document())
